"""A comparison within a time, on a machine that is slower than planned: by a fake clock."""

import pytest

from fairseq_plugins.runner.interruption import TooSlow
from fairseq_plugins.runner.time_budget import (
    FEWEST_SEEDS,
    FEWEST_UPDATES,
    MOST_SEEDS,
    MOST_UPDATES,
    PILOT,
    Plan,
    Settings,
    Speed,
    fits_another,
    plan_rounds,
    run_rounds,
)

MINUTES = 60.0


class FakeRounds:
    """Rounds that take time on a clock of their own.

    speed: of the machine at the start. slower: by which factor it is slower, by the time.
    """

    def __init__(self, speed, slower=lambda now: 1.0):
        self.now, self.speed, self.slower = 0.0, speed, slower
        self.ended, self.aside, self.said = [], [], []

    def clock(self):
        return self.now

    def pilot(self):
        begin = self.now
        self.run(PILOT, 1, lambda share: False)
        return self.speed.times((self.now - begin) / self.speed.seconds(PILOT))

    def run(self, settings, seed, is_late):
        steps = 50
        for step in range(steps):
            self.now += self.speed.seconds(settings) / steps * self.slower(self.now)
            if is_late(step / steps):
                raise TooSlow
        self.ended.append((settings, seed))

    def put_pilot_aside(self):
        self.aside, self.ended = self.aside or self.ended, []

    def bring_pilot_back(self):
        self.ended, self.aside = self.aside or self.ended, []

    def show(self, what):
        self.said.append(what)

    def spend(self, minutes, seeds=5):
        settings = run_rounds(self, MINUTES * minutes, seeds, self.said.append, self.clock)
        assert self.ended and {used for used, _ in self.ended} == {settings}
        assert [seed for _, seed in self.ended] == [*range(1, len(self.ended) + 1)]
        assert any(line.startswith("So far") for line in self.said)
        return settings


NORMAL = Speed(0.2, 8.0)


def test_a_machine_as_planned_makes_all_pairs_within_the_time():
    rounds = FakeRounds(NORMAL)
    settings = rounds.spend(10)
    assert settings.updates > 2 * FEWEST_UPDATES and not settings.is_small
    assert len(rounds.ended) >= 5 and rounds.now < 10 * MINUTES


@pytest.mark.parametrize("slower", [2, 5, 10, 20])
def test_a_slow_machine_gets_fewer_updates_but_a_result(slower):
    rounds = FakeRounds(NORMAL.times(slower))
    settings = rounds.spend(10)
    assert settings.updates < FakeRounds(NORMAL).spend(10).updates
    assert rounds.now < max(10 * MINUTES, 1.01 * rounds.speed.seconds(PILOT))


def test_the_small_model_is_taken_before_the_pilot_has_to_do():
    speed = Speed(1.5, 10.0)
    assert FakeRounds(speed).spend(5).is_small
    assert FakeRounds(speed.times(2)).spend(5) == PILOT


@pytest.mark.parametrize("slower", [10, 20, 1000])
@pytest.mark.parametrize("since", [30.0, 100.0, 200.0, 400.0])
def test_a_machine_that_becomes_slow_has_a_result_about_in_time(slower, since):
    rounds = FakeRounds(NORMAL, lambda now: slower if now > since else 1.0)
    rounds.spend(10)
    # A round is left after 1/50 of it at most, which is what one step of this clock takes.
    assert rounds.now < 10 * MINUTES + NORMAL.seconds(Settings(MOST_UPDATES)) * slower / 50


def test_a_pilot_that_takes_all_the_time_is_the_result():
    rounds = FakeRounds(NORMAL.times(200))
    assert rounds.spend(10) == PILOT and len(rounds.ended) == 1
    assert any("the pilot is the result" in line for line in rounds.said)


@pytest.mark.parametrize("seconds", [60, 200, 600, 3000])
@pytest.mark.parametrize("update", [0.01, 0.1, 0.4, 4.0])
def test_a_plan_fits_into_the_time(seconds, update):
    speed = Speed(update, 6.0)
    plan = plan_rounds(seconds, speed, 5)
    took = plan.seeds * speed.seconds(plan.settings)
    if plan.settings == PILOT:
        assert took - speed.seconds(PILOT) <= seconds  # the first is done already
        assert FEWEST_SEEDS * speed.seconds(Settings(FEWEST_UPDATES, True)) > 0.8 * (seconds - 10)
        return
    assert took <= seconds and FEWEST_SEEDS <= plan.seeds <= 5
    assert FEWEST_UPDATES <= plan.settings.updates <= MOST_UPDATES
    if plan.settings.updates < MOST_UPDATES:  # and little of it is left over
        assert took + plan.seeds * update > 0.8 * (seconds - 10)


def test_without_any_time_the_pilot_is_planned():
    assert plan_rounds(-100.0, Speed(1.0, 5.0), 5) == Plan(PILOT, 1)


def test_rounds_go_on_as_long_as_another_one_fits():
    assert fits_another(40.0, [20.0, 30.0], 5)
    assert not fits_another(37.0, [20.0, 30.0], 5)
    assert not fits_another(1e9, [1.0] * MOST_SEEDS, 5)
    assert fits_another(1e9, [1.0] * MOST_SEEDS, MOST_SEEDS + 1)
