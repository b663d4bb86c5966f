"""Where a benchmark runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Settings = dict[str, Any]  # what goes into the JSON
DEVICES = ("cpu", "gpu")


def say(text: str) -> None:
    """Progress, at once even into a pipe."""
    print(text, flush=True)


@dataclass(frozen=True)
class Context:
    """The device by its name in the results' folders, where those are, and how to say something.

    Attributes:
        name: ``cpu`` or ``gpu``.
        output: folder that holds ``benchmarks/results`` and ``results/table9``.
        command: what was typed.
    """

    name: str
    output: Path
    command: tuple[str, ...] = ()
    force: bool = False
    say: Callable[[str], None] = say

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.name == "gpu" else "cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Of kernels alone: what is usual there."""
        return torch.bfloat16 if self.name == "gpu" else torch.float32

    @property
    def gpus(self) -> int:
        return 1 if self.name == "gpu" else 0

    @property
    def results(self) -> Path:
        return self.output / "benchmarks" / "results"


def device_problem(name: str) -> str | None:
    """Why nothing can be measured on a device; None where it can."""
    if name == "gpu" and not torch.cuda.is_available():
        return (
            "`--device gpu` needs a GPU, but torch finds none here "
            "(torch.cuda.is_available() is False); `make bench` measures the CPU."
        )
    return None
