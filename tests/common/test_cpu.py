"""What the plugin sets for the process that loads it, each in a process of its own."""

import os
import subprocess
import sys

import pytest

LOAD = """
import resource, sys, torch, warnings
sys.argv = sys.argv[1:]
import fairseq_plugins
warnings.simplefilter("error")
"""
COMMANDS = ["/a/bin/fairseq-hydra-train", "/a/site-packages/fairseq_cli/train.py"]

DENORMALS = """
torch.set_num_threads(2)
tiny = torch.full((4_000_000,), 1e-30)  # enough for both threads
print(torch.count_nonzero(tiny * 1e-10).item())
import numpy
numpy.finfo(numpy.float32).smallest_subnormal, numpy.finfo(numpy.float64).smallest_subnormal
"""

PAGES = 50 * 4_000_000 // os.sysconf("SC_PAGE_SIZE")
FAULTS = """
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: pages of 4 KiB

def step():
    return [torch.ones(1_000_000) for _ in range(50)]

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(code: str, program: str = COMMANDS[0], **settings: str) -> int:
    """The number that ``code`` prints where ``program`` loaded the plugin; no warning may come."""
    return numbers(code, program, **settings)[-1]


def numbers(code: str, program: str = COMMANDS[0], **settings: str) -> list[int]:
    """All numbers that it prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", LOAD + code, program]
    done = subprocess.run(
        command, env={**clean, **settings}, capture_output=True, text=True, check=True, timeout=300
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("program", COMMANDS)
def test_denormals_are_zero_in_every_thread_and_freed_memory_is_kept(program: str) -> None:
    """In one process, which takes longer to start than both take to see."""
    denormals, faults = numbers(DENORMALS + FAULTS, program)
    assert denormals == 0
    if sys.platform == "linux":  # a setting of glibc
        assert faults < PAGES / 10


@pytest.mark.slow
def test_a_program_that_imports_modules_keeps_its_denormals() -> None:
    assert run(DENORMALS, "/a/bin/pytest") == 4_000_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
@pytest.mark.parametrize(
    "settings",
    [
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"},
    ],
)
def test_settings_of_the_environment_stay(settings: dict[str, str]) -> None:
    assert run(FAULTS, **settings) > PAGES / 2
