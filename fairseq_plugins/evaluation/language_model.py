"""Perplexity of a checkpoint on a split, at any length that the model accepts."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

import fairseq_plugins.registration  # noqa: F401  (classes that checkpoints name)
from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.common.progress import track
from fairseq_plugins.common.vocabulary import (
    DECODER_TABLE,
    ROBERTA_TABLE,
    Vocabulary,
    check_vocabulary,
)
from fairseq_plugins.data.options import check_at_least
from fairseq_plugins.data.raw_text import read_raw_text
from fairseq_plugins.encodings import expand_name
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

BREAK_MODES = ("none", "complete", "eos")  # supported of fairseq's --sample-break-mode
BATCH_SIZE = 8
TASKS = {LM: ("language_modeling",), ROBERTA: ("masked_lm", "pe_masked_lm")}


@dataclass(frozen=True)
class EvaluationOptions:
    """Settings of an evaluation.

    Attributes:
        path: the checkpoint.
        data: the data folder.
        split: train, valid or test.
        lengths: lengths of samples, context included; () for the training length.
        context_window: unscored tokens before each sample of a causal model.
        batch_size: samples per batch.
        break_mode: how text is cut into samples; None for ``none`` with a causal model, as in
            fairseq-eval-lm, and the training's with a masked model.
        seed: seed of the masks and of random encodings.
        device: PyTorch device.
        allow_skipped: whether to skip samples longer than a length instead of raising.
        adaptation: changes to the trained model.

    Raises:
        OptionError: an invalid value.
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
        check_at_least(1, batch_size=self.batch_size)
        longest = max(self.lengths, default=0)
        check_at_least(0, seed=self.seed, context_window=self.context_window, lengths=longest)
        if self.break_mode not in (None, *BREAK_MODES):
            raise OptionError(
                f"--sample-break-mode must be one of {', '.join(BREAK_MODES)}, but is "
                f"{self.break_mode}"
            )
        if self.context_window and self.break_mode not in (None, "none"):
            raise OptionError(
                "--context-window must be 0 with --sample-break-mode "
                f"{self.break_mode}, but is {self.context_window}"
            )
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise OptionError(f"--device must be cpu where there is no GPU, but is {self.device}")


@dataclass(frozen=True)
class LoadedModel:
    """A model loaded from a checkpoint."""

    model: Any  # prepared for inference, on its device
    identity: ModelDescription
    task: Any  # its options in the training
    updates: int | None  # of the training; None if not recorded

    @property
    def is_masked(self) -> bool:
        return self.identity.model == ROBERTA

    @property
    def encoding(self) -> str:
        """Name encodings and attention, as "`rope` beside `learned` under linear attention"."""
        (site,) = self.identity.sites.values()
        has_table = any(part.name == "learned" for part in site.inputs)
        beside = has_table and not {"base", "learned"} & {*expand_name(site.given)}
        return f"`{site.given}`{' beside `learned`' * beside} under {site.attention} attention"


def load(options: EvaluationOptions, length: int | None = None) -> LoadedModel:
    """Load the model of a checkpoint.

    Args:
        options: the evaluation's options.
        length: length of its sequences; None for the training length.

    Raises:
        ValueError: the checkpoint is missing, damaged, of another model, task or dictionary; the
            data has no such split; or the weights do not fit the replaced encoding.
    """
    tasks = [task for names in TASKS.values() for task in names]
    state = read_trained(options.path, models=list(TASKS), tasks=tasks, data=str(options.data))
    name, task = state["cfg"]["model"]["_name"], state["cfg"]["task"]
    if task["_name"] not in TASKS[name]:
        must = " or ".join(TASKS[name])
        raise CheckpointError(
            f"{options.path} must be of the task {must} as a {name}, but is of {task['_name']}"
        )
    for file in ("dict.txt", f"{options.split}.bin", f"{options.split}.idx"):
        if not (options.data / file).is_file():
            raise DataError(f"--data {options.data} does not hold {file}")
    table = ROBERTA_TABLE if name == ROBERTA else DECODER_TABLE
    vocabulary = Vocabulary.read(options.data / "dict.txt", table)
    check_vocabulary(options.path, state, vocabulary)
    check_split(options.data / options.split, len(vocabulary.symbols))
    history = state.get("optimizer_history") or [{}]
    trained_length = int(task["tokens_per_sample"])
    options.adaptation.apply(state, length or trained_length, trained_length)
    identity = describe(state["cfg"]["model"], task)
    model = options.adaptation.build(options.path, state)
    model.to(options.device).eval()
    model.prepare_for_inference_(configure(options.seed))
    return LoadedModel(model, identity, task, history[-1].get("num_updates"))


