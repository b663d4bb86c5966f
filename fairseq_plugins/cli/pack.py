"""``fairseq-pe pack``: trained models to download, each with a model card."""

import argparse
import itertools
from pathlib import Path

from fairseq_plugins.common.errors import checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import new_folder, seeds, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, add_folder_options, configs_folder
from fairseq_plugins.papers import SCALE_NAMES, TABLES
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.records.runs import Run

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
    text = "table of the models (default: table2)"
    add("--table", default="table2", choices=sorted(TABLES), metavar="NAME", help=text)
    add("--scale", default="mini", choices=SCALE_NAMES, help="scale of the models (default: mini)")
    default = "rope,lrpe_type2,none"
    text = f"rows to pack (default: {default})"
    add("--rows", type=words("--rows"), default=default, metavar="A,B", help=text)
    default = ",".join(ATTENTIONS)
    kinds = words("--attention")
    text = f"attentions to pack (default: {default})"
    add("--attention", type=kinds, default=default, metavar="A,B", help=text)
    add("--seeds", type=seeds, default="1", metavar="N,N", help="seeds to pack (default: 1)")
    text = f"folder of the packed models (default: {OUTPUT})"
    add("--output", type=new_folder, default=OUTPUT, metavar="DIR", help=text)
    add_folder_options(parser)
    return parser


def _run(args: argparse.Namespace) -> None:
    from fairseq_plugins.experiments.rows import check_rows
    from fairseq_plugins.runner import packing
    from fairseq_plugins.runner.launcher import get_launchers

    rows = check_rows(TABLES[args.table], configs_folder(ROOT), args.rows)
    must = "have usable checkpoints"
    with checkpoint_given_by("--rows", must), get_launchers(ROOT, 0, [{}]) as (launcher,):
        cells = itertools.product(rows, args.attention, args.seeds)
        planned = [packing.plan_pack(ROOT, Run(args.table, args.scale, *cell)) for cell in cells]
        for one in planned:
            packed = packing.pack(ROOT, one, args.output.absolute(), launcher, print)
            print(f"Written: {packed} ({packed.stat().st_size / 1e6:.1f} MB)", flush=True)


main = command(get_parser, _run, quiet=True)
