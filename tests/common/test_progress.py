"""Progress changes nothing of what it counts, and is seen on a terminal and in a log."""

import pytest

from fairseq_plugins.common import progress
from fairseq_plugins.common.progress import track


@pytest.mark.parametrize("total", [None, 3])
@pytest.mark.parametrize("terminal", ["0", "1"])
def test_items_pass_unchanged(monkeypatch, total, terminal):
    monkeypatch.setenv("FORCE_COLOR", terminal)
    assert list(track(iter("abc"), "encoding", unit="lines", total=total)) == ["a", "b", "c"]


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    list(track(range(7), "encoding [train]", unit="lines"))
    shown = capsys.readouterr().err
    assert "encoding [train]" in shown and "7/7" in shown


def test_a_line_now_and_then_without_a_terminal(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    list(track(range(4), "encoding", unit="lines"))
    assert capsys.readouterr().err.splitlines() == [
        "encoding: 2 of 4 lines, 0 a second, 40 s left",
        "encoding: 4 of 4 lines, 0 a second, 0 s left",
    ]


def test_short_work_leaves_logs_alone(capsys):
    list(track(range(4), "encoding", unit="lines"))
    assert capsys.readouterr().err == ""


def test_what_stops_early_ends_the_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = track(range(4), "encoding", unit="lines")
    next(shown)
    shown.close()
    assert "\x1b[?25h" in capsys.readouterr().err, "the cursor is shown again"
