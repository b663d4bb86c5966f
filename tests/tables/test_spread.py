"""Work map_in_processes over forks."""

import subprocess
import sys

import pytest

from fairseq_plugins.common.parallel import map_in_processes

IN_A_PROGRAM_WITH_THREADS = """
import torch
from fairseq_plugins.common.parallel import map_in_processes

torch.set_num_threads(2)


def work(size):
    return torch.ones(size, size).exp().sum().item() > 0


work(900)
print(map_in_processes(work, [900] * 3, 2))
"""


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_the_order_of_the_arguments(processes: int) -> None:
    assert map_in_processes(square, [3, 1, 2], processes) == [9, 1, 4]


def test_forks_of_a_program_that_computed_on_threads_end() -> None:
    command = [sys.executable, "-c", IN_A_PROGRAM_WITH_THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[True, True, True]\n", done.stderr
