"""Graceful shutdown: signal handlers set a flag that workers poll."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class OutOfTime(KeyboardInterrupt):
    """SIGUSR1: the time limit of a job is near."""


class TooSlow(KeyboardInterrupt):
    """Stop of runs that would take more than the remaining time."""


STOP = "stop"  # a file in a training's folder of checkpoints: it saves and stops
SAVING_SECONDS = 60.0  # for a training to save before it is ended
_KINDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, signal.SIGUSR1: OutOfTime}


def hold_back_signals() -> None:
    """Block SIGUSR1, which would end this process, until `Interruption.on_signals`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


class Interruption:
    """A request to stop all runs of a table.

    Python handles signals in its main thread, which waits for the threads of the runs; these poll
    this object. It takes no lock, so that a signal may come at any moment.
    """

    def __init__(self) -> None:
        self._kind: type[KeyboardInterrupt] | None = None
        self._signal: type[KeyboardInterrupt] | None = None
        self._since = 0.0
        self.has_gained = False
        self.is_late: Callable[[], bool] | None = None

    def request(self, kind: type[KeyboardInterrupt] = KeyboardInterrupt) -> None:
        """Request a stop; the first request sets the exception that `check` raises."""
        if not self._kind:
            self._since = time.monotonic()
        self._kind = self._kind or kind

    @property
    def is_out_of_time(self) -> bool:
        return self._kind is OutOfTime

    def check(self, *, is_saving: bool = False) -> None:
        """Raise KeyboardInterrupt if a stop was requested, TooSlow if the runs are late.

        is_saving: wait up to `SAVING_SECONDS` for a training that saves at the time limit.
        """
        has_time = time.monotonic() - self._since < SAVING_SECONDS
        if self._kind and not (is_saving and self.is_out_of_time and has_time):
            raise self._kind
        if self.is_late is not None and self.is_late():
            raise TooSlow

    def reset(self) -> None:
        """Forget the stop of late runs, but no signal that came meanwhile."""
        self._kind, self.is_late = self._signal, None

    def pause(self, seconds: float) -> None:
        """Sleep, and check."""
        time.sleep(seconds)
        self.check()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle signals as stop requests, also if a shell started this program ignoring SIGINT.

        Call it in the main thread. If `hold_back_signals` was called before, SIGUSR1 is ignored
        after the block: a job whose runs have ended renders its page, and must not fail because its
        time limit is near.
        """

        def request(signum: int, frame: FrameType | None) -> None:
            self._signal = self._signal or _KINDS[signal.Signals(signum)]
            self.request(self._signal)

        before = {kind: signal.signal(kind, request) for kind in _KINDS}
        if signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1}):
            before[signal.SIGUSR1] = signal.SIG_IGN
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)
