"""``fairseq-pe table NAME``: those that are trained, and those that another command makes."""

import subprocess
import sys
from collections.abc import Sequence

from fairseq_plugins.cli import analyse
from fairseq_plugins.cli.table_options import SCRIPTS
from fairseq_plugins.cli.train_table import EXTRA_WORDS, get_chooser
from fairseq_plugins.cli.train_table import main as train
from fairseq_plugins.common.root import IS_CHECKOUT, ROOT

TIMED = "table9"
# Made of what there is, by these commands.
ANALYSES = {
    "bert_table5": ("analyse", "correlations"),
    "awareness": ("analyse", "awareness", "--output", "results/awareness"),
}
ABOUT = {
    TIMED: "LRPE's Table 9, which times and trains nothing; in a checkout alone",
    "bert_table5": "the same as `fairseq-pe analyse correlations`",
    "awareness": "the same as `fairseq-pe analyse awareness --output results/awareness`",
    "claims": "of all papers, judged by the results there are",
    "pages": "all of them anew, of the results there are",
    "paper": "all tables and figures of one",
    "recipes": "of older results stored once each, in place of a copy in every result",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Make a table; the exit status of its command."""
    given = list(sys.argv[1:] if argv is None else argv)
    figures = {f.name: f.source for table in SCRIPTS.values() for f in table.figures}
    lines = [f"  {name:<22}{figures.get(name, t.source)}" for name, t in SCRIPTS.items()]
    lines += [f"  {name:<22}{text}" for name, text in ABOUT.items()]
    chooser = get_chooser([*SCRIPTS, *EXTRA_WORDS, *ANALYSES, TIMED], lines)
    name, options = chooser.parse_args(given[:1]).table, given[1:]
    if name in ANALYSES:
        return analyse.main([*ANALYSES[name][1:], *options])
    if name == TIMED:
        if not IS_CHECKOUT:
            chooser.error(f"{TIMED} must be made in a checkout, whose benchmarks/ no wheel has")
        words = [sys.executable, "-m", f"benchmarks.{TIMED}", *options]
        return subprocess.run(words, cwd=ROOT, check=False).returncode
    return train(given)