def evaluate(
    options: EvaluationOptions,
    *,
    begin: Callable[[LoadedModel, Samples], None] = lambda trained, samples: None,
    done: Callable[[dict[str, Any]], None] = lambda line: None,
) -> dict[str, Any]:
    """Compute the perplexity of a checkpoint at each length.

    Args:
        options: the evaluation's options.
        begin: called once with the model and the first length's samples, after all checks.
        done: called with the result of each length.

    Returns:
        The result as JSON data, without the options; ``lengths`` has for each its ``length`` and
        the values of `summarise`.

    Raises:
        ValueError: something is missing, damaged or does not fit, a length exceeds the model's
            maximum, or tokens would be skipped. All but losses are checked before any work.
    """
    trained = load(options, max(options.lengths, default=None))
    if trained.is_masked and options.context_window:
        raise OptionError(
            f"--context-window must be 0 with a masked model, but is {options.context_window}"
        )
    break_mode = options.break_mode or (
        str(trained.task.sample_break_mode) if trained.is_masked else "none"
    )
    if break_mode not in BREAK_MODES:
        raise OptionError(
            f"--sample-break-mode must be given for a model trained with {break_mode}: "
            f"one of {', '.join(BREAK_MODES)}"
        )
    lengths = options.lengths or (int(trained.task.tokens_per_sample),)
    cut = {length: _cut_split(options, trained, length, break_mode) for length in lengths}
    first = cut[lengths[0]]
    text = read_raw_text(options.data, options.split, first.tokens)
    begin(trained, first)
    lines = []
    for length, samples in cut.items():
        if options.adaptation and len(cut) > 1:
            trained = load(options, length)
        score = _score(options, trained.model, samples)
        lines.append({"length": length, **summarise(score, text)})
        done(lines[-1])
    (site,) = trained.identity.sites.values()
    return {
        "checkpoint": {
            "model": trained.identity.model,
            "attention_type": site.attention,
            "position_encoding": site.given,
            "updates": trained.updates,
        },
        "adaptation": asdict(options.adaptation) if options.adaptation else None,
        "sample_break_mode": break_mode,
        "masking": masking(trained.task) if trained.is_masked else None,
        "text": {
            "words": text.words,
            "bytes": text.bytes,
            "unknown_words": text.unknown,
            "why_unknown": text.why,
        },
        "lengths": lines,
    }


def _cut_split(
    options: EvaluationOptions, trained: LoadedModel, length: int, break_mode: str
) -> Samples:
    """Cut the split into samples of a length; check the model's maximum and skipped tokens."""
    common: dict[str, Any] = {"break_mode": break_mode, "seed": options.seed, "length": length}
    longest, shortest = trained.model.max_positions(), options.context_window + 1
    if trained.is_masked:
        shortest += 1  # <s>
    elif trained.task.add_bos_token:
        longest -= 1  # for <s>, which fairseq does not count
    if length < shortest:
        raise OptionError(
            f"--lengths must be at least {shortest} with a context window of "
            f"{options.context_window}, but is {length}"
        )
    if length > longest:
        raise OptionError(
            f"--lengths must be at most {longest}, the maximum of {trained.encoding}, but is "
            f"{length}"
        )
    samples: Samples
    if trained.is_masked:
        samples = MaskedSamples(options.data, options.split, trained.task, **common)
    else:
        context = options.context_window
        samples = TextSamples(options.data, options.split, trained.task, context=context, **common)
    if samples.skipped == samples.tokens:
        raise DataError(f"{options.data}: {options.split} has no sample of up to {length} tokens")
    if samples.skipped and not options.allow_skipped:
        needed = int(samples.sizes.max()) + samples.num_bos
        raise OptionError(
            f"--lengths must be at least {needed} for every sample of {options.split} (by "
            f"--sample-break-mode {break_mode}), but is {length}: {samples.skipped} of "
            f"{samples.tokens} tokens would be skipped (--allow-skipped permits this)"
        )
    return samples


@torch.no_grad()
def _score(options: EvaluationOptions, model: Any, samples: Samples) -> Score:
    bits, predicted, tokens = 0.0, 0, 0
    # Seeded here, so that random encodings make no result depend on the other lengths.
    utils.set_torch_seed(options.seed)
    batches = samples.batches(options.batch_size)
    for batch in track(batches, "evaluating", unit="batches", lasting=False):
        if options.device != "cpu":
            batch = utils.move_to_cuda(batch, device=torch.device(options.device))
        found = samples.score(model, batch)
        bits += found.bits
        predicted += found.predicted
        tokens += found.tokens
    return Score(bits, predicted, tokens, samples.tokens - tokens)
