"""The benchmarks by name, with their sizes.

A new one is an entry here and a small file with a generator of cases, as decoding.py. Attentions to
compare are in contenders.py, targets in results/targets.json.
"""

from collections.abc import Sequence

from benchmarks.bias import biases
from benchmarks.context import BOTH, select
from benchmarks.cross_entropy import losses
from benchmarks.decoding import decoding
from benchmarks.denominators import denominators
from benchmarks.generation import generation
from benchmarks.kernels import OURS, causal, figure, memory, scaling
from benchmarks.models import language_model
from benchmarks.paper_speed import ROWS, paper_speed
from benchmarks.preparation import preparation, version_of, versions
from benchmarks.runner import Benchmark
from benchmarks.table9_cells import table9
from benchmarks.timing import Pace
from fairseq_plugins.attention.normalizers import NORMALIZER

# A sequence of 8 heads on a CPU, 8 sequences of 16 on a GPU.
_ATTENTION = {"batch": 1, "heads": 8, "head_dim": 64, "dtype": "float32"}
_ON_GPU = {"batch": 8, "heads": 16, "dtype": "bfloat16"}
_QUICK = {"heads": 2, "head_dim": 16}
_MODEL = {"layers": 4, "width": 512, "heads": 8, "ffn": 2048, "dictionary": 1000}
_MODEL_ON_GPU = {"dtype": "bfloat16 (autocast)"}
_QUICK_MODEL = {"layers": 1, "width": 32, "heads": 2, "ffn": 64, "dictionary": 50}
_BIASES = ["alibi", "t5", "kerple_log", "kerple_power", "sandwich", "scalar", "fire"]
_BIASES += ["tupe", "tupe_relative"]

