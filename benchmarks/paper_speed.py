"""Tokens per second of Table 2's training at scale paper, for a minute each.

Uses the table's recipe on a generated corpus with as many words as the paper's dictionary: speed
depends on sizes alone.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from fairseq.data import indexed_dataset

from benchmarks.context import ROOT, Context, Settings
from benchmarks.record import Found
from benchmarks.runner import Case
from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS
from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.experiments.training import train_command
from fairseq_plugins.records.logs import read_training_log
from fairseq_plugins.runner.launcher import ProcessLauncher, run_command

# Rows of Table 2, with their attention.
ROWS = ("base vanilla", "base linear", "lrpe_type2 linear")


def write_corpus(folder: Path, dictionary: int, tokens: int) -> None:
    """Write a binarised corpus of random words with frequencies 1 / rank."""
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


def paper_speed(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Train each row for a while, without checkpoints.

    Raises:
        WorkError: a training failed; the message has the end of its log.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, settings["dictionary"], settings["tokens"])
        for row in settings["rows"]:
            encoding, attention = row.split()
            overrides = [
                f"model={encoding}",
                f"scale={settings['scale']}",
                f"model.attention_type={attention}",
                "run=local",
                f"task.data={folder}",
                f"checkpoint.save_dir={folder}/checkpoints",
                "checkpoint.no_save=true",
                "dataset.disable_validation=true",
                f"optimization.max_update={settings['updates']}",
                f"optimization.stop_time_hours={settings['seconds'] / 3600:.6f}",
                "common.log_interval=1",
            ]
            log = folder / f"{encoding}-{attention}.log"
            run_command(ProcessLauncher(ROOT), train_command(settings["recipe"], overrides), log)
            training = read_training_log(log)
            speed = training.tokens_per_second  # from the end of the first update on
            if not speed:
                raise WorkError(f"{row}: fewer than two updates in {settings['seconds']:g} s")
            found.values[f"{row}, tokens per second"] = speed
            found.values[f"{row}, updates"] = training.updates or 0
            found.values[f"{row}, parameters"] = training.parameters or 0
            context.say(f"  {row}: {speed:,.0f} tokens per second")
    yield Case()
