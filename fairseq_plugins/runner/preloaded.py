"""A process that has imported what trainings and evaluations need, and runs each in a fork.

Starting `python -m` anew costs some ten seconds of imports, more than a short fine-tuning takes.
`PreloadedLauncher` starts this program and talks to it over a socket: a request is a JSON list of
words, the module's name first, with the descriptors of a socket to answer on, of the log, and those
to keep open. The answers are the process's number and, when it has ended, its exit status; requests
that come until then run beside it.
"""

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
from fairseq_plugins.runner.launcher import die_with_parent

# Not fairseq_cli itself, whose import sets up logging for the process that it is in.
MODULES = (
    "hydra",
    "sklearn.metrics",
    "torch._dynamo",  # which the first step of an optimizer imports
    "fairseq.trainer",
    "fairseq.model_parallel.megatron_trainer",
    "fairseq.sequence_generator",
    "fairseq_plugins.registration",
)
MESSAGE_BYTES = 1 << 17
DESCRIPTORS = 16


def serve() -> None:
    """Run one request after another until the other side is gone.

    The first word of the command line is the socket's number.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    prepare_cpu()
    for name in MODULES:
        importlib.import_module(name)
    # As it is in a new process: some module logs as it is imported, which sets logging up.
    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()
    ends, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(woken)  # a command that ends is noticed where requests are waited for
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([channel.fileno(), ends], [], [])
        if ends in ready:
            os.read(ends, MESSAGE_BYTES)
            _tell_ends(running)
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
        os.setpgid(child, child)  # here too, so that it is done before anybody signals the group
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        running[child] = answers
        if not _answer(answers, child):
            os.killpg(child, signal.SIGKILL)  # stopped before it began


def _tell_ends(running: dict[int, socket.socket]) -> None:
    """Answer with the statuses of the commands that have ended, which are no longer running."""
    for child in list(running):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with running.pop(child) as answers:
                _answer(answers, os.waitstatus_to_exitcode(status))


def _answer(answers: socket.socket, number: int) -> bool:
    """Whether somebody still wants to know."""
    try:
        answers.send(json.dumps(number).encode())
    except BrokenPipeError:
        return False
    return True


def _run(words: list[str], log: int, server: int) -> None:
    """What `python -m` does with these words, in this process, which then ends."""
    os.setpgid(0, 0)
    die_with_parent(server)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    sys.exit()
