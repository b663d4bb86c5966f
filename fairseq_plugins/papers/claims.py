"""What a claim of a paper is: where it is made, and which numbers would confirm it."""

from dataclasses import dataclass
from typing import Literal

Side = Literal["above", "below"]


@dataclass(frozen=True)
class Comparison:
    """That some rows of a table are above or below others in a metric, by their means.

    Attributes:
        first, second: names of rows; a group counts by the mean of its rows.
        claimed: where `first` is, seen from `second`.
        by: at least so much; below zero, that it is at most so much on the other side.
        relative: differences are ratios, in per cent.
        of_every: `second` is not a group: it is claimed of each of its rows.
        second_attention: where it is not that of `first`.
        second_metric: likewise.
    """

    table: str
    metric: str
    attention: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    claimed: Side
    by: float = 0.0
    relative: bool = False
    of_every: bool = False
    second_attention: str = ""
    second_metric: str = ""


@dataclass(frozen=True)
class Correlation:
    """That a property and a performance rise together (`above`) or against each other.

    of, with_: table and metric of each; over the rows that both have, among `rows`.
    """

    of: tuple[str, str]
    with_: tuple[str, str]
    attention: str
    rows: tuple[str, ...]
    claimed: Side


@dataclass(frozen=True)
class Speed:
    """That training with some rows is at least so fast, as a share of Base's speed, on average.

    Decided by Table 9. printed: the paper's number.
    """

    attention: str
    rows: tuple[str, ...]
    at_least: float
    printed: float


@dataclass(frozen=True)
class Floor:
    """That a row is above or below what needs no model of ours, by its name on the pages."""

    table: str
    metric: str
    attention: str
    row: str
    floor: str
    claimed: Side


Evidence = Comparison | Correlation | Speed | Floor


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper that numbers can confirm or contradict.

    Attributes:
        name: unique.
        place: section, table or figure.
        text: what is claimed, in our words.
        mismatch: where the paper's own printed numbers say otherwise, how; else empty.
        note: what else a reader should know.
    """

    name: str
    paper: str
    place: str
    text: str
    evidence: Evidence
    mismatch: str = ""
    note: str = ""
