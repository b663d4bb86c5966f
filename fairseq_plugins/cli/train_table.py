"""`fairseq-pe table NAME`: a table, all tables of a paper, all pages, or the claims."""

import argparse
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import analyse, table_options, table_pages
from fairseq_plugins.cli.table_options import SCRIPTS
from fairseq_plugins.cli.table_pages import CLAIMS, PAGES
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.extras import install_command, is_installed
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    FOLDER_VARIABLES,
    IS_CHECKOUT,
    ROOT,
    apply_folder_options,
    root_folder,
    set_folder,
)
from fairseq_plugins.records.runs import LOCAL

PAPER = "paper"  # all tables and figures of a paper
TIMED = "table9"
AWARENESS = "awareness"


def _analysis(name: str) -> list[str]:
    """Return the words of `fairseq-pe analyse` that make a table."""
    if name == AWARENESS:
        return [AWARENESS, "--output", (root_folder("results") / AWARENESS).as_posix()]
    return ["correlations"]


ANALYSES = ("bert_table5", AWARENESS)  # made by `fairseq-pe analyse`
EXTRA_WORDS = {
    CLAIMS: "of all papers, judged by the results there are",
    PAGES: "all of them anew, of the results there are",
    PAPER: "all tables and figures of one",
}
OTHER_COMMANDS = {
    TIMED: "LRPE's Table 9, which times and trains nothing; in a checkout alone",
    **{name: f"the same as `fairseq-pe analyse {' '.join(_analysis(name))}`" for name in ANALYSES},
}
_EXCLUSIVE = (
    ("missing_checkpoints", "force"),
    ("missing_checkpoints", "slurm"),
    ("missing_tasks", "force"),
    ("missing_tasks", "missing_checkpoints"),
    ("force", "render"),
    ("phases", "dry_run"),
)
_TRACKERS = {"tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",)}  # modules


def get_chooser() -> Parser:
    """Return the parser of the first word; each name has options of its own."""
    figures = {f.name: f.source for table in SCRIPTS.values() for f in table.figures}
    about = {name: figures.get(name, table.source) for name, table in SCRIPTS.items()}
    about |= OTHER_COMMANDS | EXTRA_WORDS
    lines = [f"  {name:<22}{text}" for name, text in about.items()]
    chooser = Parser(
        prog="fairseq-pe table",
        usage="%(prog)s NAME [options]",
        description="\n".join(["Make a table or figure of a paper.", "", *lines]),
        epilog="`fairseq-pe table table2 --help` shows the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chooser.add_argument("table", choices=[*about], metavar="NAME", help="one of the names above")
    return chooser


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run `fairseq-pe table`; return the exit status."""
    chooser = get_chooser()
    first, *given = list(sys.argv[1:] if arguments is None else arguments) or [""]
    name = chooser.parse_args([first] if first else []).table
    logging.disable(logging.INFO)  # libraries log; this program prints
    if name in ANALYSES:
        return analyse.main([*_analysis(name), *given])
    if name == TIMED:
        if not IS_CHECKOUT:
            chooser.error(f"{TIMED} must be made in a checkout, whose benchmarks/ no wheel has")
        words = [sys.executable, "-m", f"benchmarks.{TIMED}", *given]
        return subprocess.run(words, cwd=ROOT, check=False).returncode
    if name in table_pages.DESCRIPTIONS:
        return table_pages.run(name, given, root)
    parser = table_options.get_paper_parser() if name == PAPER else table_options.get_parser(name)
    args = parser.parse_args(given)
    try:
        _check_options(args, root, is_paper=name == PAPER)
        return _make(root, name, args)
    except (OptionError, DataError) as error:
        parser.error(str(error))


def _make(root: Path, name: str, args: argparse.Namespace) -> int:
    if name == PAPER:
        from fairseq_plugins.runner import paper

        return paper.make(root, args)
    if args.srun:
        from fairseq_plugins.runner.interruption import hold_back_signals

        hold_back_signals()
    # Only now, because this imports PyTorch and fairseq, which takes seconds.
    from fairseq_plugins.runner import table_command

    return table_command.make(root, SCRIPTS[name], args)


def _check_options(args: argparse.Namespace, root: Path, *, is_paper: bool) -> None:
    """Check options that exclude each other, and set the folders that the options name.

    Raises OptionError naming the option.
    """
    # A paper's dry run also estimates jobs.
    slurm_options = {"max-running": args.max_running != 0, "jobs": is_paper and args.jobs != 1}
    for option, is_given in slurm_options.items():
        if is_given and not args.slurm and not (is_paper and args.dry_run):
            raise OptionError(f"`--{option}` must be left out without `--slurm`.")
    if is_paper:
        return
    for option, other in _EXCLUSIVE:
        if getattr(args, option, False) and getattr(args, other):
            words = (name.replace("_", "-") for name in (option, other))
            raise OptionError("`--{}` must be left out with `--{}`.".format(*words))
    if args.log and not any(map(is_installed, _TRACKERS[args.log])):
        raise OptionError(
            f"`--log {args.log}` needs {_TRACKERS[args.log][0]}, which is not installed; "
            f"{install_command('logging')} brings it."
        )
    apply_folder_options(args)
    if args.rerun:
        own = Path("results", LOCAL)
        if root_folder("results") not in (Path("results"), own):
            raise OptionError(
                f"`--results` and {FOLDER_VARIABLES['results']} must be left out with `--rerun`, "
                f"which writes to {own}, but are {root_folder('results')}."
            )
        set_folder("results", own)
        checkpoints = root_folder("checkpoints")
        start = checkpoints / "start" / "model.pt"  # prepared and not trained, so not below local
        if args.scale == "published" and args.start is None and (root / start).is_file():
            args.start = start
        # The checkpoints may be on another disk.
        set_folder("checkpoints", checkpoints / LOCAL)
