"""Lines of text through several processes, in order."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

LINES_AT_ONCE = 500  # that a process takes
LineFunction = Callable[[str], str]

_function: LineFunction  # of a worker process


def _start(build: Callable[[], LineFunction]) -> None:
    global _function
    _function = build()


def _run(line: str) -> str:
    return _function(line)


@contextmanager
def parallel_map(
    build: Callable[[], LineFunction], workers: int
) -> Iterator[Callable[[Iterable[str]], Iterator[str]]]:
    """A function that maps lines, in order, by what `build` returns in each of some processes."""
    if workers == 1:
        function = build()
        yield lambda lines: map(function, lines)
    else:
        with multiprocessing.Pool(workers, _start, (build,)) as pool:
            yield lambda lines: pool.imap(_run, lines, LINES_AT_ONCE)
