"""Numbers of seeds and updates that fit into a given time, for pairs of runs."""

import math
from dataclasses import dataclass

RESERVE_SECONDS = 8.0  # for the page and the figures at the end
MARGIN = 0.85  # share of the time that is planned, for a machine that slows down
FEWEST_UPDATES, MOST_UPDATES = 50, 3000
FEWEST_SEEDS, MOST_SEEDS = 3, 10


@dataclass(frozen=True)
class Speed:
    """Speed of a pair of runs side by side, measured in a trial.

    update: seconds of an update of the slower run. beside: seconds for all else, as loading and
    evaluation.
    """

    update: float
    beside: float

    def pair(self, updates: int) -> float:
        """Return the seconds of a pair."""
        return self.beside + updates * self.update


@dataclass(frozen=True)
class Share:
    """The seeds and the updates of each run that a time budget is spent on."""

    seeds: int
    updates: int


def share(seconds: float, speed: Speed, seeds: int) -> Share:
    """Split the remaining seconds; use fewer seeds if runs would become too short.

    Raises:
        ValueError: the time is too short for three pairs, with the seconds that are needed.
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
    """Tell whether the remaining time is enough for another pair.

    Args:
        seconds: remaining.
        pairs: seconds of each pair so far.
        seeds: planned number; more are run if time remains.
    """
    if len(pairs) >= max(seeds, MOST_SEEDS):
        return False
    return not pairs or seconds - RESERVE_SECONDS > max(pairs)
