"""``fairseq-pe analyse correlations``: Table 5 of the BERT paper."""

import argparse
import logging
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.papers import SCALE_NAMES

NEEDS = "scripts/bert_table2.sh, bert_table3.sh and bert_table4.sh"


def register(commands: Any) -> None:
    """Enter the command among those of `analysis`."""
    command = commands.add_parser(
        "correlations",
        help="properties of attention against performance: Table 5 of the BERT paper",
        description="Pearson correlations over embeddings between the properties of their "
        "attention and their performance, as Table 5 of the BERT paper: makes "
        "results/bert_table5/<scale>.md and .json from the results there are. Trains nothing.",
    )
    command.add_argument("--scale", choices=SCALE_NAMES, default="mini", help="(default: mini)")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    scale = args.scale
    logging.disable(logging.INFO)  # of the libraries; this program prints
    # Only now, because this imports PyTorch, which takes seconds.
    from fairseq_plugins.papers.bert import (
        BERT_GLUE_TABLE,
        BERT_PROPERTIES_TABLE,
        BERT_SQUAD_TABLE,
    )
    from fairseq_plugins.reproduce.report.claims_page import read_numbers
    from fairseq_plugins.reproduce.report.correlations import write_correlations
    from fairseq_plugins.reproduce.report.verdicts import printed_cells

    tables = [BERT_PROPERTIES_TABLE, BERT_GLUE_TABLE, BERT_SQUAD_TABLE]
    found = read_numbers(ROOT, tables, scale).get(scale)
    if found is None or BERT_PROPERTIES_TABLE.name not in found.cells:
        raise OptionError(f"--scale must have results of {NEEDS}, but {scale} has none")
    printed = {table.name: printed_cells(table) for table in tables}
    page = write_correlations(ROOT, scale, found.cells, found.floors, printed)
    print(f"written: {page} and {page.with_suffix('.json').name}")
