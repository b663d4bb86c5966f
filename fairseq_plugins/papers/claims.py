"""Claims of papers, and the numbers that would confirm them."""

from dataclasses import dataclass
from typing import ClassVar, Literal

Side = Literal["above", "below"]
Number = tuple[str, str, str, str]  # table, metric, attention and row of a number
# Notes on claims that results decided only after a look at fewer seeds.
MORE_SEEDS = "At `mini` seeds were added to decide it, so the interval is somewhat too narrow."
TWO_LOOKS = "Pocock's correction for two looks (p < 0.029) would leave it undecided."
TIMINGS, RELATIVE_SPEED = "table9", "relative_speed"  # measured by benchmarks/, without training


@dataclass(frozen=True)
class Comparison:
    """The claim that the mean of some rows is above or below that of others."""

    table: str
    metric: str
    attention: str
    first: tuple[str, ...]  # rows
    second: tuple[str, ...]  # rows
    claimed: Side  # where `first` is
    by: float = 0.0  # minimum difference; a negative one allows so much on the other side
    relative: bool = False  # whether differences are in per cent
    of_every: bool = False  # whether the claim is about each row of `second`, not about their mean
    of_most: bool = False  # whether the claim is about more than half of the rows of `second`
    second_attention: str = ""  # if not that of `first`
    second_metric: str = ""  # if not `first`'s; both are then one row, each run a difference

    def __post_init__(self) -> None:
        if self.relative and (self.of_every or self.of_most):
            raise ValueError("relative must be false for claims about several rows, but is true.")

    @property
    def numbers(self) -> list[Number]:
        """The numbers that decide the claim, those of `first` before those of `second`."""
        metric = self.second_metric or self.metric
        attention = self.second_attention or self.attention
        first = [(self.table, self.metric, self.attention, row) for row in self.first]
        return [*first, *((self.table, metric, attention, row) for row in self.second)]


@dataclass(frozen=True)
class Correlation:
    """The claim that two metrics correlate positively (`above`) or negatively (`below`).

    of, with_: table and metric of each. rows: to correlate over, those that both tables have.
    """

    of: tuple[str, str]
    with_: tuple[str, str]
    attention: str
    rows: tuple[str, ...]
    claimed: Side

    @property
    def numbers(self) -> list[Number]:
        return [(*of, self.attention, row) for of in (self.of, self.with_) for row in self.rows]


@dataclass(frozen=True)
class Speed:
    """The claim that rows train on average at least at a speed relative to Base (Table 9).

    at_least: that speed. printed: the paper's number.
    """

    attention: str
    rows: tuple[str, ...]
    at_least: float
    printed: float

    @property
    def numbers(self) -> list[Number]:
        return [(TIMINGS, RELATIVE_SPEED, self.attention, row) for row in self.rows]


@dataclass(frozen=True)
class Threshold:
    """The claim that each of some rows is above or below a number.

    value: a fixed number, or the name of a trivial baseline.
    """

    table: str
    metric: str
    attention: str
    rows: tuple[str, ...]
    value: float | str
    claimed: Side

    @property
    def numbers(self) -> list[Number]:
        return [(self.table, self.metric, self.attention, row) for row in self.rows]


@dataclass(frozen=True)
class Computed:
    """A claim of mathematics: a function of `analysis.theory` decides it, without any model.

    check: its name in `analysis.theory.CHECKS`.
    """

    check: str
    numbers: ClassVar[list[Number]] = []


Evidence = Comparison | Correlation | Speed | Threshold | Computed


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that numbers can confirm or contradict."""

    paper: str
    name: str  # unique
    place: str  # section, table or figure
    text: str  # paraphrased
    evidence: Evidence
    mismatch: str = ""  # how the paper's own numbers contradict the claim
    note: str = ""  # further remarks for the reader


def computed(paper: str, check: str, place: str, text: str) -> Claim:
    """Return a claim of mathematics; `check` is its name in `analysis.theory.CHECKS`."""
    return Claim(paper, check.replace("_", "-"), place, text, Computed(check))


@dataclass(frozen=True)
class Unjudged:
    """A statement of a paper without a verdict, and the reason."""

    paper: str
    place: str
    text: str
    reason: str
