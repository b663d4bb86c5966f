"""Starting commands, following their logs, and stopping them with this process."""

import ctypes
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0

# Quiet from the first import on: fairseq logs on being imported.
_PRELOADED = """
import logging
logging.disable(logging.INFO)
from fairseq_plugins.runner import preloaded
preloaded.serve()
"""

_PR_SET_PDEATHSIG = 1
# Looked up here, since a fork of a process with threads must not wait for the loader's locks.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class Launcher(Protocol):
    """A function that runs a command to its end."""

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
        """Return its exit status; raise subprocess.TimeoutExpired if it has not ended by then."""
        ...


def die_with_parent(parent: int | None = None) -> None:
    """Have Linux kill this process when the thread that started it ends.

    Args:
        parent: process id of the parent; if it is gone already, exit with status 1.
    """
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


# Runs in a new interpreter, not as `preexec_fn`: Python code in the fork of a process with threads
# can crash or hang.
_EXEC = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def _spawn(
    root: Path, command: Sequence[str], keep_open: Sequence[int], **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a command in `root`, in a process group of its own, that Linux kills with this process.

    Raises FileNotFoundError: there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    words = [*command]
    if sys.platform == "linux":
        words = [sys.executable, "-S", "-E", "-c", _EXEC, str(os.getpid()), *words]
    return subprocess.Popen(
        words,
        cwd=root,
        stdin=subprocess.DEVNULL,
        pass_fds=tuple(keep_open),
        start_new_session=True,
        **options,
    )


def _environment(command: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: this process's with changes, and its own variables.

    Output is unbuffered, so that lines of several libraries do not mix. Without srun, Slurm's
    variables are removed: fairseq would take the number of processes from the allocation. Waiting
    threads sleep, since spinning ones keep busy processors from the threads that they wait for.
    """
    kept = dict(os.environ)
    if not kept.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        kept["OMP_WAIT_POLICY"] = "PASSIVE"
    if command[0] != "srun":
        kept = {name: value for name, value in kept.items() if not name.startswith("SLURM_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **own}


class ProcessLauncher:
    """Launcher that runs a command in the root, in a process group of its own.

    Ctrl-C does not reach the group, so that this process can print what happens first. Then the
    command gets SIGTERM and, if it does not end, SIGKILL.

    environment: variables added to those of this process.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root, self.environment = root, environment or {}

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
                env=_environment(command, self.environment),
            )
        return _follow(process, log, size, on_lines)


class PreloadedLauncher:
    """Launcher that runs modules in forks of a process with torch and fairseq imported.

    It saves the imports of many short trainings; several threads may use it. Other
    commands run as in `ProcessLauncher`. The process starts with the first command, in a thread
    that must outlive it.

    environment: variables added to those of this process.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root, self.environment = root, environment or {}
        self._lock = threading.Lock()
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
            launch = ProcessLauncher(self.root, self.environment)
            return launch(command, log, on_lines, keep_open)
        with self._lock:
            channel = self._channel or self._start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with ours:
                with theirs, log.open("ab") as output:
                    size = output.tell()
                    words = json.dumps(list(command[2:])).encode()
                    descriptors = [theirs.fileno(), output.fileno(), *keep_open]
                    _send(channel, words, descriptors)
                # The first command waits until the process has imported everything.
                while not _is_readable(ours, POLL_SECONDS):
                    on_lines([])
                return _follow(_Forked(ours), log, size, on_lines)
        except _HasEnded:  # the next command starts a new process
            with self._lock:
                if self._channel is channel:
                    self._end()
            raise

    def close(self) -> None:
        """End the process and the commands that it still runs."""
        with self._lock:
            self._end()

    def _end(self) -> None:
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
            # Forks of a process that asked the driver for GPUs cannot use them: NVML is asked.
            own = {**self.environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
            # OpenMP reads its settings in this process, not in the forks.
            self._process = _spawn(
                self.root,
                command,
                [theirs.fileno()],
                stdout=subprocess.DEVNULL,
                env=_environment(command, own),
            )
        return self._channel


@contextmanager
def get_launchers(
    root: Path, gpus: int, environments: Sequence[Mapping[str, str]]
) -> Iterator[list[Launcher]]:
    """Yield a launcher for each environment of runs at once.

    Runs on a CPU or on one GPU share a preloaded process if their environments are equal. fairseq
    spawns the processes of several GPUs itself.
    """
    if gpus > 1 or sys.platform != "linux":
        yield [ProcessLauncher(root, environment) for environment in environments]
        return
    preloaded: dict[tuple[tuple[str, str], ...], PreloadedLauncher] = {}
    with ExitStack() as stack:
        for environment in environments:
            key = tuple(environment.items())
            if key not in preloaded:
                preloaded[key] = PreloadedLauncher(root, environment)
                stack.callback(preloaded[key].close)
        yield [preloaded[tuple(environment.items())] for environment in environments]


class _HasEnded(OSError):
    """The process that runs the commands has ended, and the commands with it."""

    def __init__(self) -> None:
        super().__init__("the process that runs the commands has ended by itself")


def _send(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    try:
        socket.send_fds(channel, [message], descriptors)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise _HasEnded from error


class _Forked:
    """A command that runs in the other process, which answers over a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = self._receive()

    def wait(self, timeout: float) -> int:
        if not _is_readable(self._channel, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._receive()

    def _receive(self) -> int:
        try:
            message = self._channel.recv(100)
        except ConnectionResetError:
            message = b""
        if not message:
            raise _HasEnded
        return int(json.loads(message))


def _is_readable(channel: socket.socket, seconds: float) -> bool:
    """Tell whether something can be received within some seconds."""
    return bool(select.select([channel], [], [], seconds)[0])


def _follow(process: Child, log: Path, position: int, on_lines: Callable[[list[str]], None]) -> int:
    """Pass on new lines of the log until the command ends; return its exit status."""
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
    """Splitter of growing text into complete lines."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Return the lines that `text` completes."""
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
