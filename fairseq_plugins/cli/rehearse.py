"""``fairseq-pe rehearse``: a rehearsal of the paper-scale trainings without GPUs."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.cli.table_options import TFLOPS
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.option_types import new_file, number, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import ROOT, add_folder_options, configs_folder
from fairseq_plugins.papers import PAPERS, TABLES

if TYPE_CHECKING:  # imports PyTorch, for which --help does not wait
    from fairseq_plugins.experiments.base import Scale
    from fairseq_plugins.experiments.planned import PlannedRun

_GPUS = 8
OUTPUT = Path("outputs", "rehearsal.md")


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = ",".join(name for tables in PAPERS.values() for name in tables)
    parser = Parser(
        prog="fairseq-pe rehearse",
        description="Compose every recipe of scale paper and build every model with the papers' "
        "vocabulary, without weights; write a page with parameters, tokens per update, "
        "memory per GPU and GPU-hours of each row, and the settings beside LRPE's Table 7.",
        epilog="`--train KIND` also trains a model of that kind here, in full precision with the "
        "papers' vocabulary, on the first lines of the paper's corpus or of the largest one of its "
        "kind below --data-root, else on generated text: two updates in several processes, a "
        "checkpoint, a third update from it in half as many, and the table's evaluation; what it "
        "took is added to the page.",
    )
    add = parser.add_argument
    tables, text = words("--tables", [*TABLES]), f"tables to rehearse (default: {names})"
    add("--tables", type=tables, default=names, metavar="A,B", help=text)
    text = "rows to rehearse (default: all rows of the tables)"
    known = sorted({row for table in TABLES.values() for row in table.row_names})
    add("--rows", type=words("--rows", known), metavar="A,B", help=text)
    text = f"speed of a GPU in 10^12 operations a second (default: {TFLOPS:g})"
    add("--tflops", type=float, default=TFLOPS, metavar="N", help=text)
    text = "kinds to train: lm, mlm, mt, separated by commas (default: none)"
    kinds = words("--train", ("lm", "mlm", "mt"))
    add("--train", type=kinds, default=(), metavar="KINDS", help=text)
    text = "processes of a training, 2 to 8 (default: as many as fit into the free memory)"
    add("--processes", type=number("--processes", 1), metavar="N", help=text)
    add_folder_options(parser, ["data", "checkpoints"])
    text = f"page to write (default: {OUTPUT})"
    add("--output", type=new_file, default=OUTPUT, metavar="FILE", help=text)
    return parser


def _run(args: argparse.Namespace) -> None:
    from fairseq_plugins.common.files import write_text
    from fairseq_plugins.runner import rehearsal, rehearsed_training
    from fairseq_plugins.runner.cost_estimates import check_rate, vocabulary_of

    check_rate(args.tflops)
    if lacking := [name for name in args.tables if "paper" not in _scales(name)]:
        raise OptionError(
            f"--tables must have a scale paper, but these have none: {', '.join(lacking)}"
        )
    trainings = [rehearsed_training.plan(ROOT, kind, args.processes) for kind in args.train]
    rehearsed, settings = {}, {}
    for name in args.tables:
        print(f"{name}: composing", flush=True)
        rows = _planned(name, args.rows)
        rehearsed[name] = [rehearsal.rehearse(ROOT, one, args.tflops) for one in rows]
        for one in rows:
            first = one.trainings[0]
            if first.variant.recipe in rehearsal.TABLE_7 and name in PAPERS["lrpe"]:
                vocabulary = vocabulary_of(ROOT, first.data)
                settings[first.variant.recipe] = rehearsal.compare_with_table_7(
                    first.variant.recipe, first, vocabulary
                )
        print(f"{name}: {len(rows)} models", flush=True)
    write_text(args.output, rehearsal.page(rehearsed, settings, args.tflops))
    print(f"Written: {args.output}")
    problems = [(name, one) for name, rows in rehearsed.items() for one in rows if one.problem]
    if problems:
        listed = "; ".join(f"{n} {one.row} under {one.attention}" for n, one in problems)
        raise WorkError(f"{len(problems)} models cannot be built: {listed}")
    heading = "\n## Trained on this machine, on a CPU\n"
    for training in trainings:
        took = rehearsed_training.train(ROOT, training)
        print(took, flush=True)
        with args.output.open("a", encoding="utf-8") as written:
            written.write(f"{heading}\n- {took}.\n")
        heading = ""


def _scales(name: str) -> "Mapping[str, Scale]":
    from fairseq_plugins.experiments import EXPERIMENTS

    return EXPERIMENTS[TABLES[name].experiment].scales


def _planned(name: str, rows: Sequence[str] | None) -> "list[PlannedRun]":
    """Plan the runs of a table at scale paper that train something, from one seed."""
    from fairseq_plugins.experiments.devices import Devices
    from fairseq_plugins.runner.plan import plan

    table = TABLES[name]
    own = [row for row in table.row_names if rows is None or row in rows]
    planned, _ = plan(
        configs_folder(ROOT),
        table,
        _scales(name)["paper"],
        Devices(_GPUS),
        rows=own,
    )
    return [one for one in planned if one.trainings]


main = command(get_parser, _run, quiet=True)
