"""The perplexity of a checkpoint on a split of its data, at any length that it can read."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

import fairseq_plugins.registration  # noqa: F401  (what checkpoints name)
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.common.progress import track
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    ROBERTA_TABLE,
    Vocabulary,
    check_vocabulary,
)
from fairseq_plugins.data.raw_text import RawText, read_raw_text
from fairseq_plugins.evaluation.perplexity import Score, summarise
from fairseq_plugins.evaluation.samples import (
    MaskedSamples,
    Samples,
    TextSamples,
    configure,
    masking,
)
from fairseq_plugins.modules.adaptation import AS_TRAINED, Adaptation
from fairseq_plugins.modules.identity import LM, ROBERTA, ModelDescription, describe
from fairseq_plugins.modules.loading import read_trained

BREAK_MODES = ("none", "complete", "eos")  # of fairseq's --sample-break-mode
BATCH_SIZE = 8
_LARGEST = 2**31 - 1  # of a number that is given
TASKS = {LM: ("language_modeling",), ROBERTA: ("masked_lm", "pe_masked_lm")}

Line = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """Settings of an evaluation.

    Attributes:
        path: of the checkpoint.
        data: the folder of the data.
        split: train, valid or test.
        lengths: of the samples, with their context; none for that of the training.
        context_window: tokens before each sample of a language model that are read, not scored.
        batch_size: samples at once.
        break_mode: how text is cut into samples; None for ``none`` with a language model, as
            fairseq-eval-lm has it, and for that of the training with a masked one.
        seed: of the masks, and of encodings that draw.
        device: where it is computed.
        allow_skipped: whether samples that are longer than a length may be left out.
        adaptation: what is another than in the training.

    Raises:
        OptionError: a value that cannot be.
    """

    path: Path
    data: Path
    split: str = "valid"
    lengths: tuple[int, ...] = ()
    context_window: int = 0
    batch_size: int = BATCH_SIZE
    break_mode: str | None = None
    seed: int = 1
    device: str = "cpu"
    allow_skipped: bool = False
    adaptation: Adaptation = AS_TRAINED

    def __post_init__(self) -> None:
        least = {"--batch-size": (self.batch_size, 1), "--seed": (self.seed, 0)}
        least["--context-window"] = (self.context_window, 0)
        for option, (value, lowest) in least.items():
            if not lowest <= value <= _LARGEST:
                limit = f"at least {lowest}" if value < lowest else f"at most {_LARGEST:,}"
                raise OptionError(f"{option} must be {limit}, but is {value}")
        if max(self.lengths, default=0) > _LARGEST:
            raise OptionError(f"--lengths must be at most {_LARGEST:,}, but is {max(self.lengths)}")
        if self.break_mode not in (None, *BREAK_MODES):
            known = ", ".join(BREAK_MODES)
            raise OptionError(f"--sample-break-mode must be one of {known}, not {self.break_mode}")
        if self.context_window and self.break_mode not in (None, "none"):
            raise OptionError(
                "--context-window must be 0 with --sample-break-mode "
                f"{self.break_mode}, but is {self.context_window}"
            )
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise OptionError(f"--device must be cpu where there is no GPU, but is {self.device}")


@dataclass(frozen=True)
class Trained:
    """A model that was read from a checkpoint.

    Attributes:
        model: prepared for inference, on its device.
        identity: what it computes.
        task: options of the task that it was trained for.
        updates: after which it was written; None where it does not say.
    """

    model: Any
    identity: ModelDescription
    task: Any
    updates: int | None

    @property
    def is_masked(self) -> bool:
        return self.identity.model == ROBERTA

    @property
    def encoding(self) -> str:
        """`rope` under linear attention."""
        (place,) = self.identity.sites.values()
        return f"`{place.given}` under {place.attention} attention"


@dataclass(frozen=True)
class Report:
    """Result of an evaluation.

    Attributes:
        trained: the model.
        break_mode: how text was cut.
        text: the text of the split.
        lines: for each length what `summarise` gives, with the ``length``.
        adaptation: of the model, whose ``trained`` is the one at the last length.
    """

    trained: Trained
    break_mode: str
    text: RawText
    lines: Sequence[Line]
    adaptation: Adaptation = AS_TRAINED

    def facts(self) -> dict[str, Any]:
        """The same for a JSON, without what the request says."""
        trained, (place,) = self.trained, self.trained.identity.sites.values()
        model = {
            "model": trained.identity.model,
            "attention_type": place.attention,
            "position_encoding": place.given,
            "updates": trained.updates,
        }
        masks = masking(trained.task) if trained.is_masked else None
        return {
            "checkpoint": model,
            "adaptation": asdict(self.adaptation) if self.adaptation else None,
            "sample_break_mode": self.break_mode,
            "masking": masks,
            "text": {
                "words": self.text.words,
                "bytes": self.text.bytes,
                "unknown_words": self.text.unknown,
                "why_unknown": self.text.why,
            },
            "lengths": list(self.lines),
        }


def load(request: Request, length: int | None = None) -> Trained:
    """Read the checkpoint.

    Args:
        request: of which, and what is another in it.
        length: of the sequences that it is to read; None for that of the training.

    Raises:
        ValueError: it is missing, damaged, of another model or task, or has another dictionary
            than the data; or the data has no such split; or it has other weights than the
            encoding that takes the place of its own.
    """
    for name in ("dict.txt", f"{request.split}.bin", f"{request.split}.idx"):
        if not (request.data / name).is_file():
            raise DataError(f"--data {request.data} does not hold {name}")
    tasks = [task for names in TASKS.values() for task in names]
    state = read_trained(request.path, models=list(TASKS), tasks=tasks, data=str(request.data))
    name, task = state["cfg"]["model"]["_name"], state["cfg"]["task"]
    if task["_name"] not in TASKS[name]:
        must = " or ".join(TASKS[name])
        raise CheckpointError(
            f"{request.path} must be of the task {must} as a {name}, but is of {task['_name']}"
        )
    table = ROBERTA_TABLE if name == ROBERTA else DECODER_TABLE
    vocabulary = Vocabulary.read(request.data / "dict.txt", table)
    check_vocabulary(request.path, state, vocabulary)
    check_split(request.data / request.split, len(vocabulary.symbols))
    history = state.get("optimizer_history") or [{}]
    trained_length = int(task["tokens_per_sample"])
    request.adaptation.apply(state, length or trained_length, trained_length)
    identity = describe(state["cfg"]["model"], task)
    model = request.adaptation.build(request.path, state)
    model.to(request.device).eval()
    model.prepare_for_inference_(configure(request.seed))
    return Trained(model, identity, task, history[-1].get("num_updates"))


def evaluate(
    request: Request,
    *,
    begin: Callable[[Trained, Samples], None] = lambda trained, samples: None,
    done: Callable[[Line], None] = lambda line: None,
) -> Report:
    """The perplexity of a checkpoint at each length.

    Args:
        request: what, and how.
        begin: told once the model and the samples of the first length, when all is checked.
        done: told each line when it is there.

    Raises:
        ValueError: something is missing, damaged or does not fit, a length that the model cannot
            read, or tokens that would be skipped. All but losses are checked before any work.
    """
    trained = load(request, max(request.lengths, default=None))
    if trained.is_masked and request.context_window:
        raise OptionError(
            "--context-window must be 0 with a masked model, which sees both sides, "
            f"but is {request.context_window}"
        )
    break_mode = request.break_mode or (
        str(trained.task.sample_break_mode) if trained.is_masked else "none"
    )
    if break_mode not in BREAK_MODES:
        raise OptionError(
            f"--sample-break-mode must be given for a model trained with {break_mode}: "
            f"one of {', '.join(BREAK_MODES)}"
        )
    lengths = request.lengths or (int(trained.task.tokens_per_sample),)
    cut = {length: _cut(request, trained, length, break_mode) for length in lengths}
    first = cut[lengths[0]]
    text = read_raw_text(request.data, request.split, first.tokens)
    begin(trained, first)
    lines = []
    for length, samples in cut.items():
        if request.adaptation and len(cut) > 1:
            trained = load(request, length)
        score = _score(request, trained.model, samples)
        lines.append({"length": length, **summarise(score, text)})
        done(lines[-1])
    return Report(trained, break_mode, text, lines, request.adaptation)


def _cut(request: Request, trained: Trained, length: int, break_mode: str) -> Samples:
    """The split in samples of a length, if the model can read them and none is too long."""
    where: dict[str, Any] = {"break_mode": break_mode, "seed": request.seed, "length": length}
    reach, shortest = trained.model.max_positions(), request.context_window + 1
    if trained.is_masked:
        shortest += 1  # <s>
    elif trained.task.add_bos_token:
        reach -= 1  # which fairseq does not count
    if length < shortest:
        raise OptionError(
            f"--lengths must be at least {shortest} with a context window of "
            f"{request.context_window}, but is {length}"
        )
    if length > reach:
        raise OptionError(
            f"--lengths must be at most {reach}, beyond which {trained.encoding} has no meaning, "
            f"but is {length}"
        )
    samples: Samples
    if trained.is_masked:
        samples = MaskedSamples(request.data, request.split, trained.task, **where)
    else:
        context = request.context_window
        samples = TextSamples(request.data, request.split, trained.task, context=context, **where)
    if samples.skipped == samples.tokens:
        raise DataError(f"{request.data}: {request.split} has no sample of up to {length} tokens")
    if samples.skipped and not request.allow_skipped:
        longest = int(samples.sizes.max()) + samples.begins
        raise OptionError(
            f"--lengths must be at least {longest} for every sample of {request.split} (by "
            f"--sample-break-mode {break_mode}), but is {length}: {samples.skipped} of "
            f"{samples.tokens} tokens would be skipped; --allow-skipped leaves them out"
        )
    return samples


@torch.no_grad()
def _score(request: Request, model: Any, samples: Samples) -> Score:
    bits, predicted, tokens = 0.0, 0, 0
    # Each length as if it were the only one, for encodings that draw.
    utils.set_torch_seed(request.seed)
    batches = samples.batches(request.batch_size)
    for batch in track(batches, "evaluating", unit="batches", lasting=False):
        if request.device != "cpu":
            batch = utils.move_to_cuda(batch, device=torch.device(request.device))
        found = samples.score(model, batch)
        bits += found.bits
        predicted += found.predicted
        tokens += found.tokens
    return Score(bits, predicted, tokens, samples.tokens - tokens)
