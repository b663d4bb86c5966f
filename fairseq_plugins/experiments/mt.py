"""Translation: Table 4 of LRPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.experiments.base import Experiment, Metrics, Scale, Step, scales
from fairseq_plugins.experiments.training import Training
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import Loss, MetricsSchema, Percent, Perplexity, perplexity
from fairseq_plugins.records.runs import Run
from fairseq_plugins.translation.decoding import Decoding

DECODING = Decoding()
SUBSETS = ("valid", "test")
TOKENS_PER_BATCH = 4000  # sets how far a hypothesis may go that does not end


class Bleu(MetricsSchema):
    """BLEU of both splits, and what the checkpoint loses on the validation set.

    The loss is the cross-entropy without label smoothing, in bits a piece; older results have none.
    """

    valid_bleu: Percent
    test_bleu: Percent
    valid_loss: Loss | None = None
    valid_ppl: Perplexity | None = None


@dataclass(frozen=True)
class Translation(Experiment):
    """Trained by `translation`, measured by SacreBLEU of detokenised text.

    A run that is ``linear`` has linear attention and the row's encoding in the encoder only, as in
    the paper ("we only embed the linear attention and its corresponding relative positional
    encoding in encoders"): the decoder is Base's. ``vanilla`` has the row's encoding on both sides,
    and ``linear_both`` linear attention too.
    """

    def attention(self, word: str) -> dict[str, str | float]:
        if word == "linear_both":
            return {"encoder_attention_type": "linear", "decoder_attention_type": "linear"}
        if word == "linear":
            return {"encoder_attention_type": "linear", "decoder_position_encoding": "base"}
        return {"encoder_attention_type": word}

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        decoded = (
            (generate(training, checkpoint, subset, gpus), _score(training, subset))
            for subset in SUBSETS
        )
        return [_validate(training, checkpoint, gpus), *chain.from_iterable(decoded)]

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"Decoding: beam {DECODING.beam}, length penalty {DECODING.length_penalty}, of one "
            "checkpoint, not an average. BLEU is SacreBLEU of detokenised output against the raw "
            "reference, for the validation set too, where the paper's is BLEU of tokens.",
            "Loss is the cross-entropy without label smoothing, in bits a piece; the paper's "
            "caption names a validation loss, its table has none.",
            "Linear: linear attention and the row's encoding in the encoder only, as in the paper; "
            "the decoder is Base's. Vanilla: the encoding in encoder and decoder.",
        ]


def _validate(training: Training, checkpoint: Path, gpus: int) -> Step:
    """fairseq-validate of the checkpoint that is decoded."""
    command = [
        "fairseq-validate",
        training.data.as_posix(),
        "--task",
        training.config["task"]["_name"],
        "--path",
        checkpoint.as_posix(),
        "--valid-subset",
        "valid",
        "--log-format",
        "json",
        *_on_all_sentences(gpus),
    ]

    def read(log: Path) -> Metrics:
        loss = logs.read_validation_loss(log)
        return {"valid_loss": loss, "valid_ppl": perplexity(loss)}

    return Step("validate.log", command, read)


def _on_all_sentences(gpus: int) -> tuple[str, ...]:
    """Options of whatever measures a whole subset in one process."""
    return (
        "--user-dir",
        "fairseq_plugins",
        "--max-tokens",
        str(TOKENS_PER_BATCH),
        # With another multiple fairseq leaves out the last sentences.
        "--required-batch-size-multiple",
        "1",
        "--num-workers",
        "0",
        "--distributed-world-size",
        "1",
        *(() if gpus else ("--cpu",)),
    )


def generate(training: Training, checkpoint: Path, subset: str, gpus: int) -> Step:
    """Decodes a subset with a checkpoint."""
    command = [
        "fairseq-generate",
        training.data.as_posix(),
        "--path",
        checkpoint.as_posix(),
        "--gen-subset",
        subset,
        "--beam",
        str(DECODING.beam),
        "--lenpen",
        str(DECODING.length_penalty),
        "--max-len-a",
        str(DECODING.longer_ratio),
        "--max-len-b",
        str(DECODING.longer),
        "--remove-bpe",
        "--no-progress-bar",
        *_on_all_sentences(gpus),
    ]
    return Step(_generated(subset), command, lambda log: {})


def _generated(subset: str) -> str:
    return f"generate-{subset}.log"


def _score(training: Training, subset: str) -> Step:
    command = [
        "python",
        "-m",
        "fairseq_plugins.evaluation.bleu",
        (training.folder / _generated(subset)).as_posix(),
        "--data",
        training.data.as_posix(),
        "--subset",
        subset,
    ]

    def read(log: Path) -> Metrics:
        found = logs.read_json(log)
        return {f"{subset}_bleu": found["bleu"], "signature": found["signature"]}

    return Step(f"bleu-{subset}.log", command, read)


TRANSLATION = Translation(
    recipe="wmt14_en_de",
    scales=scales(
        Scale("toy", COMMANDS["toy-mt"]),
        Scale("mini", COMMANDS["multi30k-en-de"]),
        Scale("small", COMMANDS["mid-en-de"], gpus=1),
        Scale("paper", COMMANDS["wmt14-en-de"], gpus=8),
    ),
    metrics=Bleu,
    sides=("encoder", "decoder"),
    scale_group="scale/mt",
    data_files=("data.json",),
)
