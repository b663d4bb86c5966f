"""Seeds, updates and model size that fit into a given time, and the stop of late rounds.

A round is one training of every encoding from one seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from fairseq_plugins.runner.interruption import Interruption

RESERVE_SECONDS = 8.0  # for the page and the figures at the end
MARGIN = 0.85  # planned share of the time; the rest is for a machine that slows down
PATIENCE = 2.0  # times its planned time that a first round takes before it can be late
FEWEST_UPDATES, MOST_UPDATES = 50, 3000
FEWEST_SEEDS, MOST_SEEDS = 3, 10
PILOT_UPDATES = 20
SMALL_COST = 0.4  # an update of the small model, relative to one of the usual model


@dataclass(frozen=True)
class Settings:
    """Settings that all runs of a comparison share.

    is_small: whether the model has one layer in place of two, and half the batch.
    """

    updates: int
    is_small: bool = False


PILOT = Settings(PILOT_UPDATES)


@dataclass(frozen=True)
class Speed:
    """Seconds of one update of every run, and seconds beside (loading, evaluation), of a round."""

    update: float
    beside: float

    def seconds(self, settings: Settings) -> float:
        """Return the seconds of a round."""
        cost = SMALL_COST if settings.is_small else 1.0
        return self.beside + settings.updates * self.update * cost

    def times(self, factor: float) -> "Speed":
        """Return the speed on a machine that is slower by this factor."""
        return Speed(self.update * factor, self.beside * factor)


@dataclass(frozen=True)
class Plan:
    """Settings of the runs and the number of rounds planned with them."""

    settings: Settings
    seeds: int


def plan_rounds(seconds: float, speed: Speed, seeds: int) -> Plan:
    """Plan the rounds of the remaining seconds, after a pilot round.

    Of these the first that fits: rounds of the usual model; rounds of the small model; the pilot,
    which is seed 1, and more rounds like it; the pilot alone.

    seconds: remaining. speed: of the pilot. seeds: wanted number; where runs would become too
    short, fewer, but at least `FEWEST_SEEDS`.
    """
    usable = (seconds - RESERVE_SECONDS) * MARGIN
    for settings in (Settings(1), Settings(1, is_small=True)):
        update = speed.seconds(settings) - speed.beside
        for count in range(max(seeds, FEWEST_SEEDS), FEWEST_SEEDS - 1, -1):
            updates = math.floor((usable / count - speed.beside) / update)
            if updates >= FEWEST_UPDATES * (2 if count > FEWEST_SEEDS else 1):
                return Plan(replace(settings, updates=min(updates, MOST_UPDATES)), count)
    more = max(0, math.floor(usable / speed.seconds(PILOT)))
    return Plan(PILOT, min(1 + more, max(seeds, FEWEST_SEEDS)))


def fits_another(seconds: float, rounds: list[float], seeds: int) -> bool:
    """Return whether the remaining seconds are enough for another round.

    More than the planned `seeds` are run if time remains. rounds: seconds of each round so far.
    """
    if len(rounds) >= max(seeds, MOST_SEEDS):
        return False
    return seconds - RESERVE_SECONDS > max(rounds)


class TooSlow(KeyboardInterrupt):
    """Stop of a round that would take more than the remaining time."""


class Watch(Interruption):
    """An interruption that also stops late rounds.

    is_late: called at every check; None between rounds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_late: Callable[[], bool] | None = None

    def check(self, *, is_saving: bool = False) -> None:
        """Raise KeyboardInterrupt if a stop was requested, TooSlow if the round is late."""
        super().check(is_saving=is_saving)
        if self.is_late is not None and self.is_late():
            raise TooSlow

    def reset(self) -> None:
        """Forget the stop of a late round."""
        self._kind, self.is_late = None, None
