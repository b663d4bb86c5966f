"""Translation: Table 4 of LRPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.checkpoints import LAST
from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.reproduce.experiments.base import (
    Experiment,
    Metrics,
    Scale,
    Step,
    scales,
)
from fairseq_plugins.reproduce.experiments.training import Training
from fairseq_plugins.reproduce.record import logs
from fairseq_plugins.reproduce.record.metrics import (
    MetricsSchema,
    Percent,
    Perplexity,
    perplexity,
)
from fairseq_plugins.reproduce.record.runs import Run
from fairseq_plugins.translation.decoding import Decoding

DECODING = Decoding()
SUBSETS = ("valid", "test")
TOKENS_PER_BATCH = 4000  # of decoding; sets how far a hypothesis may go that does not end


class Bleu(MetricsSchema):
    """BLEU of both splits."""

    valid_bleu: Percent
    test_bleu: Percent
    valid_ppl: Perplexity | None = None  # of the checkpoint that is decoded, where known


@dataclass(frozen=True)
class Translation(Experiment):
    """Trained by `translation`, measured by SacreBLEU of detokenised text.

    A run that is ``linear`` has linear attention and the row's encoding in the encoder only, as in
    the paper ("we only embed the linear attention and its corresponding relative positional
    encoding in encoders"): the decoder is Base's. ``vanilla`` has the row's encoding on both sides,
    and ``linear_both`` linear attention too.
    """

    def attention(self, word: str) -> dict[str, str]:
        if word == "linear_both":
            return {"encoder_attention_type": "linear", "decoder_attention_type": "linear"}
        if word == "linear":
            return {"encoder_attention_type": "linear", "decoder_position_encoding": "base"}
        return {"encoder_attention_type": word}

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        return [
            step
            for subset in SUBSETS
            for step in (
                generate(training, checkpoint, subset, gpus),
                _score(training, subset),
            )
        ]

    def measure(self, training: Training, folder: Path) -> Metrics:
        """The perplexity of the checkpoint that is decoded, where there was validation."""
        points = logs.read_validations(folder / "train.log", "nll_loss")
        if not points:
            return {}
        if training.evaluated == LAST:
            return {"valid_ppl": perplexity(points[-1][1])}
        chosen_by = logs.read_validations(folder / "train.log")
        best = min(chosen_by, key=lambda point: point[1])[0]
        return {"valid_ppl": perplexity(dict(points)[best])}

    def facts(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"Decoding: beam {DECODING.beam}, length penalty {DECODING.length_penalty}, of one "
            "checkpoint, not an average. BLEU is SacreBLEU of detokenised output against the raw "
            "reference, for the validation set too, where the paper's is BLEU of tokens.",
            "Linear: linear attention and the row's encoding in the encoder only, as in the paper; "
            "the decoder is Base's. Vanilla: the encoding in encoder and decoder.",
        ]


def generate(training: Training, checkpoint: Path, subset: str, gpus: int) -> Step:
    """Decodes a subset with a checkpoint."""
    command = [
        "fairseq-generate",
        training.data.as_posix(),
        "--user-dir",
        "fairseq_plugins",
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
        "--max-tokens",
        str(TOKENS_PER_BATCH),
        # With another multiple fairseq leaves out the last sentences.
        "--required-batch-size-multiple",
        "1",
        "--remove-bpe",
        "--num-workers",
        "0",
        "--no-progress-bar",
        "--distributed-world-size",
        "1",
        *(() if gpus else ("--cpu",)),
    ]
    return Step(_generated(subset), command, lambda log: {})


def _generated(subset: str) -> str:
    return f"generate-{subset}.log"


def _score(training: Training, subset: str) -> Step:
    command = [
        "python",
        "-m",
        "fairseq_plugins.translation.bleu",
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