BENCHMARKS: dict[str, Benchmark] = {
    "causal": Benchmark(
        "causal linear attention against other forms and peers, forward and backward",
        causal,
        _ATTENTION
        | {
            "lengths": [512, 2048, 8192],
            "contenders": dict.fromkeys((*OURS, "softmax", "recurrent", "recurrent_native"), 3)
            | {"fast_transformers": 3, "flash_linear_attention": 3, "masked": 2, "outer": 1},
        },
        gpu=_ON_GPU
        | {
            "lengths": [2048, 4096, 8192],
            "contenders": dict.fromkeys((*OURS, "flash", "flash_linear_attention"), 3),
        },
        quick=_QUICK | {"lengths": [64, 128]},
        minutes=4.0,
        shares=OURS,
    ),
    "scaling": Benchmark(
        "causal linear attention at a length four times as long",
        scaling,
        _ATTENTION | {"lengths": [2048, 8192]},
        gpu=_ON_GPU,
        quick=_QUICK | {"lengths": [128, 512]},
        minutes=2.0,
    ),
    "memory": Benchmark(
        "extra peak memory, in tensors of q's size [B,H,N,d], and its growth",
        memory,
        # Softmax at the longest takes minutes.
        _ATTENTION
        | {
            "lengths": [2048, 8192, 32768],
            "contenders": dict.fromkeys(OURS, 3) | {"softmax": 2},
        },
        gpu=_ON_GPU,
        quick=_QUICK | {"lengths": [64, 256]},
        minutes=1.5,
    ),
    "bias": Benchmark(
        "softmax attention with each additive bias against attention without one",
        biases,
        _ATTENTION | {"encodings": _BIASES, "length": 512, "memory_lengths": [512, 1024]},
        pace=Pace(8.0, 5, 100),
        # Each encoding is compiled twice, forward and backward: to be checked, and for all lengths.
        gpu=_ON_GPU
        | {"encodings": _BIASES[:2], "batch": 4, "length": 4096, "memory_lengths": [4096, 8192]},
        quick=_QUICK | {"encodings": _BIASES[:2], "length": 64, "memory_lengths": [64, 128]},
        minutes=2.0,
    ),
    "decoding": Benchmark(
        "a decoding step after a long context and a short one",
        decoding,
        _ATTENTION | {"position_encoding": "rope", "contexts": [128, 8192], "steps": 32},
        pace=Pace(8.0, 10, 200),
        gpu={"dtype": "bfloat16"},
        quick=_QUICK | {"contexts": [16, 64], "steps": 2},
        minutes=1.5,
    ),
    "denominators": Benchmark(
        "largest output of causal linear attention over its largest value, on random tokens",
        denominators,
        {"heads": 8, "head_dims": [8, 16, 32, 64], "encodings": ["rope", "lrpe_type2"]}
        | {"normalizers": ["clamped", "encoded"], "seeds": [1, 2, 3], "dtype": "float32"}
        | {"lengths": [128, 300, 512, 1024, 2048, 8192]},
        pace=None,
        quick={"heads": 2, "head_dims": [8], "lengths": [16, 64]},
        devices=["cpu"],
        more=dict,
    ),
    "generation": Benchmark(
        "generation by a Llama of Hugging Face with a replaced encoding against its own",
        generation,
        _MODEL
        | {"prompt": 128, "tokens": 64, "dtype": "float32"}
        | {"rows": [["rope", "vanilla"], ["lrpe_type2", "vanilla"], ["rope", "linear"]]},
        pace=Pace(60.0, 5, 50),
        quick=_QUICK_MODEL | {"prompt": 8, "tokens": 4},
        minutes=2.0,
        more=lambda: {"transformers": version_of("transformers")},
    ),
    "lm_step": Benchmark(
        "a language model's whole training step against fairseq's transformer_lm",
        language_model,
        _MODEL | {"batch": 1, "lengths": [512, 2048], "dtype": "float32"},
        pace=Pace(30.0, 5, 30),
        gpu=_MODEL_ON_GPU | {"layers": 6, "batch": 16},
        quick=_QUICK_MODEL | {"lengths": [16, 32]},
        minutes=3.0,
    ),
    "cross_entropy": Benchmark(
        "the output layer's loss without logits against the way through them",
        losses,
        # Of WikiText-103, of RoBERTa, and a small one.
        {"width": 512, "tokens": 2048, "vocabularies": [267744, 50265, 8000], "dtype": "float32"},
        pace=Pace(60.0, 3, 20),
        gpu={"dtype": "bfloat16"},
        quick={"width": 16, "tokens": 150, "vocabularies": [600, 50]},
        minutes=4.0,
    ),
    "table9": Benchmark(
        "speed of the bidirectional encoder's step against Base (LRPE, Table 9)",
        table9,
        _MODEL
        | {"batch": 2, "length": 512, "dtype": "float32"}
        | {"linear_normalizer": NORMALIZER},
        pace=Pace(18.0, 7, 100),
        gpu=_MODEL_ON_GPU | {"layers": 12, "width": 768, "heads": 12, "ffn": 3072, "batch": 32},
        quick=_QUICK_MODEL | {"batch": 2, "length": 16},
        minutes=12.0,
    ),
    "figure": Benchmark(
        "time and memory of causal attentions against the length",
        figure,
        # A single head, so that softmax at the longest takes seconds.
        _ATTENTION
        | {
            "heads": 1,
            "lengths": [512 * 2**i for i in range(7)],
            "contenders": dict.fromkeys((*OURS, "softmax"), 7) | {"masked": 4},
        },
        pace=Pace(3.0, 3, 100),
        gpu={"heads": 8, "dtype": "bfloat16"},
        quick={"head_dim": 16, "lengths": [64, 128]},
        minutes=4.0,
    ),
    "preparation": Benchmark(
        "tokenising, learning merges and applying them against the libraries for it",
        preparation,
        {"lines": 20_000, "words": 40_000, "merges": 10_000, "seed": 1},
        pace=Pace(40.0, 3, 7),
        quick={"lines": 50, "words": 200, "merges": 50},
        devices=["cpu"],
        more=versions,
    ),
    "paper_speed": Benchmark(
        "tokens per second of Table 2's recipe at scale paper, on a generated corpus",
        paper_speed,
        # Symbols with fairseq's four; the most seconds of each row, with its start, and updates.
        {"recipe": "wikitext103_lm", "scale": "paper", "rows": list(ROWS)}
        | {"dictionary": 267_744, "tokens": 4_000_000, "seconds": 75.0, "updates": 1_000_000},
        pace=None,
        quick={"scale": "toy", "dictionary": 100, "tokens": 20_000, "updates": 8},
        minutes=7.5,
        devices=["gpu"],
        more=lambda: {"corpus": "generated, words 1 / rank"},
    ),
}


def check_names(names: Sequence[str] | None, device: str, *, quick: bool = False) -> list[str]:
    """Select benchmarks in the catalogue's order, by default all of a device.

    Raises:
        ValueError: an unknown name, with a suggestion, or a benchmark of another device.
    """
    chosen = select(names, BENCHMARKS)
    devices = BOTH if quick and device == "cpu" else [device]
    there = [name for name in chosen if {*devices} & {*BENCHMARKS[name].devices}]
    if names and there != chosen:
        raise ValueError(
            f"`--only` must be among the benchmarks of `--device {device}`, but has "
            f"{min({*chosen} - {*there})!r}."
        )
    return there
