"""Where a benchmark runs."""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.record import ROOT
from fairseq_plugins.common import provenance

if TYPE_CHECKING:  # PyTorch takes seconds, which a command's --help must not
    import torch

Settings = dict[str, Any]  # what goes into the JSON


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
        machine: whose results they are, None for one named after its processor; those of a machine
            that is named keep Table 9 beside them.
        apart: a folder among those of Table 9, for cells that are not to meet the published ones.
    """

    name: str
    output: Path
    command: tuple[str, ...] = ()
    machine: str | None = None
    apart: str = ""
    force: bool = False
    say: Callable[[str], None] = say

    @property
    def device(self) -> "torch.device":
        import torch

        return torch.device("cuda" if self.name == "gpu" else "cpu")

    @property
    def dtype(self) -> "torch.dtype":
        """Of kernels alone: what is usual there."""
        import torch

        return torch.bfloat16 if self.name == "gpu" else torch.float32

    @property
    def gpus(self) -> int:
        return 1 if self.name == "gpu" else 0

    @property
    def results(self) -> Path:
        return self.output / "benchmarks" / "results" / (self.machine or machine_name(self.name))

    @property
    def table9(self) -> Path:
        """Of the cells of Table 9, with their page beside it."""
        folder = self.results if self.machine else self.output / "results"
        return folder / "table9" / self.apart / self.name


def machine_name(device: str) -> str:
    """A folder's name for this machine, after the model of its processor or its GPU."""
    hardware = provenance.hardware(1 if device == "gpu" else 0)
    model = re.sub(r"\((R|TM)\)", " ", " ".join(hardware["gpus"]) or hardware["cpu"])
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "unknown"


def context_of(args: argparse.Namespace, command: Sequence[str]) -> Context:
    """What the options say; a tiny run's findings are no results and go elsewhere."""
    apart: str = getattr(args, "name", None) or ""  # of Table 9 alone
    is_elsewhere = args.quick and not apart
    output = args.output or (ROOT / "outputs" / "benchmarks" if is_elsewhere else ROOT)
    return Context(args.device, output, tuple(command), args.machine, apart, args.force)


def device_problem(name: str) -> str | None:
    """Why nothing can be measured on a device; None where it can."""
    import torch

    if name == "gpu" and not torch.cuda.is_available():
        return (
            "`--device gpu` needs a GPU, but torch finds none here "
            "(torch.cuda.is_available() is False); `make bench` measures the CPU."
        )
    return None
