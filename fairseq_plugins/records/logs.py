"""What fairseq says in its logs, as numbers."""

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
# What makes a page says last, before the page's path: a table's runner, and Table 9's.
THE_PAGE = "The whole table: "
_PAGE_IS_MADE = (THE_PAGE, "written: ")
MOST_POINTS = 40  # of a curve that is kept
_COUNTS = ("num_updates", "wall")  # ends of the keys of what is always finite
CURVE_DIGITS = 5  # that count
_EVALUATED = re.compile(r"Loss \(base 2\): (\S+), Perplexity: ")


@dataclass(frozen=True)
class Measured:
    """One statistics line of a training: updates so far, base-2 loss, tokens per second."""

    updates: int
    loss: float
    tokens_per_second: float


def read_statistics(line: str) -> dict[str, Any] | None:
    """The JSON object of a line of `log_format: json`; None for any other line."""
    start = line.find("{")
    if start < 0 or not line.rstrip().endswith("}"):
        return None
    try:
        found = json.loads(line[start:])
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def read_numbers(line: str, *keys: str) -> tuple[float, ...] | None:
    """Read the numbers under these keys of a line of statistics; None where one is absent or none.

    A loss may be infinite, as that of a training that diverged; updates and seconds may not.
    """
    found = read_statistics(line)
    if not found or not {*keys} <= found.keys():
        return None
    try:
        numbers = tuple(float(found[key]) for key in keys)
    except (TypeError, ValueError, OverflowError):
        return None
    counts = (n for key, n in zip(keys, numbers, strict=True) if key.endswith(_COUNTS))
    return numbers if all(map(math.isfinite, counts)) else None


def read_training(line: str) -> Measured | None:
    """The numbers of a mid-epoch training line; None for any other line."""
    found = read_numbers(line, "num_updates", "loss", "wps")
    return Measured(int(found[0]), found[1], found[2]) if found else None


@dataclass(frozen=True)
class TrainingLog:
    """A whole training.

    updates: of its last line. tokens_per_second: the median over its lines, which neither
    start-up nor validation nor a pause touches; None where it was too short to have any.
    """

    parameters: int | None
    updates: int | None
    tokens_per_second: float | None


def read_losses(path: Path) -> dict[int, float]:
    """The base-2 loss by updates, of every line that a training printed within an epoch."""
    found = (read_training(line) for line in _lines(path))
    return {one.updates: one.loss for one in found if one is not None}


def read_training_log(path: Path) -> TrainingLog:
    """Read train.log, which holds all stretches of a run that was cut off."""
    parameters, updates, speeds = None, None, []
    for line in _lines(path):
        if found := _PARAMETERS.search(line):
            parameters = int(found[1].replace(",", ""))
            continue
        for key in ("num_updates", "train_num_updates", "valid_num_updates"):
            if count := read_numbers(line, key):
                updates = int(count[0])
        if measured := read_training(line):
            speeds.append(measured.tokens_per_second)
    return TrainingLog(parameters, updates, statistics.median(speeds) if speeds else None)


def read_devices(path: Path) -> int | None:
    """On how many devices the last stretch of a training was; None where its log does not say."""
    if not path.is_file():
        return None
    found = [match[1] for line in _lines(path) if (match := _DEVICES.search(line))]
    return int(found[-1]) if found else None


def read_evaluation_loss(path: Path) -> float:
    """The base-2 loss per token that fairseq-eval-lm printed last.

    Raises:
        ValueError: where it printed none or no finite one.
    """
    found = [match[1] for line in _lines(path) if (match := _EVALUATED.search(line))]
    return _last_loss(found, "fairseq-eval-lm", "evaluated")


def read_validation_loss(path: Path) -> float:
    """The base-2 loss per token, without label smoothing, that fairseq-validate printed last.

    Raises:
        ValueError: where it printed none or no finite one.
    """
    found = [
        measured["valid_nll_loss"]
        for line in _lines(path)
        if "valid_nll_loss" in (measured := read_statistics(line) or {})
    ]
    return _last_loss(found, "fairseq-validate", "validation")


def _last_loss(found: Sequence[str], command: str, what: str) -> float:
    """The last loss that a command printed, which has to be a finite number."""
    if not found:
        raise ValueError(f"{command} printed no loss")
    loss = float(found[-1])
    if not math.isfinite(loss):
        raise ValueError(f"the {what} loss is {loss}")
    return loss


def read_validations(path: Path) -> list[tuple[int, float]]:
    """(updates, base-2 loss) of every validation of a training, by updates.

    A run that was cut off validates again where it goes on: the later line counts.
    """
    found = read_validated(path, ("loss",))
    return sorted((updates, numbers["loss"]) for updates, numbers in found.items())


def read_validated(path: Path, names: Sequence[str]) -> dict[int, dict[str, float]]:
    """Named statistics of every validation of a training, by updates.

    A run that was cut off validates again where it goes on: the later line counts.
    """
    found = {}
    for line in _lines(path):
        measured = read_numbers(line, "valid_num_updates", *(f"valid_{name}" for name in names))
        if measured and all(map(math.isfinite, measured)):
            found[int(measured[0])] = dict(zip(names, measured[1:], strict=True))
    return found


def read_curves(path: Path) -> dict[str, list[list[float]]]:
    """Pairs of updates and loss of a training, `MOST_POINTS` of each kind at most.

    Returns:
        Under "train" the losses within epochs, under "valid" those of validations; without what
        the log has none of, and without what is not finite.
    """
    train = [(n, v) for n, v in sorted(read_losses(path).items()) if math.isfinite(v)]
    found = {"train": train, "valid": read_validations(path)}
    return {kind: _thinned(points) for kind, points in found.items() if points}


def _thinned(points: list[tuple[int, float]]) -> list[list[float]]:
    """As many as are kept, evenly, the first and the last one among them."""
    count = min(len(points), MOST_POINTS)
    places = [round(i * (len(points) - 1) / max(1, count - 1)) for i in range(count)]
    return [[points[i][0], float(f"{points[i][1]:.{CURVE_DIGITS}g}")] for i in places]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a command printed last, from the beginning of a line on.

    Raises:
        ValueError: where it printed none.
    """
    text = path.read_text(errors="replace")
    for start in reversed([match.start() for match in _OBJECT.finditer(text)]):
        try:
            found, _ = json.JSONDecoder().raw_decode(text, start)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict):
            return found
    raise ValueError("the command printed no JSON object")


def last_lines(path: Path, count: int = 8) -> list[str]:
    """The last lines of a log that say something."""
    if not path.exists():
        return []
    return [line.rstrip() for line in _lines(path) if line.strip()][-count:]


def says_page(path: Path) -> bool:
    """Whether the log of what was to make a page ends by saying where it is."""
    return any(line.startswith(_PAGE_IS_MADE) for line in last_lines(path))


def _lines(path: Path) -> Iterable[str]:
    with path.open(errors="replace") as log:
        yield from log
