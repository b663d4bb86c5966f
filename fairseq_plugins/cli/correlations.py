"""``fairseq-pe analyse correlations``: Table 5 of the BERT paper."""

import argparse
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.papers import SCALE_NAMES

NEEDS = "scripts/bert_table2.sh, bert_table3.sh and bert_table4.sh"


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    command = commands.add_parser(
        "correlations",
        help="properties of attention against performance: Table 5 of the BERT paper",
        description="Pearson correlations over embeddings between the properties of their "
        "attention and their performance, as Table 5 of the BERT paper: makes "
        "results/bert_table5/<scale>.md and .json from the results there are. Trains nothing.",
    )
    text = "scale of the results (default: every scale with results)"
    command.add_argument("--scale", choices=SCALE_NAMES, help=text)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    # Only now, because this imports PyTorch, which takes seconds.
    from fairseq_plugins.report.page import write_correlations_page

    scales = [args.scale] if args.scale else SCALE_NAMES
    pages = [page for scale in scales if (page := write_correlations_page(ROOT, scale))]
    if not pages:
        raise OptionError(
            f"--scale must have results of {NEEDS}, but none of {', '.join(scales)} has"
        )
    for page in pages:
        print(f"written: {page} and {page.with_suffix('.json').name}")
