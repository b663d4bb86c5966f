"""Seeds, updates and model size that fit into a given time, and the rounds that use it.

A round is one training of every encoding from one seed.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairseq_plugins.runner.interruption import TooSlow

if TYPE_CHECKING:
    from fairseq_plugins.runner.text_comparison import TextRounds

Clock = Callable[[], float]

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


def run_rounds(
    rounds: "TextRounds",
    deadline: float,
    seeds: int,
    say: Callable[[str], None],
    clock: Clock = time.monotonic,
) -> Settings:
    """Run a pilot, then as many rounds as fit; return the settings of the last results.

    At least the results of the pilot remain.

    deadline: of the whole comparison, by the clock. seeds: wanted number of rounds.
    """

    def left() -> float:
        return deadline - clock()

    begin = left()
    speed = rounds.pilot()
    took = begin - left()
    rounds.show(f"So far (pilot of {PILOT.updates} updates, seed 1)")
    plan = plan_rounds(left(), speed, seeds)
    while plan.settings != PILOT:
        say(_describe(plan, speed, left()))
        rounds.put_pilot_aside()
        begin = left()
        slower = _first_round(rounds, plan.settings, speed, left)
        took = begin - left()
        if slower is None:
            rounds.show(f"So far (seed 1 of {plan.seeds})")
            _more_rounds(rounds, plan.settings, seeds, took, left)
            return plan.settings
        say(f"The machine has become {slower:.1f} times slower: the rest is planned anew.")
        speed = speed.times(slower)
        took = speed.seconds(PILOT)
        plan = plan_rounds(left(), speed, seeds)
    rounds.bring_pilot_back()
    if plan.seeds == 1:
        say("There is no time for another round: the pilot is the result.")
    else:
        say(
            f"There is no time for longer runs: planned are {plan.seeds} seeds of {PILOT.updates} "
            "updates, and the pilot is the first of them."
        )
        _more_rounds(rounds, plan.settings, seeds, took, left)
    return PILOT


def _first_round(
    rounds: "TextRounds", settings: Settings, speed: Speed, left: Clock
) -> float | None:
    """Run the first round of some settings, unless it turns out that it would end too late.

    Returns:
        None if it has ended; if it was stopped, how many times slower than planned it was.
    """
    begin, planned, done = left(), speed.seconds(settings), 0.0

    def is_late(share: float) -> bool:
        nonlocal done
        done, elapsed = max(share, 1 / settings.updates), begin - left()
        return elapsed > PATIENCE * planned and elapsed / done > begin

    try:
        rounds.run(settings, 1, is_late)
    except TooSlow:
        return max(PATIENCE, (begin - left()) / planned / done)
    return None


def _more_rounds(
    rounds: "TextRounds", settings: Settings, seeds: int, first: float, left: Clock
) -> None:
    """Run rounds from seed 2 on while another one fits; a late one is stopped."""
    times = [first]
    while fits_another(left(), times, seeds):
        begin = left()
        try:
            rounds.run(settings, len(times) + 1, lambda share: left() < 0)
        except TooSlow:
            return
        times.append(begin - left())


def _describe(plan: Plan, speed: Speed, left: float) -> str:
    """Describe the plan, and the speed that it follows from."""
    settings = plan.settings
    text = (
        f"An update takes {speed.update:.2f} s of all encodings together. Planned for the "
        f"{left / 60:.1f} minutes that are left: {plan.seeds} seeds (at most {MOST_SEEDS} if time "
        f"remains), {settings.updates} updates each"
    )
    if settings.is_small:
        text += "; the machine is slow, so that the model has one layer and half the batch"
    return f"{text}."
