"""How much of a training fits into a given time: pairs of runs, a seed each, until it is over."""

import math
from dataclasses import dataclass

RESERVE_SECONDS = 8.0  # at the end, for the page and the pictures
MARGIN = 0.85  # of the time, so that a machine that slows down keeps within it
FEWEST_UPDATES, MOST_UPDATES = 50, 3000
FEWEST_SEEDS, MOST_SEEDS = 3, 10


@dataclass(frozen=True)
class Speed:
    """Of a pair of runs side by side, measured in a trial.

    update: seconds of an update of the slower one. beside: seconds that a pair takes for all else,
    as loading and evaluation.
    """

    update: float
    beside: float

    def pair(self, updates: int) -> float:
        """Seconds that a pair takes."""
        return self.beside + updates * self.update


@dataclass(frozen=True)
class Share:
    """What a budget is spent on: so many seeds, so many updates in each run."""

    seeds: int
    updates: int


def share(seconds: float, speed: Speed, seeds: int) -> Share:
    """Split what is left of a budget; fewer seeds where runs would become too short.

    Raises:
        ValueError: the time is too short for three pairs, with the minutes that are needed.
    """
    usable = (seconds - RESERVE_SECONDS) * MARGIN
    for count in range(max(seeds, FEWEST_SEEDS), FEWEST_SEEDS - 1, -1):
        updates = math.floor((usable / count - speed.beside) / speed.update)
        if updates >= FEWEST_UPDATES * (2 if count > FEWEST_SEEDS else 1):
            return Share(count, min(updates, MOST_UPDATES))
    needed = FEWEST_SEEDS * speed.pair(FEWEST_UPDATES) / MARGIN + RESERVE_SECONDS
    raise ValueError(
        f"`--minutes` leaves {seconds:.0f} seconds for training, but {FEWEST_SEEDS} pairs of runs "
        f"of {FEWEST_UPDATES} updates take {needed:.0f} here."
    )


def fits_another(seconds: float, pairs: list[float], seeds: int) -> bool:
    """Whether another pair is to be run, with what is left of the budget.

    Args:
        seconds: left.
        pairs: that each pair so far took.
        seeds: that were planned; more are run where time is left.
    """
    if len(pairs) >= max(seeds, MOST_SEEDS):
        return False
    return not pairs or seconds - RESERVE_SECONDS > max(pairs)
