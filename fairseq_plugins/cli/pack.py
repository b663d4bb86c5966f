"""``fairseq-pe pack``: trained models to download, each with a model card."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import (
    ROOT,
    add_folder_options,
    apply_folder_options,
    configs_folder,
)
from fairseq_plugins.common.seeds import parse_seed
from fairseq_plugins.papers import SCALE_NAMES, TABLES
from fairseq_plugins.papers.tables import ATTENTIONS

OUTPUT = Path("dist", "models")


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe pack",
        description="Pack trained checkpoints for others: the weights without the optimizer, the "
        "dictionary, the result, and a card with settings, data, commit, numbers, licence and the "
        "commands that measure them. A model whose numbers are not those of its result is refused.",
    )
    add = parser.add_argument
    add("--table", default="table2", choices=sorted(TABLES), metavar="NAME", help="(table2)")
    add("--scale", default="mini", choices=SCALE_NAMES, help="(default: mini)")
    add("--rows", default="rope,lrpe_type2,none", metavar="A,B", help="(rope,lrpe_type2,none)")
    add("--attention", default=",".join(ATTENTIONS), metavar="A,B", help="(linear,vanilla)")
    add("--seeds", default="1", metavar="N,N", help="(default: 1)")
    text = f"folder of the packed models (default: {OUTPUT})"
    add("--output", type=Path, default=OUTPUT, metavar="DIR", help=text)
    add_folder_options(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Pack; return the exit status."""
    args = get_parser().parse_args(argv)
    apply_folder_options(args)
    logging.disable(logging.INFO)  # libraries log; this program prints
    return exit_status(args.program, lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    from fairseq_plugins.experiments.rows import check_rows
    from fairseq_plugins.runner import packing
    from fairseq_plugins.runner.launcher import get_launchers

    table = TABLES[args.table]
    rows = check_rows(table, configs_folder(ROOT), args.rows.split(","))
    attentions = args.attention.split(",")
    if unknown := {*attentions} - {*table.attentions}:
        raise OptionError(
            f"--attention must be among {', '.join(table.attentions)}, but has {min(unknown)}"
        )
    try:
        seeds = [parse_seed(word) for word in args.seeds.split(",")]
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"--seeds: {error}") from None
    output = args.output.absolute()
    with get_launchers(ROOT, 0, [{}]) as (launcher,):
        for run in packing.runs_of(args.table, args.scale, rows, attentions, seeds):
            packed = packing.pack(ROOT, run, output, launcher, print)
            print(f"Written: {packed} ({packed.stat().st_size / 1e6:.1f} MB)", flush=True)
