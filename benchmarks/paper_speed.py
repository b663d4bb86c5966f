"""Tokens per second of Table 2's training at scale paper, over a minute.

    python -m benchmarks.paper_speed --row lrpe_type2 --attention linear

Uses the table's recipe on a generated corpus with as many words as the paper's dictionary: speed
depends on sizes alone.
"""

import argparse
import functools
import sys
import tempfile
from pathlib import Path

from benchmarks.context import ROOT, Settings, add_options, check_device, context_of
from benchmarks.record import Result, record
from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.papers.tables import ATTENTIONS

RECIPE = "wikitext103_lm"


# Scale of the recipe; symbols, with fairseq's four; tokens of the text; seconds with the start.
PAPER = {"scale": "paper", "dictionary": 267_744, "tokens": 4_000_000, "seconds": 75.0}
QUICK = {"scale": "toy", "dictionary": 100, "tokens": 20_000, "seconds": 5.0}


def write_corpus(folder: Path, dictionary: int, tokens: int) -> None:
    """Write a binarised corpus of random words with frequencies 1 / rank."""
    import torch
    from fairseq.data import indexed_dataset

    words = dictionary - len(SPECIAL_SYMBOLS)
    names = "".join(f"w{i} {dictionary - i}\n" for i in range(words))
    (folder / "dict.txt").write_text(names, encoding="utf-8")
    generator = torch.Generator().manual_seed(1)
    shares = 1 / torch.arange(1, words + 1, dtype=torch.float64)
    for split, size in (("train", tokens), ("valid", 1000)):
        ids = torch.multinomial(shares, size, replacement=True, generator=generator)
        file = folder / f"{split}.bin"
        builder = indexed_dataset.make_builder(str(file), impl="mmap", vocab_size=dictionary)
        for line in (ids + len(SPECIAL_SYMBOLS)).split(25):
            builder.add_item(line.int())
        builder.finalize(str(file.with_suffix(".idx")))


def measure(row: str, attention: str, sizes: Settings) -> Result:
    """Train for a while, without checkpoints; return speed, updates and parameters.

    Raises:
        WorkError: the training failed; the message has the end of its log.
    """
    from fairseq_plugins.experiments.training import train_command
    from fairseq_plugins.records.logs import read_training_log
    from fairseq_plugins.runner.commands import executable
    from fairseq_plugins.runner.launcher import ProcessLauncher

    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name, "train.log")
        write_corpus(folder, sizes["dictionary"], sizes["tokens"])
        overrides = [
            f"model={row}",
            f"scale={sizes['scale']}",
            f"model.attention_type={attention}",
            "run=local",
            f"task.data={folder}",
            f"checkpoint.save_dir={folder}/checkpoints",
            "checkpoint.no_save=true",
            "dataset.disable_validation=true",
            "optimization.max_update=1000000",
            f"optimization.stop_time_hours={sizes['seconds'] / 3600:.6f}",
            "common.log_interval=1",
        ]
        words = executable(train_command(RECIPE, overrides))
        if ProcessLauncher(ROOT)(words, log, lambda lines: None):
            raise WorkError(f"the training failed:\n{log.read_text(errors='replace')[-3000:]}")
        found = read_training_log(log)
    if not found.tokens_per_second:  # fairseq measures from the end of the first update on
        raise WorkError(f"less than two updates were done in {sizes['seconds']:g} seconds")
    names = ("tokens_per_second", "updates", "parameters")
    return {"metrics": {name: getattr(found, name) for name in names}}


def get_parser() -> Parser:
    """Build the parser of the command line."""
    parser = Parser(prog="python -m benchmarks.paper_speed", description=__doc__)
    add_options(parser)
    add = parser.add_argument
    add("--row", default="base", metavar="ROW", help="a row of Table 2 (default: base)")
    add("--attention", choices=ATTENTIONS, default="linear", help="(default: linear)")
    add("--quick", action="store_true", help="seconds at scale toy on a CPU")
    return parser


def run(args: argparse.Namespace) -> None:
    """Measure a row and write its JSON.

    Raises:
        ValueError: an unknown row, or there is no GPU.
        WorkError: the training failed.
    """
    if not (ROOT / "configs" / "model" / f"{args.row}.yaml").is_file():
        raise ValueError(f"`--row` must be a file of configs/model, but is {args.row!r}.")
    args.device = "cpu" if args.quick else "gpu"
    check_device(args.device)
    sizes, context = QUICK if args.quick else PAPER, context_of(args)
    fields = {
        "benchmark": "paper_speed",
        "device": context.name,
        "row": args.row,
        "attention": args.attention,
        "settings": {**sizes, "recipe": RECIPE, "corpus": "generated, words 1 / rank"},
    }
    path = context.folder / "paper_speed" / f"{args.row}-{args.attention}.json"
    work = functools.partial(measure, args.row, args.attention, sizes)
    metrics = record(path, fields, work, context.command, context.gpus)["metrics"]
    speed, updates = metrics["tokens_per_second"], metrics["updates"]
    print(f"{args.row}, {args.attention}: {speed:,.0f} tokens per second over {updates} updates")


main = command(get_parser, run, quiet=True)

if __name__ == "__main__":
    sys.exit(main())
