"""Stands for Slurm's commands in tests of what is submitted."""

import types

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.records.runs import Run


class FakeSlurm:
    """Answers sbatch with numbers from 100 on, and squeue with the jobs in `queued`.

    refused: the names of jobs that sbatch does not take. answer: what it prints, with `{}` for the
    number.
    """

    def __init__(self, root):
        self.root, self.queued, self.submitted, self.refused = root, {}, [], ()
        self.next, self.answer = 100, "{}\n"

    def run(self, command, **_):
        done = types.SimpleNamespace(returncode=0, stdout="", stderr="")
        if command[0] == "sbatch" and command[2].removeprefix("--job-name=") in self.refused:
            done.returncode = 1
        elif command[0] == "sbatch":
            self.submitted.append(command)
            done.stdout = self.answer.format(self.next)
            self.next += 1
        elif command[0] == "squeue":
            lines = [f"{n}|{name}|PENDING|Priority|1:00|{self.root}" for name, n in
                     self.queued.items()]  # fmt: skip
            done.stdout = "\n".join([*lines, "7|of another folder|RUNNING|None|1:00|/elsewhere"])
        return done

    def keep(self):
        """What was submitted waits in the queue from now on, and is forgotten here."""
        first = self.next - len(self.submitted)
        self.queued |= {name: first + place for place, name in enumerate(self.names())}
        self.submitted.clear()

    def names(self):
        return [word.partition("=")[2] for command in self.submitted for word in command
                if word.startswith("--job-name")]  # fmt: skip

    def dependency(self, name):
        (command,) = [c for c in self.submitted if f"--job-name={name}" in c]
        (word,) = [word for word in command if word.startswith("--dependency")]
        return word.partition("=")[2]


def planned(place, table, *rows, gpus=0, attention="vanilla", scale="toy"):
    devices = Devices(gpus, srun=gpus > 0)
    runs = [Run(table, scale, row, attention, 1) for row in rows]
    return [plan_run(place / "configs", run, devices) for run in runs]
