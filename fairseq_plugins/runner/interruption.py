"""Stopping a table: a signal is noted, and each run ends itself when it next looks."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class OutOfTime(KeyboardInterrupt):
    """SIGUSR1: the time of a job is nearly over."""


SAVING_SECONDS = 60.0  # that a training has for saving before it is ended without
_KINDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, signal.SIGUSR1: OutOfTime}


def hold_back_signals() -> None:
    """Let SIGUSR1, which would end this process, wait until somebody can handle it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


class Interruption:
    """Whether the runs of a table are to stop.

    has_gained: whether any run came further, so that going on later makes sense.

    Python handles signals in its main thread alone, where runs side by side are waited for; these
    are in threads of their own and ask here. Nothing here takes a lock, so that a signal may come
    at any moment.
    """

    def __init__(self) -> None:
        self._kind: type[KeyboardInterrupt] | None = None
        self._since = 0.0
        self.has_gained = False

    def request(self, kind: type[KeyboardInterrupt] = KeyboardInterrupt) -> None:
        """Stop; the first request says as what."""
        if not self._kind:
            self._since = time.monotonic()
        self._kind = self._kind or kind

    @property
    def is_out_of_time(self) -> bool:
        return self._kind is OutOfTime

    def check(self, *, is_saving: bool = False) -> None:
        """Raise KeyboardInterrupt where a stop was requested.

        is_saving: of somebody who saves where the time is over, and has some for it.
        """
        has_time = time.monotonic() - self._since < SAVING_SECONDS
        if self._kind and not (is_saving and self.is_out_of_time and has_time):
            raise self._kind

    def pause(self, seconds: float) -> None:
        """Sleep, and check."""
        time.sleep(seconds)
        self.check()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """These signals request, also where a shell started this program with SIGINT ignored.

        For the main thread.
        """

        def request(signum: int, frame: FrameType | None) -> None:
            self.request(_KINDS[signal.Signals(signum)])

        before = [signal.signal(kind, request) for kind in _KINDS]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        try:
            yield
        finally:
            for kind, handler in zip(_KINDS, before, strict=True):
                signal.signal(kind, handler)
