"""SQuAD answers of a checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils as fairseq_utils

import fairseq_plugins.registration  # noqa: F401  (classes that checkpoints name)
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.progress import track
from fairseq_plugins.common.vocabulary import ROBERTA_TABLE, Vocabulary, check_vocabulary
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import build_trained, choose_device, read_trained
from fairseq_plugins.squad.dataset import load_windows
from fairseq_plugins.squad.examples import read_squad
from fairseq_plugins.squad.folder import SPLITS, raw_path, read_description
from fairseq_plugins.squad.predictions import Logits, Prediction, SearchOptions, predict_file


def predict(
    checkpoint: Path,
    data: Path,
    subset: str,
    options: SearchOptions,
    *,
    batch_size: int = 16,
    cpu: bool = False,
) -> dict[str, Prediction]:
    """Answer the questions of `subset` ("train" or "valid") of a prepared folder, by their ids.

    Raises:
        ValueError: folder or checkpoint are missing, damaged or do not fit.
    """
    check_at_least(1, batch_size=batch_size)
    if subset not in SPLITS:
        raise OptionError(f"--subset must be one of {', '.join(SPLITS)}, but is {subset}")
    version = read_description(data)["request"]["version"]
    state = read_trained(checkpoint, models=[ROBERTA], tasks=["squad"])
    check_vocabulary(checkpoint, state, Vocabulary.read(data / "dict.txt", ROBERTA_TABLE))
    squad = read_squad(raw_path(data, subset), version)
    model, _, task = build_trained(checkpoint, state, data)
    windows, features = load_windows(data, subset, task.source_dictionary)
    longest, limit = int(windows.sizes[0].max()), model.max_positions()
    if longest > limit:
        raise DataError(
            f"{data} must have windows of at most {limit} tokens, the model's maximum, but has one "
            f"of {longest}"
        )
    device = choose_device(cpu=cpu)
    logits = window_logits(model.to(device), windows, task.cfg.span_head_name, batch_size, device)
    return dict(predict_file(squad, features, logits, options))


def window_logits(
    model: Any, windows: Any, head: str, batch_size: int, device: torch.device
) -> Iterator[Logits]:
    """Yield the logits (T, 2) float32 of every window in order, without padding.

    Windows of similar length are batched, to save padding.
    """
    lengths = np.asarray(windows.sizes[0])
    by_length = np.argsort(lengths, kind="stable")
    found: list[Logits] = [np.empty((0, 2), np.float32)] * len(lengths)
    for first in track(range(0, len(lengths), batch_size), "predicting", unit="batches"):
        rows = [int(row) for row in by_length[first : first + batch_size]]
        batch = windows.collater([windows[i] for i in rows])
        inputs = batch["net_input"]
        if device.type == "cuda":
            inputs = fairseq_utils.move_to_cuda(inputs)
        with torch.inference_mode():
            logits, _ = model(**inputs, span_head_name=head)
        for row, scores in zip(rows, logits.float().cpu().numpy(), strict=True):
            found[row] = scores[: lengths[row]].copy()
    yield from found
