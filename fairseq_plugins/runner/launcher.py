"""fairseq's and other commands: starting them, following their logs, stopping them."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.root import IS_CHECKOUT, PACKAGE, configs_folder
from fairseq_plugins.records.logs import last_lines

POLL_SECONDS = 0.3
GRACE_SECONDS = 15.0

# Of a process that got SIGKILL, as from the kernel or Slurm; its log cannot tell.
KILLED = ", perhaps killed for lack of memory"

OnLines = Callable[[list[str]], None]  # takes new complete lines of a log

# Quiet from the first import on: fairseq logs on being imported.
_PRELOADED = """
import logging
logging.disable(logging.INFO)
from fairseq_plugins.runner import preloaded
preloaded.serve()
"""

# Modules of this interpreter, so that commands do not depend on PATH.
_MODULES = {
    "fairseq-hydra-train": ("-m", "fairseq_cli.hydra_train"),
    "fairseq-eval-lm": ("-m", "fairseq_cli.eval_lm"),
    "fairseq-generate": ("-m", "fairseq_cli.generate"),
    "fairseq-validate": ("-m", "fairseq_cli.validate"),
    "python": (),
}

_IN_JOBS = {"fairseq-hydra-train": ("-m", "fairseq_plugins.runner.training_job")}
# Set in a container to the interpreter outside, where srun starts commands.
_OUTSIDE = "FAIRSEQ_PE_PYTHON"


class Launcher(Protocol):
    """A function that runs a command to its end."""

    def __call__(
        self, command: Sequence[str], log: Path, on_lines: OnLines, keep_open: Sequence[int] = ()
    ) -> int:
        """Append the command's output to `log` and return its exit status.

        on_lines: called several times a second with the new complete lines, maybe none.
        keep_open: file descriptors that the command inherits.
        """
        ...


def with_folders(command: Sequence[str]) -> list[str]:
    """Return a command with the package's own folders of recipes if it is installed."""
    words = list(command)
    if IS_CHECKOUT:
        return words
    folders = {"--config-dir": configs_folder(), "--user-dir": PACKAGE}
    for index, option in enumerate(words[:-1]):
        if option in folders:
            words[index + 1] = str(folders[option])
    # The recipes name the package, which fairseq would only find beside itself.
    return [*words, f"common.user_dir={PACKAGE}"] if "--config-dir" in words else words


def executable(command: Sequence[str], *, in_job: bool = False) -> list[str]:
    """Return a command with this interpreter in place of fairseq's command names.

    in_job: whether Slurm may end the training at any moment.
    """
    words = with_folders(command)
    modules = _MODULES | _IN_JOBS if in_job else _MODULES
    start = next(index for index, word in enumerate(words) if word in modules)  # behind srun
    return [
        *words[:start],
        os.environ.get(_OUTSIDE, sys.executable) if start else sys.executable,
        *modules[words[start]],
        *words[start + 1 :],
    ]


def run_command(
    launcher: Launcher, command: Sequence[str], log: Path, on_lines: OnLines = lambda lines: None
) -> None:
    """Run a command to its end (WorkError: it failed, with the end of its log)."""
    if status := launcher(executable(command), log, on_lines):
        end = "\n".join(last_lines(log))
        raise WorkError(f"{log} ended with status {status}\n{end}")


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

    Raises FileNotFoundError: the program does not exist.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    words = [sys.executable, "-S", "-E", "-c", _EXEC, str(os.getpid()), *command]
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
        self, command: Sequence[str], log: Path, on_lines: OnLines, keep_open: Sequence[int] = ()
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


class PreloadedLauncher(ProcessLauncher):
    """Launcher that runs modules in forks of a process with torch and fairseq imported.

    It saves the imports of many short trainings; several threads may use it. Other commands run as
    in `ProcessLauncher`. The process starts with the first command, in a thread that must outlive
    it.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(root, environment)
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(
        self, command: Sequence[str], log: Path, on_lines: OnLines, keep_open: Sequence[int] = ()
    ) -> int:
        if list(command[:2]) != [sys.executable, "-m"]:
            return super().__call__(command, log, on_lines, keep_open)
        with self._lock:
            channel = self._channel or self._start()
        ours, theirs = Pipe(duplex=False)
        try:
            with ours:
                with theirs, log.open("ab") as output:
                    size = output.tell()
                    words = json.dumps(list(command[2:])).encode()
                    descriptors = [theirs.fileno(), output.fileno(), *keep_open]
                    try:
                        socket.send_fds(channel, [words], descriptors)
                    except (BrokenPipeError, ConnectionResetError) as error:
                        raise _HasEnded from error
                # The first command waits until the process has imported everything.
                while not ours.poll(POLL_SECONDS):
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
            # Forks cannot use GPUs once their parent has asked the driver for them; NVML is safe.
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
    if gpus > 1:
        yield [ProcessLauncher(root, environment) for environment in environments]
        return
    with ExitStack() as stack:
        launchers: list[PreloadedLauncher] = []
        for environment in environments:
            same = next((one for one in launchers if one.environment == environment), None)
            own = same or stack.enter_context(closing(PreloadedLauncher(root, environment)))
            launchers.append(own)
        yield [*launchers]


class _HasEnded(OSError):
    """An error: the preloaded process, and the commands in it, have ended."""

    def __init__(self) -> None:
        super().__init__(f"the process that runs the commands has ended by itself{KILLED}")


class _Forked:
    """A command in a fork of the preloaded process, which answers over a pipe."""

    def __init__(self, answers: "Connection[Any, Any]") -> None:
        self._answers = answers
        self.pid = self._receive()

    def wait(self, timeout: float) -> int:
        if not self._answers.poll(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._receive()

    def _receive(self) -> int:
        try:
            return int(self._answers.recv())
        except (EOFError, ConnectionResetError):
            raise _HasEnded from None


def _follow(
    process: "subprocess.Popen[bytes] | _Forked", log: Path, position: int, on_lines: OnLines
) -> int:
    """Pass on new lines of the log until the command ends; return its exit status."""
    rest = ""
    try:
        with log.open("r", errors="replace") as tail:
            tail.seek(position)
            status = None
            while status is None:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(timeout=POLL_SECONDS)
                *lines, rest = (rest + tail.read()).split("\n")
                on_lines(lines)
            return status
    except BaseException:
        _stop(process)
        raise


def _stop(process: "subprocess.Popen[bytes] | _Forked") -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        return
