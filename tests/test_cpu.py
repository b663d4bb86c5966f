"""What loading the plugin sets for the process, each in a process of its own."""

import os
import subprocess
import sys

import pytest

IMPORT = "import fairseq_plugins\nimport resource, sys, torch\n"

DENORMALS = """
torch.set_num_threads(2)
tiny = torch.full((4_000_000,), 1e-30)  # enough for both threads
print(torch.count_nonzero(tiny * 1e-10).item())
import numpy
numpy.finfo(numpy.float32).smallest_subnormal, numpy.finfo(numpy.float64).smallest_subnormal
"""

PAGES = 50 * 4_000_000 // os.sysconf("SC_PAGE_SIZE")
FAULTS = """
def step():
    return [torch.ones(1_000_000) for _ in range(50)]

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(code: str, **settings: str) -> int:
    """The number that ``code`` prints where the plugin is loaded; warnings are errors then."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    loaded = IMPORT + "import warnings\nwarnings.simplefilter('error')\n" + code
    command = [sys.executable, "-c", loaded]
    done = subprocess.run(
        command, env={**clean, **settings}, capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout.split()[-1])


def test_denormals_are_zero_in_every_thread() -> None:
    assert run(DENORMALS) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_freed_memory_is_kept() -> None:
    assert run(FAULTS) < PAGES / 10


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
