"""Translation: Table 4 of LRPE, and BLEU of its models by the length of the source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from fairseq_plugins.common.data_commands import COMMANDS
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.files import read_object
from fairseq_plugins.evaluation.bleu_by_length import LEAST
from fairseq_plugins.experiments.base import Experiment, Metrics, Scale, Step, scales
from fairseq_plugins.experiments.training import InitialCheckpoint, Training
from fairseq_plugins.papers.extrapolation import bleu_metric
from fairseq_plugins.records import logs
from fairseq_plugins.records.metrics import (
    Count,
    Loss,
    MetricsSchema,
    Percent,
    Perplexity,
    perplexity,
)
from fairseq_plugins.records.runs import Run
from fairseq_plugins.translation.decoding import Decoding

DECODING = Decoding()
SUBSETS = ("valid", "test")
TOKENS_PER_BATCH = 4000  # also limits the length of a hypothesis without an end


class Bleu(MetricsSchema):
    """BLEU of both splits, and the loss of the decoded checkpoint on the validation set.

    `valid_token_bleu` is BLEU of tokens, as the paper's on the validation set. The loss is the
    cross-entropy without label smoothing, in bits a token. Older results lack both.
    """

    valid_bleu: Percent
    test_bleu: Percent
    valid_token_bleu: Percent | None = None
    valid_loss: Loss | None = None
    valid_ppl: Perplexity | None = None


@dataclass(frozen=True)
class Translation(Experiment):
    """Translation model of task `translation`, measured by SacreBLEU of detokenised text.

    ``linear`` has linear attention and the row's encoding in the encoder only, as in the paper
    ("we only embed the linear attention and its corresponding relative positional encoding in
    encoders"): the decoder is Base's. ``vanilla`` has the row's encoding on both sides, and
    ``linear_both`` also linear attention on both.
    """

    def attention(self, word: str) -> dict[str, str | float]:
        if word == "linear_both":
            return {"encoder_attention_type": "linear", "decoder_attention_type": "linear"}
        if word == "linear":
            return {"encoder_attention_type": "linear", "decoder_position_encoding": "base"}
        return {"encoder_attention_type": word}

    def task_of(self, data: Path) -> dict[str, str]:
        request = (read_object(data / "data.json") or {}).get("request")
        if not request:
            return {}
        if not {"source", "target"} <= {*request}:
            raise OptionError(
                "`--data` must be a folder that `fairseq-pe prepare mt` makes, but "
                f"{data} has no pair of languages"
            )
        return {f"{side}_lang": request[side] for side in ("source", "target")}

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        decoded = (
            (generate(training, checkpoint, subset, gpus), _score(training, subset))
            for subset in SUBSETS
        )
        return [_validate(training, checkpoint, gpus), *chain.from_iterable(decoded)]

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        loss = (
            "The loss is the cross-entropy without label smoothing, in bits per BPE token; the "
            "paper's caption mentions a validation loss, but its table has none."
        )
        return [
            f"Decoding: beam {DECODING.beam}, length penalty {DECODING.length_penalty}, from one "
            "checkpoint without averaging. BLEU is SacreBLEU of detokenised output against the raw "
            f"reference{_token_bleu(results)}.",
            *([loss] if any("valid_loss" in result["metrics"] for result in results) else []),
            "Linear: linear attention and the row's encoding in the encoder only, as in the paper; "
            "the decoder is that of Base. Vanilla: the encoding in encoder and decoder.",
        ]


def _token_bleu(results: Sequence[Mapping[str, Any]]) -> str:
    """Describe BLEU on the validation set, and how many runs have it of tokens too."""
    metrics = [one["metrics"] for one in results if "valid_bleu" in one["metrics"]]
    if not metrics:
        return ""
    have = sum(one.get("valid_token_bleu") is not None for one in metrics)
    some = "all" if have == len(metrics) else f"{have} of {len(metrics)}"
    return (
        ", also on the validation set, where the paper has BLEU of tokens; this was measured too "
        f"in {some} runs"
    )


def _validate(training: Training, checkpoint: Path, gpus: int) -> Step:
    """Return the step that runs fairseq-validate on the decoded checkpoint."""
    command = [
        *("fairseq-validate", training.data.as_posix(), "--task", training.config["task"]["_name"]),
        *("--path", checkpoint.as_posix(), "--valid-subset", "valid", "--log-format", "json"),
        *_on_all_sentences(gpus),
    ]

    def read(log: Path) -> Metrics:
        loss = logs.read_validation_loss(log)
        return {"valid_loss": loss, "valid_ppl": perplexity(loss)}

    return Step("validate.log", command, read)


def _on_all_sentences(gpus: int) -> tuple[str, ...]:
    """Return the options for commands that evaluate a whole subset in one process."""
    return (
        *("--user-dir", "fairseq_plugins", "--max-tokens", str(TOKENS_PER_BATCH)),
        # With a larger multiple fairseq drops the last sentences.
        *("--required-batch-size-multiple", "1"),
        *("--num-workers", "0", "--distributed-world-size", "1"),
        *(() if gpus else ("--cpu",)),
    )


def generate(training: Training, checkpoint: Path, subset: str, gpus: int) -> Step:
    """Return the step that decodes a subset with a checkpoint."""
    command = [
        *("fairseq-generate", training.data.as_posix(), "--path", checkpoint.as_posix()),
        *("--gen-subset", subset, "--beam", str(DECODING.beam)),
        *("--lenpen", str(DECODING.length_penalty)),
        *("--max-len-a", str(DECODING.longer_ratio), "--max-len-b", str(DECODING.longer)),
        *("--remove-bpe", "--no-progress-bar"),
        *_on_all_sentences(gpus),
    ]
    return Step(_generated(subset), command, lambda log: {})


def _generated(subset: str) -> str:
    return f"generate-{subset}.log"


def _score(training: Training, subset: str) -> Step:
    output = training.folder / _generated(subset)
    command = [
        *("python", "-m", "fairseq_plugins.evaluation.bleu", output.as_posix()),
        *("--data", training.data.as_posix(), "--subset", subset),
    ]

    def read(log: Path) -> Metrics:
        output = logs.read_json(log)
        of_tokens = {"valid_token_bleu": output["token_bleu"]} if subset == "valid" else {}
        return {f"{subset}_bleu": output["bleu"], **of_tokens, "signature": output["signature"]}

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


class BleuByLength(MetricsSchema):
    """BLEU of all sentences, and by length as `bleu_1_10` etc.; None for too few sentences."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Percent | None]
    test_bleu: Percent
    sentences: dict[str, Count]


@dataclass(frozen=True)
class TranslationLengths(Translation):
    """BLEU by the length of the source, for Table 4's model of the same row and seed."""

    trains = False

    figure_note = (
        "BLEU by the number of words of the source, mean over seeds; lengths with too few "
        "sentences are left out."
    )

    def steps(self, training: Training, checkpoint: Path, run: Run, gpus: int) -> Sequence[Step]:
        decode = generate(training, checkpoint, "test", gpus)
        command = [
            *("python", "-m", "fairseq_plugins.evaluation.bleu_by_length"),
            *((run.folder / decode.log).as_posix(), "--data", training.data.as_posix()),
            *("--subset", "test"),
        ]

        def read(log: Path) -> Metrics:
            output = logs.read_json(log)
            buckets: dict[str, Any] = output["buckets"]
            return {
                "test_bleu": output["bleu"],
                **{bleu_metric(name): bucket["bleu"] for name, bucket in buckets.items()},
                "sentences": {name: bucket["sentences"] for name, bucket in buckets.items()},
                "signature": output["signature"],
            }

        return [decode, Step("bleu-by-length.log", command, read)]

    def caption_notes(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        counts = [result["metrics"]["sentences"] for result in results]
        by_length = ", ".join(f"{count} of {name}" for name, count in counts[0].items())
        return [
            *super().caption_notes(results),
            # Other code or another processor rounds differently, and trainings diverge from there.
            "The models are those of Table 4; where no checkpoint was left, they were trained "
            "again by its recipe, and may then differ from the model of the same row and seed in "
            "Table 4 as much as two seeds do.",
            f"Test sentences by the number of words of their tokenised source: {by_length}. "
            f"`-`: fewer than {LEAST} sentences.",
        ]

    def comparability(self, scale: str) -> str:
        return ""


TRANSLATION_LENGTHS = TRANSLATION.measured_by(
    TranslationLengths, metrics=BleuByLength, origin=InitialCheckpoint("table4", same_seed=True)
)
