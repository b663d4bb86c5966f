"""Free memory: of the machine, or of a container with less."""

import pytest

from fairseq_plugins.common import memory

MEMINFO = "MemTotal: 24683520 kB\nMemAvailable: 2048 kB\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    return tmp_path


def test_nothing_is_known_elsewhere(machine):
    assert memory.available() is None


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("max", "5", 2048 * 1024), ("1000", "400", 600), ("1000", "2000", 0), ("9999999", "0", 2**21)],
)
def test_the_smaller_one_counts(machine, limit, used, free):
    (machine / "meminfo").write_text(MEMINFO)
    assert memory.available() == 2048 * 1024
    (machine / "memory.max").write_text(f"{limit}\n")
    (machine / "memory.current").write_text(f"{used}\n")
    assert memory.available() == free
