"""Contenders take turns, and a ratio is that of one turn."""

import pytest
import torch

from benchmarks import timing
from benchmarks.record import Found
from benchmarks.timing import Pace, interleave, peak_bytes

CPU = torch.device("cpu")


class Clock:
    """Time passes only where it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", clock)
    return clock


def test_turns_there_and_back(clock):
    calls = []

    def contender(name, seconds):
        def run():
            calls.append(name)
            clock.now += seconds

        return run

    contenders = {"a": contender("a", 1.0), "b": contender("b", 3.0)}
    seconds = interleave(contenders, Pace(12.0, 1, 99), CPU)
    assert calls[:2] == ["a", "b"]  # warm-up
    assert calls[2:] == ["a", "b", "b", "a", "a", "b"]  # 12 seconds are three rounds of 4
    assert seconds == {"a": [1.0] * 3, "b": [3.0] * 3}


def test_a_machine_that_slows_down_changes_no_ratio(clock):
    calls = [0]

    def contender(work):
        def run():
            clock.now += work * 1.5 ** (calls[0] // 2)  # slower in every round
            calls[0] += 1

        return run

    seconds = interleave({"a": contender(2.0), "b": contender(1.0)}, Pace(0, 6, 6), CPU)
    assert max(seconds["a"]) > 5 * min(seconds["a"])
    found = Found()
    found.add_ratio("a/b", seconds["a"], seconds["b"])
    assert found.ratios == {"a/b": 2.0} and found.quartiles == {"a/b": (2.0, 2.0)}


def test_a_start_is_not_timed(clock):
    def run():
        clock.now += 1.0

    def start():
        clock.now += 100.0
        return run

    seconds = interleave({}, Pace(0, 3, 3), CPU, starts={"a": start})
    assert seconds == {"a": [1.0] * 3}


@pytest.mark.parametrize(("one_round", "rounds"), [(100.0, 5), (1.0, 8), (0.0, 20)])
def test_rounds_within_bounds(one_round, rounds):
    assert Pace(8.0, 5, 20).rounds(one_round) == rounds


def test_medians_and_quartiles():
    found = Found()
    found.add("a", [2.0, 6.0, 4.0])
    assert found.medians == {"a": 4.0} and found.rounds == {"a": 3}
    found.add_ratio("a/b", [2.0, 6.0, 4.0, 4.0, 10.0], [1.0, 2.0, 4.0, 1.0, 2.0])
    assert found.ratios == {"a/b": 3.0} and found.quartiles == {"a/b": (2.0, 4.0)}


@pytest.mark.gpu
def test_memory_of_a_gpu():
    x = torch.ones(2**20, device="cuda")
    assert 8 * 2**20 <= peak_bytes(lambda: (x + 1).mul(2).sum(), x.device) < 9 * 2**20
