"""Parts one after the other within a budget of time, each done once."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.campaign_parts import Part
from benchmarks.context import device_problem, say
from benchmarks.record import ROOT, circumstances, end_of_run, load_average, still_holds
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.provenance import without_absolute_paths
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.runner.launcher import ProcessLauncher

DONE, FAILED, CUT_OFF, LEFT = "done", "failed", "cut off", "left"
TAIL_LINES = 15


class TimeIsUp(Exception):
    """The budget is used up while a part runs."""


def select(parts: Sequence[Part], names: Sequence[str] | None) -> list[Part]:
    """The parts of these names, all by default.

    Raises:
        ValueError: for an unknown one, with the nearest name.
    """
    known = [part.name for part in parts]
    for name in names or ():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"`--only` must be among {', '.join(known)}, but has {name!r}.{hint}")
    return [part for part in parts if names is None or part.name in names]


@dataclass
class Campaign:
    """Parts and the budget they share.

    Attributes:
        output: holds states/<part>.json and logs/<part>.log, beside what the parts write.
        clock: seconds, for tests.
    """

    output: Path
    parts: Sequence[Part]
    minutes: float
    quick: bool = False
    force: bool = False
    say: Callable[[str], None] = say
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def device(self) -> str:
        return "cpu" if self.quick else "gpu"

    def problem(self) -> str | None:
        """Why nothing can be measured here; None where it can."""
        return None if self.quick else device_problem("gpu")

    @cached_property
    def around(self) -> dict[str, Any]:
        """Sources, versions and hardware, by which a part is done or not."""
        return circumstances(0 if self.quick else 1)

    def minutes_left(self) -> float:
        return self.minutes - (self.clock() - self._began) / 60

    def state(self, part: Part) -> dict[str, Any]:
        """What is known of a part from before; empty where that is nothing."""
        try:
            found = json.loads(self._state_path(part).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def is_done(self, part: Part) -> bool:
        """Return whether it need not be done again."""
        state = self.state(part)
        expected = {"quick": self.quick, **self.around}
        return not self.force and state.get("status") == DONE and still_holds(state, expected)

    def estimate(self, part: Part) -> float:
        """Minutes: those of an attempt before of the same size, else what is thought.

        What was cut off takes longer than it took.
        """
        state = self.state(part)
        seconds = state.get("wall_seconds")
        if state.get("quick") != self.quick or not isinstance(seconds, int | float):
            return part.minutes
        if state.get("status") == DONE:
            return seconds / 60
        return max(part.minutes, 1.5 * seconds / 60 if state.get("status") == CUT_OFF else 0.0)

    def list_parts(self) -> None:
        """A line for each part."""
        for part in self.parts:
            self.say(f"{part.name:26} {self.estimate(part):5.1f} min  {part.summary}")

    def announce(self) -> None:
        """What `run` would do, without doing it or asking for a device."""
        left = self.minutes
        for part in self.parts:
            takes = self.estimate(part)
            if not self.force and self.state(part).get("status") == DONE:
                verdict = "done before, unless something changed since"
            elif takes > left:
                verdict = "would be left, for lack of time"
            else:
                verdict, left = "would be done", left - takes
            self.say(f"{part.name} ({takes:.1f} min): {verdict}\n  {' '.join(part.command)}")

    def run(self) -> int:
        """Do what is not done and fits; the exit status."""
        found: dict[str, str] = {}
        for number, part in enumerate(self.parts, 1):
            head = f"[{number}/{len(self.parts)}] {part.name}"
            takes, left = self.estimate(part), self.minutes_left()
            if self.is_done(part):
                found[part.name] = DONE
                self.say(f"{head}: done before")
            elif takes > left:
                found[part.name] = LEFT
                self.say(f"{head}: left, it takes {takes:.1f} min and {max(left, 0):.1f} are left")
            else:
                self.say(f"{head}: {part.summary} (about {takes:.1f} of {left:.1f} min)")
                try:
                    found[part.name] = self._do(part)
                except KeyboardInterrupt:
                    return 130
        self._summarise(found)
        return 0 if set(found.values()) <= {DONE} else 1

    def _do(self, part: Part) -> str:
        log = self.output / "logs" / f"{part.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        load, began = load_average(), self.clock()
        code: int | None = None
        try:
            code = ProcessLauncher(ROOT)(part.command, log, self._check_time)
            status = FAILED if code else DONE
        except TimeIsUp:
            status = CUT_OFF
        state = {
            "part": part.name,
            "status": status,
            "exit_status": code,
            "quick": self.quick,
            "command": without_absolute_paths(["python", *part.command[1:]]),
            **self.around,
            **end_of_run(load, self.clock() - began),
        }
        write_json(self._state_path(part), state)
        if status != DONE:
            self.say(f"  {status}; the end of {log}:")
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            self.say("\n".join(f"  | {line}" for line in lines[-TAIL_LINES:]))
        return status

    def _check_time(self, lines: list[str]) -> None:
        del lines
        if self.minutes_left() <= 0:
            raise TimeIsUp

    def _state_path(self, part: Part) -> Path:
        return self.output / "states" / f"{part.name}.json"

    def _summarise(self, found: dict[str, str]) -> None:
        lines = []
        for name, status in found.items():
            state = self.state(next(part for part in self.parts if part.name == name))
            seconds = state.get("wall_seconds") if status != LEFT else None
            lines.append([name, status, "-" if seconds is None else f"{seconds:.0f}"])
        self.say("\n" + markdown_table(["part", "state", "seconds"], lines, left=2))
        self.say(f"results below {self.output}; called again, what is not done goes on")
