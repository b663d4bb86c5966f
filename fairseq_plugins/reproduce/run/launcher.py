"""Starting a command, following its log, and never leaving it behind."""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0

# Quiet from the first import on: fairseq logs on being imported.
_PRELOADED = """
import logging
logging.disable(logging.INFO)
from fairseq_plugins.reproduce.run import preloaded
preloaded.serve()
"""

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


class Child(Protocol):
    """A started command, the leader of a process group."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float) -> int:
        """Its exit status; raises subprocess.TimeoutExpired where it has not ended by then."""
        ...


def die_with_parent(parent: int | None = None) -> None:
    """A process killed by SIGKILL cannot stop its child; Linux does it.

    parent: its number, where it may have ended already.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _spawn(
    root: Path, command: Sequence[str], keep_open: Sequence[int], **options: Any
) -> "subprocess.Popen[bytes]":
    """A process in `root`, in a group of its own, that does not outlive this one."""
    return subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        pass_fds=tuple(keep_open),
        start_new_session=True,
        preexec_fn=die_with_parent,  # safe: this program has no threads
        **options,
    )


def _environment(command: Sequence[str]) -> dict[str, str]:
    """What a command sees of this process's environment.

    Line by line, so that what libraries log does not come between the words of one. Without
    Slurm's variables where Slurm does not start it: fairseq would take the number of processes from
    the shell's allocation in place of the one it is given. Threads that wait for others sleep: on
    a machine with other work, spinning ones keep the processor from those that they wait for.
    """
    kept = dict(os.environ)
    if not kept.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        kept["OMP_WAIT_POLICY"] = "PASSIVE"
    if command[0] != "srun":
        kept = {name: value for name, value in kept.items() if not name.startswith("SLURM_")}
    return kept | {"PYTHONUNBUFFERED": "1"}


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
        with log.open("ab") as output:
            size = output.tell()
            process = _spawn(
                self.root,
                command,
                keep_open,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(command),
            )
        return _follow(process, log, size, on_lines)


class PreloadedLauncher:
    """Runs modules of this interpreter in forks of a process that has imported torch and fairseq.

    Every other command runs as `ProcessLauncher` has it. For trainings on a CPU, of which there may
    be many short ones. The process starts with the first command and ends with this object's.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(
        self,
        command: Sequence[str],
        log: Path,
        on_lines: Callable[[list[str]], None],
        keep_open: Sequence[int] = (),
    ) -> int:
        if list(command[:2]) != [sys.executable, "-m"]:
            return ProcessLauncher(self.root)(command, log, on_lines, keep_open)
        try:
            channel = self._channel or self._start()
            with log.open("ab") as output:
                size = output.tell()
                words = json.dumps(list(command[2:])).encode()
                socket.send_fds(channel, [words], [output.fileno(), *keep_open])
            return _follow(_Forked(channel), log, size, on_lines)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, and with it a command that it still runs."""
        if self._channel:
            self._channel.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None

    def _start(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-c", _PRELOADED, str(theirs.fileno())]
            # The runtime of the threads reads its settings here, not in the forks.
            self._process = _spawn(
                self.root,
                command,
                [theirs.fileno()],
                stdout=subprocess.DEVNULL,
                env=_environment(command),
            )
        return self._channel


@contextmanager
def get_launcher(root: Path, gpus: int) -> Iterator[Launcher]:
    """The launcher for runs on so many GPUs; 0 is a CPU."""
    if gpus or sys.platform != "linux":
        yield ProcessLauncher(root)
        return
    launcher = PreloadedLauncher(root)
    try:
        yield launcher
    finally:
        launcher.close()


class _Forked:
    """A command that the other process runs."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = self._receive()

    def wait(self, timeout: float) -> int:
        ready, _, _ = select.select([self._channel], [], [], timeout)
        if not ready:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._receive()

    def _receive(self) -> int:
        message = self._channel.recv(100)
        if not message:
            raise OSError("the process that runs the commands has ended by itself")
        return int(json.loads(message))


def _follow(process: Child, log: Path, position: int, on_lines: Callable[[list[str]], None]) -> int:
    """Hand on the lines of the log behind a position until the command ends; its status."""
    lines = LineReader()
    try:
        with log.open("r", errors="replace") as tail:
            tail.seek(position)
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


def _stop(process: Child) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        return
