"""Numbers read from the logs of fairseq and other commands."""

import json
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_OBJECT = re.compile(r"^\{", re.MULTILINE)
_DEVICES = re.compile(r"training on (\d+) devices")
# One of these precedes the path of a page, at the end of the command that writes it.
PAGE_PREFIX = "The whole table: "
_PAGE_IS_MADE = (PAGE_PREFIX, "written: ")
MOST_POINTS = 40  # of a recorded curve
SHOWN_LINES = 8  # of a failed command's log
_COUNTS = ("num_updates", "wall")  # ends of keys whose numbers must be finite
CURVE_DIGITS = 5  # significant digits
_EVALUATED = re.compile(r"Loss \(base 2\): (\S+), Perplexity: ")


@dataclass(frozen=True)
class Measured:
    """One statistics line of a training: updates so far, base-2 loss, tokens per second."""

    updates: int
    loss: float
    tokens_per_second: float


def read_statistics(line: str) -> dict[str, Any] | None:
    """Parse a line of `log_format: json`; None for any other line."""
    start = line.find("{")
    if start < 0 or not line.rstrip().endswith("}"):
        return None
    try:
        fields = json.loads(line[start:])
    except json.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def read_numbers(line: str, *keys: str) -> tuple[float, ...] | None:
    """Read the numbers of these keys from a line of statistics; None if one is missing or invalid.

    A loss may be infinite, as of a diverged training; updates and seconds may not.
    """
    fields = read_statistics(line)
    if not fields or not {*keys} <= fields.keys():
        return None
    try:
        numbers = tuple(float(fields[key]) for key in keys)
    except (TypeError, ValueError, OverflowError):
        return None
    counts = (n for key, n in zip(keys, numbers, strict=True) if key.endswith(_COUNTS))
    return numbers if all(map(math.isfinite, counts)) else None


def read_training(line: str) -> Measured | None:
    """Read a training line within an epoch; None for any other line."""
    numbers = read_numbers(line, "num_updates", "loss", "wps")
    return Measured(int(numbers[0]), numbers[1], numbers[2]) if numbers else None


@dataclass(frozen=True)
class TrainingLog:
    """Numbers of a whole training.

    updates: of its last line. tokens_per_second: the median over its lines, without start-up,
    validation and pauses; None if it was too short to print one.
    """

    parameters: int | None
    updates: int | None
    tokens_per_second: float | None


def read_losses(path: Path) -> dict[int, float]:
    """Read the base-2 loss by updates from all training lines within epochs."""
    lines = (read_training(line) for line in _lines(path))
    return {one.updates: one.loss for one in lines if one is not None}


def read_training_log(path: Path) -> TrainingLog:
    """Read train.log, which has the output of all processes of a resumed training."""
    parameters, updates, speeds = None, None, []
    for line in _lines(path):
        if match := _PARAMETERS.search(line):
            parameters = int(match[1].replace(",", ""))
            continue
        for key in ("num_updates", "train_num_updates", "valid_num_updates"):
            if count := read_numbers(line, key):
                updates = int(count[0])
        if measured := read_training(line):
            speeds.append(measured.tokens_per_second)
    return TrainingLog(parameters, updates, statistics.median(speeds) if speeds else None)


def read_devices(path: Path) -> int | None:
    """Read how many devices the last process of a training used; None if the log lacks it."""
    if not path.is_file():
        return None
    counts = _DEVICES.findall(path.read_text(errors="replace"))
    return int(counts[-1]) if counts else None


def read_evaluation_loss(path: Path) -> float:
    """Read the last base-2 loss per token that fairseq-eval-lm printed.

    Raises ValueError: there is none, or it is not finite.
    """
    losses = _EVALUATED.findall(path.read_text(errors="replace"))
    return _last_loss(losses, "fairseq-eval-lm", "evaluated")


def read_validation_loss(path: Path) -> float:
    """Read the last base-2 loss per token, without label smoothing, of fairseq-validate.

    Raises ValueError: there is none, or it is not finite.
    """
    losses = [
        measured["valid_nll_loss"]
        for line in _lines(path)
        if "valid_nll_loss" in (measured := read_statistics(line) or {})
    ]
    return _last_loss(losses, "fairseq-validate", "validation")


def _last_loss(losses: Sequence[str], command: str, what: str) -> float:
    """Return the last loss that a command printed, a finite number."""
    if not losses:
        raise ValueError(f"{command} printed no loss")
    loss = float(losses[-1])
    if not math.isfinite(loss):
        raise ValueError(f"the {what} loss is {loss}")
    return loss


def read_validations(path: Path) -> list[tuple[int, float]]:
    """Read (updates, base-2 loss) of every validation of a training, by updates.

    A resumed training may validate again; the later line counts.
    """
    validations = read_validated(path, ("loss",))
    return sorted((updates, numbers["loss"]) for updates, numbers in validations.items())


def read_validated(path: Path, names: Sequence[str]) -> dict[int, dict[str, float]]:
    """Read named statistics of every validation of a training, by updates.

    A resumed training may validate again; the later line counts.
    """
    validations = {}
    for line in _lines(path):
        measured = read_numbers(line, "valid_num_updates", *(f"valid_{name}" for name in names))
        if measured and all(map(math.isfinite, measured)):
            validations[int(measured[0])] = dict(zip(names, measured[1:], strict=True))
    return validations


def read_curves(path: Path) -> dict[str, list[list[float]]]:
    """Read the curves of a training, at most `MOST_POINTS` pairs of updates and loss each.

    Returns:
        "train", the losses within epochs, and "valid", those of validations; a curve without
        finite points is left out.
    """
    train = [(n, v) for n, v in sorted(read_losses(path).items()) if math.isfinite(v)]
    curves = {"train": train, "valid": read_validations(path)}
    return {kind: _thinned(points) for kind, points in curves.items() if points}


def _thinned(points: list[tuple[int, float]]) -> list[list[float]]:
    """Select evenly spaced points, including the first and the last."""
    count = min(len(points), MOST_POINTS)
    indices = [round(i * (len(points) - 1) / max(1, count - 1)) for i in range(count)]
    return [[points[i][0], float(f"{points[i][1]:.{CURVE_DIGITS}g}")] for i in indices]


def read_json(path: Path) -> dict[str, Any]:
    """Read the last JSON object that a command printed, from the beginning of a line.

    Raises ValueError: there is none.
    """
    text = path.read_text(errors="replace")
    for start in reversed([match.start() for match in _OBJECT.finditer(text)]):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict):
            return value
    raise ValueError("the command printed no JSON object")


def last_lines(path: Path) -> list[str]:
    """Return the last `SHOWN_LINES` lines of a log that are not blank."""
    if not path.exists():
        return []
    return [line.rstrip() for line in _lines(path) if line.strip()][-SHOWN_LINES:]


def names_page(path: Path) -> bool:
    """Return whether a log ends with the path of a written page."""
    return any(line.startswith(_PAGE_IS_MADE) for line in last_lines(path))


def _lines(path: Path) -> Iterable[str]:
    with path.open(errors="replace") as log:
        yield from log
