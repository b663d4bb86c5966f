"""What every test shares: one thread, fixed seeds, and how hard hypothesis searches."""

import atexit
import gc
import logging
import os
import random
from collections.abc import Iterator

import pytest
import torch
from hydra.core.config_store import ConfigStore
from hypothesis import settings

torch.set_num_threads(1)
gc.disable()  # until all modules and tests are there, which are millions of objects
atexit.register(gc.freeze)  # the last collections of this process would take seconds


def pytest_collection_finish() -> None:
    """Keep what stays to the end out of every later collection of garbage, and torch's loggers
    within pytest's reach: on each that does not propagate it hangs its handlers six times a test,
    which with forty of them is a millisecond."""
    gc.freeze()
    gc.enable()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is none, or none of the `capability` it needs."""
    found = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    for item in items:
        if (mark := item.get_closest_marker("gpu")) is None:
            continue
        needed = mark.kwargs.get("capability", (0, 0))
        if found is None or found < needed:
            reason = "needs a GPU of compute capability {}.{} or more".format(*needed)
            item.add_marker(pytest.mark.skip(reason))


settings.register_profile("local", deadline=None, max_examples=20)
settings.register_profile("ci", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session", autouse=True)
def _one_store_of_schemas() -> Iterator[None]:
    """Hydra copies its store, with all of fairseq's schemas, for each configuration that it
    composes; it is one object for a process, and what is loaded from it is a copy anyway. Without
    that a composition takes less than half its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigStore, "__deepcopy__", lambda store, _: store, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _seeds_of_the_cpu_alone() -> Iterator[None]:
    """Where there is no GPU, PyTorch keeps each seed for one, with the text of the whole stack:
    some milliseconds, several times a test."""
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
        yield


@pytest.fixture(autouse=True)
def _seeds() -> Iterator[None]:
    """The same random numbers and log levels whichever tests and shared fixtures ran before."""
    random.seed(0)
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    # A command that a shared fixture ran may have silenced the libraries.
    logging.getLogger("fairseq").setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)
    yield
    torch.set_flush_denormal(False)  # which a training in this process turns on
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def _one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw for all passes, so that a stochastic encoding can be compared with itself."""
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", lambda: 5)
