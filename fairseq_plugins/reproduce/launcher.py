"""Starting a command, following its log, and never leaving it behind."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Launcher(Protocol):
    """Runs a command to its end; tests put a fake in its place."""

    def __call__(
        self,
        command: Sequence[str],
        log: Path,
        on_lines: Callable[[list[str]], None],
        keep_open: Sequence[int] = (),
    ) -> int:
        """Append the command's output to `log` and return its exit status.

        on_lines: called several times a second with the new complete lines, maybe none.
        keep_open: file descriptors that the command inherits.
        """
        ...


def _die_with_parent() -> None:
    # A runner killed by SIGKILL cannot stop its child; Linux does it.
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProcessLauncher:
    """The real launcher: a subprocess in the repository's root, in a process group of its own.

    The group keeps a Ctrl-C from the child until the runner has said what happens; then the
    child gets SIGTERM and, if that does not end it, SIGKILL.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self,
        command: Sequence[str],
        log: Path,
        on_lines: Callable[[list[str]], None],
        keep_open: Sequence[int] = (),
    ) -> int:
        with log.open("ab") as output, log.open("r", errors="replace") as tail:
            tail.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                command,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(keep_open),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # safe: this program has no threads
            )
            lines = LineReader()
            try:
                while True:
                    try:
                        status = process.wait(timeout=POLL_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        on_lines(lines.feed(tail.read()))
                on_lines(lines.feed(tail.read()))
                return status
            except BaseException:
                _stop(process)
                raise


class LineReader:
    """Cuts growing text into complete lines."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """The lines that `text` completes."""
        *lines, self._rest = (self._rest + text).split("\n")
        return lines


def _stop(process: subprocess.Popen[bytes]) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
