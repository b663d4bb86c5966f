"""Parallel processing of lines of text, in order."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

LINES_AT_ONCE = 500  # lines per task of a process
LineFunction = Callable[[str], str]
LineBuilder = Callable[[], LineFunction]  # called once in each process

_function: LineFunction  # set in worker processes


def _start(build: LineBuilder) -> None:
    global _function
    _function = build()


def _run(line: str) -> str:
    return _function(line)


@contextmanager
def parallel_map(
    build: LineBuilder, workers: int
) -> Iterator[Callable[[Iterable[str]], Iterator[str]]]:
    """Yield a function that maps lines in order; each process calls `build` once."""
    if workers == 1:
        function = build()
        yield lambda lines: map(function, lines)
    else:
        with multiprocessing.Pool(workers, _start, (build,)) as pool:
            yield lambda lines: pool.imap(_run, lines, LINES_AT_ONCE)
