"""Locks between processes."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PAUSE = 0.05  # seconds
# Seconds before each of the first attempts. A command that another thread starts has copies of all
# descriptors until it runs, and so keeps a lock for a moment after it is closed here.
_DELAYS = (0.0, 0.05, 0.1)


class Busy(Exception):
    """An error that names the process holding a lock."""


@contextmanager
def exclusive_lock(
    path: Path,
    what: str,
    wait: Callable[[str], None] | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[int]:
    """Hold a lock file, which stays and names its holder, and yield its descriptor.

    The lock belongs to the descriptor and its copies: a child that inherits it keeps the lock if
    this process is killed. Hence it is closed and never unlocked, as `filelock.FileLock` would do,
    which would unlock it for children too.

    Args:
        path: the lock file.
        what: name of the locked work, for messages.
        wait: called with a message before waiting for another process; None to raise Busy.
        pause: sleeps between two attempts, and may raise to end the waiting.

    Raises OSError if the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            is_free = any(_try(lock.fileno(), delay) for delay in _DELAYS)
        except OSError as error:
            raise OSError(
                f"{path} cannot be locked ({error.strerror}); a Lustre file system has to be "
                "mounted with `flock`"
            ) from error
        if not is_free:
            lock.seek(0)
            busy = f"process {lock.read().strip() or 'unknown'} already holds {what}"
            if wait is None:
                raise Busy(busy)
            wait(f"{busy}; waiting for it")
            while not _try(lock.fileno()):
                pause(_PAUSE)
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield lock.fileno()


def _try(descriptor: int, delay: float = 0.0) -> bool:
    """Lock a file if it is free, after some seconds; return whether it is locked."""
    from filelock import lock_descriptor  # slow to import; --help stays fast

    time.sleep(delay)
    return bool(lock_descriptor(descriptor, blocking=False))
