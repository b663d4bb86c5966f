"""What jobs on a CPU ask for is what was measured, with a margin."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.job_memory import MEASURED
from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.slurm_job import (
    DEFAULT_MIB,
    FAMILIES,
    MARGIN,
    PEAKS_MIB,
    Job,
    requested_mib,
)

ROOT = Path(__file__).parents[2]
CELLS = [(family, scale) for family, scales in PEAKS_MIB.items() for scale in scales]


def recorded() -> Iterator[tuple[str, str, int]]:
    """Family, scale and peak of each measurement that the repository holds."""
    for path in (ROOT / "benchmarks" / "results").glob("*/cpu/job_memory/*.json"):
        found = json.loads(path.read_text())
        assert path.stem == f"{found['family']}-{found['scale']}"
        yield found["family"], found["scale"], found["found"]["peak_mib"]


def runs(family: str, scale: str) -> list[Run]:
    """One of each table whose runs are of the family."""
    names = [name for name, table in TABLES.items() if table.experiment in FAMILIES[family]]
    return [Run(name, scale, "base", "vanilla", 1) for name in names]


def test_the_table_is_the_highest_of_what_is_recorded() -> None:
    highest: dict[tuple[str, str], int] = {}
    for family, scale, peak in recorded():
        highest[family, scale] = max(peak, highest.get((family, scale), 0))
    assert highest
    assert highest == {
        (f, s): peak for f, scales in PEAKS_MIB.items() for s, peak in scales.items()
    }


@pytest.mark.parametrize(("family", "scale"), CELLS)
def test_no_job_asks_for_less_than_was_measured(family: str, scale: str) -> None:
    peaks = [peak for *cell, peak in recorded() if cell == [family, scale]]
    assert runs(family, scale)
    for run in runs(family, scale):
        words = Job("a", ROOT, ("true",), runs=(run,)).sbatch({})
        (asked,) = (word for word in words if word.startswith("--mem-per-cpu="))
        assert asked.endswith("M")
        mib = int(asked.partition("=")[2].removesuffix("M"))
        assert MARGIN * max(peaks) <= mib < MARGIN * max(peaks) + 512


def test_the_families_are_what_is_measured_and_their_experiments_exist() -> None:
    assert FAMILIES.keys() == MEASURED.keys() == PEAKS_MIB.keys()
    known = [experiment for family in FAMILIES.values() for experiment in family]
    assert set(known) <= EXPERIMENTS.keys() and len(set(known)) == len(known)
    for family, table in MEASURED.items():
        assert TABLES[table].experiment in FAMILIES[family]


def test_where_nobody_measured_it_is_the_default() -> None:
    unmeasured = Run("extrapolation", "mini", "base", "vanilla", 1)
    assert requested_mib([unmeasured]) == requested_mib([]) == DEFAULT_MIB
    # A job of several runs has room for the largest on each of its cores.
    measured = Run("table2", "toy", "base", "vanilla", 1)
    assert requested_mib([measured, unmeasured]) == max(DEFAULT_MIB, requested_mib([measured]))
