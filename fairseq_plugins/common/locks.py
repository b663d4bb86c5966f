"""One process at a time."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PAUSE = 0.05  # seconds


class Busy(Exception):
    """Another process holds the lock; the message names it."""


@contextmanager
def exclusive(
    path: Path,
    what: str,
    wait: Callable[[str], None] | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[int]:
    """Hold a lock file, in which it stands who holds it; yields its descriptor.

    The lock is the descriptor's and ends with the last copy: a child that inherits one holds the
    lock also where this process is killed, and a process that has ended holds none. So it is
    closed here and never unlocked, which would take it from the children too; this is what
    `filelock.FileLock` would do.

    Args:
        path: of the lock file; it stays.
        what: is held, for messages.
        wait: where it is said once that another process holds the lock, which is then waited for.
        pause: sleeps for some seconds between two attempts, and may raise to end the waiting.

    Raises:
        Busy: where another process holds it and `wait` is None.
        OSError: where the file system has no locks.
    """
    from filelock import lock_descriptor  # which --help must not load

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            is_free = lock_descriptor(lock.fileno(), blocking=False)
        except OSError as error:
            raise OSError(
                f"{path} cannot be locked ({error.strerror}); a Lustre file system has to be "
                "mounted with `flock`"
            ) from error
        if not is_free:
            lock.seek(0)
            busy = f"process {lock.read().strip() or 'unknown'} is at {what} already"
            if wait is None:
                raise Busy(busy)
            wait(f"{busy}; waiting for it")
            while not lock_descriptor(lock.fileno(), blocking=False):
                pause(_PAUSE)
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield lock.fileno()
