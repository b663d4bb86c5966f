"""Rounds of trainings within a time: a pilot, a plan, and as many rounds as fit."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairseq_plugins.runner.interruption import Interruption
from fairseq_plugins.runner.time_budget import (
    MOST_SEEDS,
    PATIENCE,
    PILOT,
    Plan,
    Settings,
    Speed,
    fits_another,
    plan_rounds,
)

if TYPE_CHECKING:  # which imports this module
    from fairseq_plugins.runner.text_rounds import TextRounds

Clock = Callable[[], float]
IsLate = Callable[[float], bool]  # from the share of a round that is done


class TooSlow(KeyboardInterrupt):
    """A round was given up, since the remaining time does not allow it."""


class Watch(Interruption):
    """An interruption that also ends runs which a round has no time for.

    is_late: asked at every check; None while nothing is watched.
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
        """Forget the stop that a late round has caused."""
        self._kind, self.is_late = None, None


def run_rounds(
    rounds: "TextRounds",
    deadline: float,
    seeds: int,
    say: Callable[[str], None],
    clock: Clock = time.monotonic,
) -> Settings:
    """Run a pilot, and then as many rounds as fit; at least the pilot stands at the end.

    Args:
        rounds: what is trained.
        deadline: of the whole comparison, by the clock.
        seeds: wanted number of rounds.
        say: prints a line.
        clock: seconds now.

    Returns:
        The settings of the rounds whose results stand.
    """
    begin = clock()
    speed = rounds.pilot()
    took = clock() - begin
    rounds.show(f"So far (pilot of {PILOT.updates} updates, seed 1)")
    plan = plan_rounds(deadline - clock(), speed, seeds)
    while plan.settings != PILOT:
        say(_describe(plan, speed, deadline - clock()))
        rounds.put_pilot_aside()
        start = clock()
        slower = _first_round(rounds, plan.settings, speed, deadline, clock)
        took = clock() - start
        if slower is None:
            rounds.show(f"So far (seed 1 of {plan.seeds})")
            _more_rounds(rounds, plan.settings, seeds, took, deadline, clock)
            return plan.settings
        say(f"The machine has become {slower:.1f} times slower: the rest is planned anew.")
        speed = speed.times(slower)
        took = speed.seconds(PILOT)
        plan = plan_rounds(deadline - clock(), speed, seeds)
    rounds.bring_pilot_back()
    if plan.seeds == 1:
        say("There is no time for another round: the pilot is the result.")
    else:
        say(
            f"There is no time for longer runs: planned are {plan.seeds} seeds of {PILOT.updates} "
            "updates, and the pilot is the first of them."
        )
        _more_rounds(rounds, plan.settings, seeds, took, deadline, clock)
    return PILOT


def _first_round(
    rounds: "TextRounds", settings: Settings, speed: Speed, deadline: float, clock: Clock
) -> float | None:
    """Run the first round of some settings; it is given up if it would not end in time.

    Returns:
        None when it has ended; else by which factor it was slower than planned.
    """
    start, planned, done = clock(), speed.seconds(settings), 0.0

    def is_late(share: float) -> bool:
        nonlocal done
        done, elapsed = max(share, 1 / settings.updates), clock() - start
        return elapsed > PATIENCE * planned and start + elapsed / done > deadline

    try:
        rounds.run(settings, 1, is_late)
    except TooSlow:
        return max(PATIENCE, (clock() - start) / planned / done)
    return None


def _more_rounds(
    rounds: "TextRounds",
    settings: Settings,
    seeds: int,
    first: float,
    deadline: float,
    clock: Clock,
) -> None:
    """Run rounds from seed 2 on while another one fits; one that is late is left out."""
    times = [first]
    while fits_another(deadline - clock(), times, seeds):
        start = clock()
        try:
            rounds.run(settings, len(times) + 1, lambda share: clock() > deadline)
        except TooSlow:
            return
        times.append(clock() - start)


def _describe(plan: Plan, speed: Speed, left: float) -> str:
    """Say what is planned, and from what."""
    settings = plan.settings
    text = (
        f"An update takes {speed.update:.2f} s of all encodings together. Planned for the "
        f"{left / 60:.1f} minutes that are left: {plan.seeds} seeds (at most {MOST_SEEDS} if time "
        f"remains), {settings.updates} updates each"
    )
    if settings.is_small:
        text += "; the machine is slow, so that the model has one layer and half the batch"
    return f"{text}."
