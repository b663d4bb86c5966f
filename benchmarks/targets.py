"""Targets of the benchmarks' ratios, shown beside each measured ratio as met or missed.

`python -m benchmarks.targets` writes them to the file from which the site of results reads them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.files import write_json
from fairseq_plugins.papers.lrpe_speed import LRPE

BOTH = ("cpu", "gpu")
# Rows of Table 9.
ROWS = ("base", "rope", "spe", "per", "t5", "alibi", *LRPE, "xl", "none")


@dataclass(frozen=True)
class Target:
    """A target for a ratio.

    Attributes:
        what: description of the ratio.
        benchmark: name of the benchmark that measures it.
        ratio: key of the ratio in the benchmark's result.
        bound: limit of the ratio.
        at_least: whether higher is better.
        devices: devices for which the target is set.
    """

    what: str
    benchmark: str
    ratio: str
    bound: float
    at_least: bool = False
    devices: tuple[str, ...] = BOTH

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    @property
    def bound_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:.2f}"


_OURS = {
    "linear": "causal linear, forward+backward,",
    "linear_encoded": "causal linear with encoded denominators, forward+backward,",
}
# Name and bounds by length of each contender.
_ON_CPU = {
    "softmax": ("SDPA causal", {512: 0.45, 2048: 0.20, 8192: 0.07}),
    "masked": ("masked quadratic", {512: 0.28, 2048: 0.08}),
    "recurrent": ("token-recurrent C++, -O3", {512: 0.70, 2048: 0.70, 8192: 0.70}),
    "recurrent_native": (
        "token-recurrent C++, -O3 -march=native -ffast-math",
        {512: 1.0, 2048: 0.75, 8192: 0.70},
    ),
}
_ON_GPU = {
    "flash": ("flash SDPA", {2048: 1.0, 4096: 0.5}),
    "flash_linear_attention": ("flash-linear-attention's chunk kernel", {2048: 0.7, 8192: 1.0}),
}
# Targets of Table 9: speed of each row relative to Base, by attention.
_ROTATIONS = ("lrpe_type1", "lrpe_type2", "lrpe_type3", "lrpe_type5", "lrpe_type6")
_PERMUTATIONS = ("lrpe_type4", "lrpe_type7", "per")
SPEEDS: dict[str, dict[str, float]] = {
    "linear": {
        "rope": 0.98,
        **dict.fromkeys((*_ROTATIONS, *_PERMUTATIONS), 0.97),
        "lrpe_type8": 0.85,
        "spe": 0.75,
    },
    "vanilla": {
        "rope": 0.98,
        **{f"lrpe_type{i}": 0.97 for i in range(1, 8)},
        "lrpe_type8": 0.92,  # 128 features where others have 64: 0.93 is the best possible
        "per": 0.97,
        "xl": 0.85,
        "alibi": 0.97,
        "t5": 0.85,
    },
}


def _expand(
    what: str, benchmark: str, ratio: str, bounds: Mapping[Any, float], **more: Any
) -> list[Target]:
    """Make a target for each bound, whose key replaces `{n}` in `what` and `ratio`."""
    return [
        Target(what.format(n=n), benchmark, ratio.format(n=n), bound, **more)
        for n, bound in bounds.items()
    ]


def _causal(device: str, contenders: Mapping[str, tuple[str, Mapping[int, float]]]) -> list[Target]:
    prefix = "H200, bf16, " if device == "gpu" else ""
    return [
        target
        for ours, text in _OURS.items()
        for other, (label, bounds) in contenders.items()
        for target in _expand(
            f"{prefix}{text} / {label}, N = {{n:,}}",
            "causal",
            f"{ours}/{other}@{{n}}",
            bounds,
            devices=(device,),
        )
    ]


def _all_targets() -> list[Target]:
    found = _causal("cpu", _ON_CPU)
    for ours, text in _OURS.items():
        what = f"{text} GFLOP/s / the thread's peak product, N = {{n:,}}"
        bounds = dict.fromkeys((512, 2048, 8192), 0.6)
        ratio = f"{ours}/peak_gemm@{{n}}"
        found += _expand(what, "causal", ratio, bounds, at_least=True, devices=("cpu",))
    found += _causal("gpu", _ON_GPU)
    found += _expand(
        "t(8192) / t(2048), {n}", "scaling", "{n}@8192/{n}@2048", dict.fromkeys(_OURS, 4.3)
    )
    for ours in _OURS:
        for part, bound in (("forward", 1.5), ("forward+backward", 7.2)):
            what = f"extra peak memory, {part}, {ours}, in [B,H,N,d] tensors, N = {{n:,}}"
            bounds = dict.fromkeys((2048, 8192, 32768), bound)
            found += _expand(what, "memory", f"{part} {ours}@{{n}}", bounds)
    what = "H200, bf16, softmax attention with `{n}`, forward+backward, / flash SDPA, N = 4,096"
    rows = dict.fromkeys(("alibi", "t5"), 1.5)
    found += _expand(what, "bias", "{n}/flash@4096", rows, devices=("gpu",))
    what = "H200, bf16, the same, memory at 8,192 / at 4,096, `{n}`"
    rows = dict.fromkeys(rows, 2.2)
    found += _expand(what, "bias", "memory {n} 4096->8192", rows, devices=("gpu",))
    what = "decoding step, linear, context 8192 / context 128"
    found.append(Target(what, "decoding", "linear@8192/linear@128", 1.1))
    for attention, rows in SPEEDS.items():
        what = f"Table 9, {attention}: speed of `{{n}}` against Base"
        found += _expand(what, "table9", f"{{n}} {attention}", rows, at_least=True)
    what = "whole LM step, linear / fairseq's transformer_lm, N = {n:,}"
    found += _expand(what, "lm_step", "linear/transformer_lm@{n}", {512: 0.85, 2048: 0.55})
    parts = ("forward+backward", "evaluation")
    for part in parts:
        what = f"cross-entropy from features, {part} / through logits, V = {{n:,}}"
        sizes = {267744: 0.7, 50265: 1.0, 8000: 1.0}
        found += _expand(what, "cross_entropy", f"{part} blockwise/plain@{{n}}", sizes)
    what, ratio = (
        "extra peak memory of the same, {n}, V = 267,744",
        "memory {n} blockwise/plain@267744",
    )
    found += _expand(what, "cross_entropy", ratio, dict.fromkeys(parts, 1 / 16))
    for part, what, peer in (
        ("tokenise", "tokenising", "sacremoses"),
        ("learn", "learning merges", "subword-nmt"),
        ("apply", "applying merges", "subword-nmt"),
    ):
        ratio = f"{part} ours/{peer}"
        found.append(Target(f"{what} / {peer}", "preparation", ratio, 1.0, devices=("cpu",)))
    return found


TARGETS = tuple(_all_targets())
FILE = Path(__file__).parent / "results" / "targets.json"


def as_data() -> dict[str, Any]:
    """Return all targets as JSON data."""
    return {"targets": [{**asdict(target), "devices": [*target.devices]} for target in TARGETS]}


if __name__ == "__main__":
    write_json(FILE, as_data())
