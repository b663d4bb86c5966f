"""fairseq-hydra-train that records the loss of every update, optionally in float64.

    python -P observed_training.py RESULT float64 --config-dir configs ...

Nothing of this project is imported, since the working folder may be another checkout. fairseq has
no option for float64, so that its functions are replaced in this process.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.tasks.fairseq_task import LegacyFairseqTask
from fairseq_cli.hydra_train import cli_main

WARM = 20  # updates before the clock starts


def compute_in_float64() -> None:
    """Make parameters, losses and the gradient norm float64."""
    build = LegacyFairseqTask.build_model

    def build_double(self: Any, *args: Any, **named: Any) -> Any:
        return build(self, *args, **named).double()

    def clip(parameters: Any, max_norm: float, aggregate_norm_fn: Any = None) -> Any:
        return torch.nn.utils.clip_grad_norm_(list(parameters), max_norm or float("inf"))

    LegacyFairseqTask.build_model = build_double
    utils.clip_grad_norm_ = clip
    utils.log_softmax = lambda x, dim, onnx_trace=False: torch.log_softmax(x.double(), dim)


def main(result: Path, dtype: str, arguments: list[str]) -> None:
    """Train, then write nats per token of every update and tokens per second."""
    losses: list[float] = []
    tokens: list[int] = []
    times: list[float] = []
    forward = CrossEntropyCriterion.forward

    def observed(self: Any, model: Any, sample: Any, reduce: bool = True) -> Any:
        times.append(time.perf_counter())
        loss, size, log = forward(self, model, sample, reduce)
        losses.append(loss.item() / size)
        tokens.append(sample["ntokens"])
        return loss, size, log

    CrossEntropyCriterion.forward = observed
    if dtype == "float64":
        compute_in_float64()
    sys.argv = ["fairseq-hydra-train", *arguments]
    cli_main()
    first = min(WARM, len(times) // 2)
    speed = sum(tokens[first:-1]) / (times[-1] - times[first])
    result.write_text(json.dumps({"losses": losses, "tokens_per_second": speed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
