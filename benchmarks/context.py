"""Device and folders of a run, and the options that choose them."""

import argparse
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.common import provenance
from fairseq_plugins.common.cpu import prepare_cpu
from fairseq_plugins.common.suggestions import did_you_mean

if TYPE_CHECKING:  # slow to import; --help stays fast
    import torch

ROOT = Path(__file__).resolve().parents[1]
BOTH = ("cpu", "gpu")
Settings = dict[str, Any]  # recorded in the JSON


say = functools.partial(print, flush=True)  # progress, without buffering


@dataclass(frozen=True)
class Context:
    """Device, folders and options of a run.

    Attributes:
        name: ``cpu`` or ``gpu``.
        output: folder with ``benchmarks/results`` and ``results/table9``.
        machine: name of the machine, whose folder then holds Table 9 too; None for the processor's.
        apart: subfolder of Table 9's results, to keep cells from the published ones.
    """

    name: str
    output: Path
    command: Sequence[str] = ()
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
        """The usual dtype of kernels on the device."""
        import torch

        return torch.bfloat16 if self.name == "gpu" else torch.float32

    @property
    def gpus(self) -> int:
        return 1 if self.name == "gpu" else 0

    @property
    def results(self) -> Path:
        return self.output / "benchmarks" / "results" / (self.machine or machine_name(self.gpus))

    @property
    def folder(self) -> Path:
        """The folder of the device's results, with the page beside it."""
        return self.results / self.name

    @property
    def table9(self) -> Path:
        """The folder of Table 9's cells, with the page beside it."""
        folder = self.results if self.machine else self.output / "results"
        return folder / "table9" / self.apart / self.name


def machine_name(gpus: int) -> str:
    """Name a folder after the model of the machine's processor or GPU."""
    hardware = provenance.hardware(gpus)
    model = re.sub(r"\((R|TM)\)", " ", " ".join(hardware["gpus"]) or hardware["cpu"])
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "unknown"


def add_options(parser: argparse.ArgumentParser, *, quick: str = "") -> None:
    """Add the options of the results' folder; given the help of `--quick`, all that are shared."""
    add = parser.add_argument
    add(
        "--machine",
        type=folder_name("--machine"),
        metavar="NAME",
        help="keep the results in benchmarks/results/NAME, those of Table 9 too (default: the name "
        "of the processor, and Table 9 in results/table9)",
    )
    text = "folder in place of the repository (default with --quick: outputs/benchmarks)"
    add("--output", type=Path, metavar="DIR", help=text)
    parser.set_defaults(device="cpu", quick=False, force=False, name=None)
    if quick:
        add("--device", choices=BOTH, default="cpu", help="(default: cpu, one thread)")
        add("--quick", action="store_true", help=quick)
        add("--force", action="store_true", help="measure again what is done")


def context_of(args: argparse.Namespace, command: Sequence[str] = ()) -> Context:
    """Make the context of parsed options; a quick run writes to outputs/ by default.

    command: the command line, if it is not the program's own.
    """
    is_elsewhere = args.quick and not args.name
    output = args.output or (ROOT / "outputs" / "benchmarks" if is_elsewhere else ROOT)
    command = command or (*args.program.split(), *args.command_line)
    return Context(args.device, output, command, args.machine, args.name or "", args.force)


def check_device(name: str) -> None:
    """Raise ValueError for a device that cannot be used."""
    import torch

    if name == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "`--device gpu` needs a GPU, but torch finds none here "
            "(torch.cuda.is_available() is False); `make bench` measures the CPU."
        )


def prepare_process(device: str) -> None:
    """Check the device, and prepare this process for measuring on one thread."""
    import torch

    check_device(device)
    prepare_cpu()
    torch.set_num_threads(1)


def select(names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Select the names that `--only` gives, in the order of the known ones; all by default.

    Raises:
        ValueError: an unknown name; the message suggests a similar one.
    """
    known = [*known]
    for name in names or ():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"`--only` must be among {', '.join(known)}, but has {name!r}.{hint}")
    return [name for name in known if names is None or name in names]


def folder_name(option: str) -> Callable[[str], str]:
    """Make an argparse type for a word that can name a folder."""

    def parse(word: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", word):
            raise argparse.ArgumentTypeError(
                f"`{option}` must be letters, digits, dots, hyphens and underscores, but is "
                f"{word!r}."
            )
        return word

    return parse
