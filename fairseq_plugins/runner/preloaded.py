"""A process with torch and fairseq imported that runs each command in a fork.

Starting `python -m` costs some ten seconds of imports, more than a short fine-tuning takes.
`PreloadedLauncher` starts this program and talks to it over a socket. A request is a JSON list of
words, the module's name first, with file descriptors: a socket for answers, the log, and those that
the command inherits. The answers are the process id and, at its end, the exit status. Requests run
concurrently.
"""

import ctypes
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys

from fairseq_plugins.common.cpu import prepare_cpu

# Not fairseq_cli itself, whose import sets up logging for the process that it is in.
MODULES = (
    "hydra",
    "sklearn.metrics",
    "torch._dynamo",  # imported by the first step of an optimizer
    "fairseq.trainer",
    "fairseq.model_parallel.megatron_trainer",
    "fairseq.sequence_generator",
    "fairseq_plugins.registration",
)
MESSAGE_BYTES = 1 << 17
DESCRIPTORS = 16
_PR_SET_PDEATHSIG = 1
# Looked up here, since a fork of a process with threads must not wait for the loader's locks.
_PRCTL = ctypes.CDLL(None).prctl


def serve() -> None:
    """Run requests until the socket is closed.

    The first word of the command line is the socket's file descriptor.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    prepare_cpu()
    for name in MODULES:
        importlib.import_module(name)
    # Some module configures logging as it is imported; a new process starts without that.
    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()
    ends, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(woken)  # the end of a command wakes the select below
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), ends], [], [])
        if ends in ready:
            os.read(ends, MESSAGE_BYTES)
            _answer_ended(running)
        if channel.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, DESCRIPTORS)
        if not message:
            return  # commands that still run die with this process
        answers = socket.socket(fileno=descriptors[0])
        server = os.getpid()
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (ends, woken):
                os.close(other)
            for each in (channel, answers, *running.values()):
                each.close()
            _run(json.loads(message), descriptors[1], server)
        os.setpgid(child, child)  # here too, so that the group exists before it is signalled
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        running[child] = answers
        if not _answer(answers, child):
            os.killpg(child, signal.SIGKILL)  # stopped before it began


def _answer_ended(running: dict[int, socket.socket]) -> None:
    """Send the exit status of each command that has ended, and remove it."""
    for child in list(running):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with running.pop(child) as answers:
                _answer(answers, os.waitstatus_to_exitcode(status))


def _answer(answers: socket.socket, number: int) -> bool:
    """Send a number; return whether the other side still listens."""
    try:
        answers.send(json.dumps(number).encode())
    except BrokenPipeError:
        return False
    return True


def _run(words: list[str], log: int, server: int) -> None:
    """Run these words as `python -m` does, in this process, and end it."""
    os.setpgid(0, 0)
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)  # with the server
    if os.getppid() != server:
        os._exit(1)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    sys.exit()
