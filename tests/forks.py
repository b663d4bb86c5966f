"""Commands in forks of one process, which imports once what each would import for seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# What commands import that train or evaluate, without fairseq's commands and this package.
FAIRSEQ = ("torch", "hydra", "fairseq.trainer", "fairseq.sequence_generator")

_FORKS = """
import atexit, gc, importlib, json, os, runpy, sys
modules, commands = json.loads(sys.argv[1])
for name in modules:
    importlib.import_module(name)
gc.collect()
gc.freeze()
atexit.register(gc.freeze)  # Python's last collections would copy all pages
statuses = []
for words, folder, environment, log in commands:
    if child := os.fork():
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        continue
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{log}.{suffix}", os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    kind, *sys.argv = words
    if kind == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        exec(sys.argv[0], {"__name__": "__main__"})
    sys.exit()
print(json.dumps(statuses))
"""


@dataclass(frozen=True)
class Command:
    """What follows `python`: -m or -c, and words.

    environment: all of it.
    """

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def run_forks(commands: Sequence[Command], logs: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run the commands one after the other; what they print goes to files in a folder.

    No command may be about how the modules of `FAIRSEQ` are imported.
    """
    each = [
        (list(one.words), str(one.folder), dict(one.environment), str(logs / str(number)))
        for number, one in enumerate(commands)
    ]
    program = [sys.executable, "-c", _FORKS, json.dumps([FAIRSEQ, each])]
    done = subprocess.run(program, capture_output=True, text=True, timeout=280, check=True)
    return [
        subprocess.CompletedProcess(
            list(one.words),
            status,
            *((logs / f"{number}.{suffix}").read_text() for suffix in ("out", "err")),
        )
        for number, (one, status) in enumerate(
            zip(commands, json.loads(done.stdout.splitlines()[-1]), strict=True)
        )
    ]
