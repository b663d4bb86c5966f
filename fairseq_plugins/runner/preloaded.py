"""A process with torch and fairseq imported that runs each command in a fork.

Starting `python -m` costs some ten seconds of imports, more than a short fine-tuning takes.
`PreloadedLauncher` starts this program and talks to it over a socket. A request is a JSON list of
words, the module's name first, with file descriptors: a pipe for answers, the log, and those that
the command inherits. The answers are the process id and, at its end, the exit status. Requests run
concurrently.
"""

import atexit
import ctypes
import gc
import importlib
import json
import logging
import multiprocessing
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

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
    # A collection in a fork would copy the pages of everything imported, which takes a second.
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[ForkProcess, Connection[Any, Any]]] = {}
    while True:
        ready = wait([channel, *running])
        for sentinel in running.keys() & {*ready}:
            process, answers = running.pop(sentinel)
            process.join()
            with answers:
                _answer(answers, process.exitcode)
        if channel not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, DESCRIPTORS)
        if not message:
            os._exit(0)  # commands that still run die with this process
        answers = Connection(descriptors[0], readable=False)
        others = [channel, answers, *(each for _, each in running.values())]
        process = ForkProcess(target=_run, args=(json.loads(message), descriptors[1], others))
        process.start()
        assert process.pid is not None
        os.setpgid(process.pid, process.pid)  # here too, so that the group exists before a signal
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        running[process.sentinel] = process, answers
        if not _answer(answers, process.pid):
            os.killpg(process.pid, signal.SIGKILL)  # stopped before it began


def _answer(answers: "Connection[Any, Any]", number: int | None) -> bool:
    """Send a number; return whether the other side still listens."""
    try:
        answers.send(number)
    except BrokenPipeError:
        return False
    return True


def _run(words: list[str], log: int, others: Sequence[Any]) -> None:
    """Run these words as `python -m` does, in this fork, which ends without finalising Python.

    others: the server's socket and pipes, to close here.
    """
    os.setpgid(0, 0)
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)  # with the server
    server = multiprocessing.parent_process()
    if server is None or os.getppid() != server.pid:
        os._exit(1)
    for each in others:
        each.close()
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends its processes without them
