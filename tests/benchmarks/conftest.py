"""A benchmark leaves this process's numbers as they are."""

import pytest

from benchmarks import context


@pytest.fixture(autouse=True)
def _denormals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "prepare_cpu", lambda: None)
