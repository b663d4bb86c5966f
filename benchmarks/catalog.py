"""The benchmarks by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.bias import bias_settings, run_bias
from benchmarks.context import Context, Settings
from benchmarks.cross_entropy import cross_entropy_settings, run_cross_entropy
from benchmarks.decoding import decoding_settings, run_decoding
from benchmarks.kernels import (
    OURS,
    causal_settings,
    figure_settings,
    memory_settings,
    run_causal,
    run_figure,
    run_memory,
    run_scaling,
    scaling_settings,
)
from benchmarks.language_model import language_model_settings, run_language_model
from benchmarks.limits import between_peaks
from benchmarks.preparation import preparation_settings, run_preparation
from benchmarks.record import Found
from benchmarks.table9_cells import run_table9, table9_settings
from benchmarks.targets import BOTH
from fairseq_plugins.common.suggestions import did_you_mean


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its settings for (device, quick), its function, and its devices."""

    summary: str
    settings: Callable[[str, bool], Settings]
    run: Callable[[Settings, Context], Found]
    devices: tuple[str, ...] = BOTH


BENCHMARKS: dict[str, Benchmark] = {
    "causal": Benchmark(
        "causal linear attention against other forms and peers, forward and backward",
        causal_settings,
        between_peaks(run_causal, shares=OURS),
    ),
    "scaling": Benchmark(
        "causal linear attention at a length four times as long",
        scaling_settings,
        between_peaks(run_scaling),
    ),
    "memory": Benchmark(
        "extra peak memory, in tensors of q's size [B,H,N,d], and its growth",
        memory_settings,
        between_peaks(run_memory),
    ),
    "bias": Benchmark(
        "softmax attention with each additive bias against attention without one",
        bias_settings,
        between_peaks(run_bias),
    ),
    "decoding": Benchmark(
        "a decoding step after a long context and a short one",
        decoding_settings,
        between_peaks(run_decoding),
    ),
    "lm_step": Benchmark(
        "a language model's whole training step against fairseq's transformer_lm",
        language_model_settings,
        between_peaks(run_language_model),
    ),
    "cross_entropy": Benchmark(
        "the output layer's loss without logits against the way through them",
        cross_entropy_settings,
        between_peaks(run_cross_entropy),
    ),
    "table9": Benchmark(
        "speed of the bidirectional encoder's step against Base (LRPE, Table 9)",
        table9_settings,
        run_table9,
    ),
    "figure": Benchmark(
        "time and memory of causal attentions against the length",
        figure_settings,
        between_peaks(run_figure),
    ),
    "preparation": Benchmark(
        "tokenising, learning merges and applying them against the libraries for it",
        preparation_settings,
        run_preparation,
        devices=("cpu",),
    ),
}


def check_names(names: Sequence[str] | None, device: str) -> list[str]:
    """Select benchmarks in the catalogue's order, by default all of a device.

    Raises:
        ValueError: an unknown name, with a suggestion, or a benchmark of another device.
    """
    if names is None:
        return [name for name, benchmark in BENCHMARKS.items() if device in benchmark.devices]
    for name in names:
        if name not in BENCHMARKS:
            hint = did_you_mean(name, BENCHMARKS)
            raise ValueError(
                f"`--only` must be among {', '.join(BENCHMARKS)}, but has {name!r}.{hint}"
            )
        if device not in BENCHMARKS[name].devices:
            raise ValueError(
                f"`--only` must be among the benchmarks of `--device {device}`, but has {name!r}."
            )
    return [name for name in BENCHMARKS if name in names]
