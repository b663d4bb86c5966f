"""Installed packages, the attention paths they select, and whether training can run.

``gather_facts`` looks and returns ``Facts``; ``diagnose`` is a pure function from them to a
``Report``. torch and fairseq are imported only when they are looked for: either may be missing.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fairseq_plugins.common import extras
from fairseq_plugins.common.extras import EXTRAS
from fairseq_plugins.common.parser import Parser

MODEL = "pe_transformer_lm"
OLDEST_PYTHON = (3, 11)
FLASH_CAPABILITY = (8, 0)  # of PyTorch's flash kernel, and of bfloat16 on a GPU
TRITON_CAPABILITY = (8, 0)  # of kernels/backend.py, which imports torch


@dataclass(frozen=True)
class Package:
    """A package: its version, or None with the reason why it cannot be imported."""

    version: str | None
    error: str = ""


MISSING = Package(None, "not installed")


@dataclass(frozen=True)
class Gpu:
    """A GPU: name, compute capability (major, minor), memory in GiB."""

    name: str
    capability: tuple[int, int]
    memory_gib: float


@dataclass(frozen=True)
class Facts:
    """Facts about this interpreter, its packages and GPUs.

    ``registration_error`` is empty if fairseq knows ``MODEL``.
    """

    python: tuple[int, int, int]
    torch: Package = MISSING
    fairseq: Package = MISSING
    hydra: Package = MISSING
    apex: Package = MISSING
    triton: Package = MISSING
    native: bool = False  # whether the C++ kernel was compiled
    cpu_threads: int | None = None
    cuda_build: str | None = None  # the CUDA version that torch was built for
    cuda_architectures: tuple[str, ...] = ()  # of that build, e.g. sm_80
    gpus: tuple[Gpu, ...] = ()
    lacking: Mapping[str, Sequence[str]] = field(default_factory=dict)  # modules of each extra
    registration_error: str = ""


@dataclass(frozen=True)
class Problem:
    """A reason why training cannot run, and how to mend it."""

    problem: str
    remedy: str


@dataclass(frozen=True)
class Report:
    """The diagnosis: facts, attention paths, and problems that prevent training.

    ``found`` and ``attention_paths`` map a subject to a line of text.
    """

    found: dict[str, str]
    attention_paths: dict[str, str]
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether training can run."""
        return not self.problems

    def to_json(self) -> str:
        """Format the report as a JSON object: ok, found, attention_paths and problems."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=2)

    def to_text(self) -> str:
        """Format the report as text."""
        lines = ["Found"]
        lines += [f"  {name}: {text}" for name, text in self.found.items()]
        if self.attention_paths:
            lines += ["", "Attention paths"]
            lines += [f"  {name}: {text}" for name, text in self.attention_paths.items()]
        lines += ["", "Training can run." if self.ok else "Training cannot run:"]
        for item in self.problems:
            lines += [f"  - {item.problem}", f"    remedy: {item.remedy}"]
        return "\n".join(lines)


def diagnose(facts: Facts) -> Report:
    """Derive the report from the facts alone."""
    return Report(_found(facts), _attention_paths(facts), _problems(facts))


def _found(facts: Facts) -> dict[str, str]:
    found = {"python": ".".join(map(str, facts.python))}
    for name in ("torch", "fairseq", "hydra"):
        package = getattr(facts, name)
        found[name] = package.version or package.error
    if facts.cpu_threads is not None:
        found["cpu threads"] = str(facts.cpu_threads)
    found["cuda"] = _cuda(facts)
    for index, gpu in enumerate(facts.gpus):
        major, minor = gpu.capability
        found[f"gpu {index}"] = (
            f"{gpu.name}, compute capability {major}.{minor}, {gpu.memory_gib:.0f} GiB"
        )
    apex = facts.apex.version
    found["apex"] = (
        f"{apex}: fairseq takes FusedAdam and FusedLayerNorm from it"
        if apex
        else f"{facts.apex.error} (optional)"
    )
    found["triton"] = facts.triton.version or f"{facts.triton.error} (optional)"
    for extra, modules in facts.lacking.items():
        what = EXTRAS[extra][0]
        lacks = f"missing, for {what}: {', '.join(modules)}; {extras.install_command(extra)}"
        found[f"extra {extra}"] = lacks if modules else f"installed: {what}"
    return found


def _cuda(facts: Facts) -> str:
    if facts.torch.version is None:
        return "unknown without torch"
    if facts.cuda_build is None:
        return "no: this torch is built for the CPU"
    if not facts.gpus:
        return f"no: torch is built for CUDA {facts.cuda_build}, but sees no GPU"
    return f"yes: CUDA {facts.cuda_build}, {len(facts.gpus)} GPU(s)"


def _attention_paths(facts: Facts) -> dict[str, str]:
    if facts.torch.version is None:
        return {}
    device = "GPU" if facts.gpus else "CPU"
    linear = f"chunked PyTorch path on the {device}"
    weakest = min((gpu.capability for gpu in facts.gpus), default=(0, 0))
    if device == "CPU":
        linear = f"compiled C++ kernel in float32 where causal, else {linear}"
        if not facts.native:
            linear = (
                "chunked PyTorch path on the CPU (the C++ kernel, twice as fast, was not compiled: "
                "with a C++ compiler, install this package again)"
            )
    if facts.triton.version and weakest >= TRITON_CAPABILITY:
        linear = "Triton kernel on the GPU where causal, else PyTorch"
    return {
        "softmax": f"scaled_dot_product_attention, {_softmax_kernel(facts)}",
        "softmax with relative_values": f"explicit weights in PyTorch on the {device}",
        "linear": f"{linear}; time and memory linear in the length",
    }


def _softmax_kernel(facts: Facts) -> str:
    """Return the kernel that PyTorch selects on the GPU with the lowest capability."""
    if not facts.gpus:
        return "CPU flash kernel (math kernel with attention dropout or a trained bias)"
    capability = min(gpu.capability for gpu in facts.gpus)
    if capability >= FLASH_CAPABILITY:
        return (
            "flash kernel in float16 and bfloat16 (memory-efficient kernel in float32, or with "
            "a mask or bias)"
        )
    return (
        "memory-efficient kernel in float32 and float16 (flash and bfloat16 need compute "
        "capability {}.{}, this is {}.{})".format(*FLASH_CAPABILITY, *capability)
    )


def _problems(facts: Facts) -> list[Problem]:
    problems = []
    if facts.python < OLDEST_PYTHON:
        version, oldest = (".".join(map(str, v)) for v in (facts.python, OLDEST_PYTHON))
        problem = f"Python must be {oldest} or newer, but is {version}"
        remedy = "set up again with a newer one: make setup PYTHON=python3.12"
        problems.append(Problem(problem, remedy))
    if facts.torch.version is None:
        remedy = "make setup, or install the torch of requirements.txt"
        problems.append(Problem(f"torch cannot be imported: {facts.torch.error}", remedy))
    if facts.fairseq.version is None:
        remedy = (
            f"make setup, or {extras.install_command('train')}; in place of it after torch: pip "
            "install --no-build-isolation fairseq-fixed (the package named fairseq does not "
            "import on Python 3.11 and newer)"
        )
        problems.append(Problem(f"fairseq cannot be imported: {facts.fairseq.error}", remedy))
    if not problems and facts.registration_error:
        problem = f"fairseq does not know the model {MODEL}: {facts.registration_error}"
        remedy = "run from the repository, or install it: pip install --no-deps -e ."
        problems.append(Problem(problem, remedy))
    # A GPU that this build of torch has no code for is found, but cannot run anything.
    for capability in sorted({gpu.capability for gpu in facts.gpus}):
        if facts.cuda_architectures and not carries(facts.cuda_architectures, capability):
            remedy = "hide the GPU (CUDA_VISIBLE_DEVICES=) or install a build of torch for it"
            if capability == (7, 0):
                remedy = "install the torch build for CUDA 12.6, as requirements.txt says"
            problem = "this build of torch has no code for sm_{}{}, only for ".format(*capability)
            problems.append(Problem(problem + ", ".join(facts.cuda_architectures), remedy))
    return problems


def carries(architectures: Sequence[str], capability: tuple[int, int]) -> bool:
    """Return whether a build for ``architectures`` runs on a GPU of that compute capability.

    Machine code (``sm_86``) runs on the same major and any later minor version, code with a
    letter (``sm_90a``) only on exactly its own; PTX (``compute_80``) on anything later.
    """
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", name)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        runs_later = not match[4] and (match[1] == "compute" or built[0] == capability[0])
        if built == capability or (runs_later and built <= capability):
            return True
    return False


def gather_facts() -> Facts:
    """Look at this interpreter, its packages and GPUs."""
    torch, fairseq = _package("torch"), _package("fairseq")
    seen: dict[str, Any] = _torch_facts() if torch.version else {}
    return Facts(
        python=sys.version_info[:3],
        torch=torch,
        fairseq=fairseq,
        hydra=_package("hydra"),
        apex=_apex(),
        triton=_package("triton"),
        lacking={extra: extras.missing_modules(extra) for extra in EXTRAS},
        registration_error=_registration_error() if fairseq.version else "",
        **seen,
    )


def _package(name: str) -> Package:
    if find_spec(name) is None:
        return MISSING
    try:
        module = import_module(name)
    except Exception as error:  # whatever a broken package raises is the finding
        return Package(None, f"{type(error).__name__}: {error}")
    return Package(str(getattr(module, "__version__", "of unknown version")))


def _apex() -> Package:
    """Look for NVIDIA's apex; PyPI has another package of that name."""
    found = _package("apex")
    if found.version:
        try:
            import_module("apex.optimizers")
            import_module("apex.normalization")
        except Exception as error:
            return Package(None, f"not used, since it is not NVIDIA's or is broken: {error}")
    return found


def _torch_facts() -> dict[str, Any]:
    import torch

    from fairseq_plugins.kernels import native

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.cuda.get_device_properties(index) for index in range(count)]
    return {
        "cpu_threads": torch.get_num_threads(),
        "cuda_build": torch.version.cuda,
        "cuda_architectures": tuple(torch.cuda.get_arch_list()),
        "gpus": tuple(Gpu(g.name, (g.major, g.minor), g.total_memory / 2**30) for g in gpus),
        "native": native.library() is not None,
    }


def _registration_error() -> str:
    """Return why fairseq lacks ``MODEL`` after the plugin was imported; empty if it has it."""
    try:
        import_module("fairseq_plugins.registration")
        registry = import_module("fairseq.models").MODEL_REGISTRY
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if MODEL in registry else "importing fairseq_plugins.registration did not register it"


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe doctor",
        description="Say what is installed, which attention paths that selects, and whether "
        "training can run (exit status 0) or not (1).",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; return the exit status, 0 if training can run, else 1."""
    arguments = get_parser().parse_args(argv)
    report = diagnose(gather_facts())
    print(report.to_json() if arguments.json else report.to_text())
    return 0 if report.ok else 1
