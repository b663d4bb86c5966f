"""Stopping a table: a signal is noted, and each run ends itself when it next looks."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class Interruption:
    """Whether the runs of a table are to stop.

    Python handles signals in its main thread alone, where runs side by side are waited for; these
    are in threads of their own and ask here. Nothing here takes a lock, so that a signal may come
    at any moment.
    """

    def __init__(self) -> None:
        self._kind: type[KeyboardInterrupt] | None = None

    def request(self, kind: type[KeyboardInterrupt] = KeyboardInterrupt) -> None:
        """Stop; the first request says as what."""
        self._kind = self._kind or kind

    def check(self) -> None:
        """Raise KeyboardInterrupt where a stop was requested."""
        if self._kind:
            raise self._kind

    def pause(self, seconds: float) -> None:
        """Sleep, and check."""
        time.sleep(seconds)
        self.check()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM request, also where a shell started this program with SIGINT ignored.

        For the main thread.
        """

        def request(signum: int, frame: FrameType | None) -> None:
            self.request(Terminated if signum == signal.SIGTERM else KeyboardInterrupt)

        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, request) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
