"""A process that has imported what trainings and evaluations need, and runs each in a fork.

Starting `python -m` anew costs some ten seconds of imports, more than a short fine-tuning takes.
`PreloadedLauncher` starts this program and talks to it over a socket: a request is a JSON list of
words, the module's name first, with the log's descriptor and those to keep open; the answers are
the process's number and, when it has ended, its exit status.
"""

import importlib
import json
import logging
import os
import runpy
import socket
import sys

from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.reproduce.run.launcher import die_with_parent

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
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, DESCRIPTORS)
        if not message:
            return
        server = os.getpid()
        child = os.fork()
        if child == 0:
            channel.close()
            _run(json.loads(message), descriptors[0], server)
        os.setpgid(child, child)  # here too, so that it is done before anybody signals the group
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            channel.send(json.dumps(child).encode())
            _, status = os.waitpid(child, 0)
            channel.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
        except BrokenPipeError:
            return  # the command, if it still runs, dies with this process


def _run(words: list[str], log: int, server: int) -> None:
    """What `python -m` does with these words, in this process, which then ends."""
    os.setpgid(0, 0)
    die_with_parent(server)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    sys.exit()
