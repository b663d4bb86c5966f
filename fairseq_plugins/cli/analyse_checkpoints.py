"""Commands of `fairseq-pe analyse` that measure checkpoints on a text or on repeated words."""

import argparse
import json
from pathlib import Path
from typing import Any

from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.cli.analysis_options import (
    OF_ANY,
    PICTURE,
    add_checkpoint,
    add_command,
    add_samples,
    add_seed_and_device,
    add_stem,
    check_checkpoint,
    is_picture,
    label_of,
    labelled,
    write_analysis,
)
from fairseq_plugins.cli.evaluate import add_adaptation
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.option_types import factors, new_file, number, numbers
from fairseq_plugins.common.pictures import save_for_print
from fairseq_plugins.data.options import check_at_least, check_file, check_folder

# Imports in the functions that run take seconds, which --help must not.
SITES = ("encoder", "decoder", "cross")


def add_extrapolation(commands: Any) -> None:
    """Add the command of losses beyond the training length."""
    summary = "the losses of a checkpoint at multiples of its training length, as JSON"
    command = add_command(commands, "extrapolation", _extrapolation, summary)
    add = command.add_argument
    add_checkpoint(command, "checkpoint of a language model", "data folder")
    add("--split", default="test", help="train, valid or test (default: test)")
    lengths, tokens = "1x,2x,4x,8x", 32768
    text = f"multiples of the training length (default: {lengths})"
    add("--lengths", type=factors, default=lengths, metavar="1x,2x", help=text)
    text = f"tokens to read from the start of the split (default: {tokens})"
    add("--tokens", type=int, default=tokens, metavar="N", help=text)
    text = f"also draw the losses by length and by position: {PICTURE.removeprefix('or ')}"
    add("--output", type=new_file, metavar="FILE", help=text)
    add_adaptation(command)
    add_seed_and_device(command)


def _extrapolation(args: argparse.Namespace) -> None:
    if args.output and not is_picture(args.output):
        raise OptionError(f"--output must be {PICTURE.removeprefix('or ')}, but is {args.output}")
    from fairseq_plugins.analysis.extrapolation_figure import draw_losses
    from fairseq_plugins.evaluation.beyond_training import measure
    from fairseq_plugins.evaluation.language_model import EvaluationOptions
    from fairseq_plugins.modules.adaptation import Adaptation
    from fairseq_plugins.modules.loading import choose_device

    options = EvaluationOptions(
        path=args.path,
        data=args.data,
        split=args.split,
        seed=args.seed,
        device=str(choose_device(cpu=args.cpu)),
        adaptation=Adaptation(args.encoding, args.options, args.grow_table),
    )
    check_checkpoint(args)
    with checkpoint_given_by("--path"):
        found = measure(options, args.lengths, args.tokens)
    print(json.dumps(found))
    if args.output:
        save_for_print(draw_losses(found), args.output)


def add_attention(commands: Any) -> None:
    """Add the command of attention by head and layer."""
    summary = "attention of every head and layer to a text: maps, mean distance, entropy"
    text = "{}: PNG, SVG, the numbers as JSON, and a page. Maps are of one sample, numbers of the "
    text += "table means over several."
    command = add_command(commands, "attention", _attention, summary, text)
    add = command.add_argument
    add_checkpoint(command, data="data folder")
    text = "of a translation model: encoder, decoder or cross, the decoder's attention to the "
    add("--site", choices=SITES, default="", help=f"{text}source (default: encoder)")
    add_samples(command)
    text = "number of the sample that is drawn, from 1 (default: 1)"
    add("--sample", type=number("--sample", 1), default=1, metavar="N", help=text)
    text = "samples for the table, from --sample on (default: 100)"
    add("--samples", type=number("--samples", 1), default=100, metavar="N", help=text)
    for part in ("layers", "heads"):
        option = f"--{part}"
        text = f"numbers of {part}, from 1 (default: all)"
        add(option, type=numbers(option, 1), default=(), metavar="N,N", help=text)
    add_stem(command, "attention")
    add_seed_and_device(command)


def _attention(args: argparse.Namespace) -> None:
    check_checkpoint(args)
    from fairseq import utils

    from fairseq_plugins.analysis.attention_heads import heads_figure
    from fairseq_plugins.analysis.loaded_stacks import load_stack
    from fairseq_plugins.analysis.samples import read_samples
    from fairseq_plugins.data.mlm_folders import BPE_FOLDER
    from fairseq_plugins.data.tokenizers import load_tokenizer

    with checkpoint_given_by("--path"):
        loaded = load_stack(args.path, args.data, cpu=args.cpu)
    count = args.sample - 1 + args.samples
    samples = read_samples(loaded, args.data, args.split, length=args.length, count=count)
    if len(samples) < args.sample:
        raise OptionError(f"--sample must be at most {len(samples)}, but is {args.sample}")
    utils.set_torch_seed(args.seed)  # after loading, which sets a seed too
    pieces = args.data / BPE_FOLDER
    text_of = load_tokenizer(pieces).text_of if pieces.is_dir() else str
    first = samples[args.sample - 1 :]
    figure = heads_figure(loaded, first, args.site, args.layers, args.heads, text_of)
    site = f" ({args.site})" if args.site else ""
    caption = f"Attention{site} to {args.split} of {args.data.name}."
    models = {label_of(args.path): args.path}
    write_analysis(figure, args, models, title="Attention by head and layer", caption=caption)


def add_similarity(commands: Any) -> None:
    """Add the command of similarities between layers of models."""
    summary = "similarity (linear CKA) of the layers of models, which may differ in encoding"
    text = "{}, on the same text: PNG, SVG, the numbers as JSON, and a page. Of a translation "
    text += "model, the encoder's layers."
    command = add_command(commands, "similarity", _similarity, summary, text)
    add = command.add_argument
    text = f"{OF_ANY}; repeatable"
    add("--checkpoint", action="append", required=True, metavar="[LABEL=]PATH", help=text)
    add("--data", type=Path, required=True, metavar="DIR", help="data folder of all checkpoints")
    add_samples(command)
    text = "tokens from the beginning of the split (default: 8192)"
    add("--tokens", type=number("--tokens", 2), default=8192, metavar="N", help=text)
    add_stem(command, "similarity")
    add_seed_and_device(command)


def _similarity(args: argparse.Namespace) -> None:
    found = labelled(args.checkpoint)
    for path in found.values():
        check_file(path, "--checkpoint")
    check_folder(args.data, "--data")
    from fairseq import utils

    from fairseq_plugins.analysis.loaded_stacks import load_stack
    from fairseq_plugins.analysis.samples import read_samples
    from fairseq_plugins.analysis.similarity import layer_states, similarity_figure

    with checkpoint_given_by("--checkpoint"):
        models = {name: load_stack(path, args.data, cpu=args.cpu) for name, path in found.items()}
    if len({bool(loaded.languages) for loaded in models.values()}) > 1:
        raise OptionError("--checkpoint must all be of translation models, or none")
    states = {}
    for name, loaded in models.items():
        length, count = args.length + loaded.num_bos, -(-args.tokens // args.length)
        samples = read_samples(loaded, args.data, args.split, length=length, count=count)
        utils.set_torch_seed(args.seed)  # after loading, which sets a seed too
        states[name] = layer_states(loaded, samples)
    caption = f"Layers of {', '.join(found)} on {args.split} of {args.data.name}."
    figure = similarity_figure(states)
    write_analysis(figure, args, found, title="Similarity of layers", caption=caption)


def add_identical_words(commands: Any) -> None:
    """Add the command of identical word probing."""
    summary = "properties of the first layer's attention to sentences that repeat a word, as JSON"
    text = "{}. Of a translation model, the encoder's. The direction balance of a causal model is "
    text += "infinite, which no JSON can hold: it is null, and named under `infinite`."
    command = add_command(commands, "identical-words", _identical_words, summary, text)
    add = command.add_argument
    add_checkpoint(command)
    text = f"also write the weights (T, T), a name that ends with .npy, {PICTURE}"
    add("--output", type=new_file, metavar="FILE", help=text)
    text = f"number of words to draw (default: {WORDS})"
    add("--words", type=int, default=WORDS, metavar="N", help=text)
    longest = f"tokens of a sentence (default: {LENGTH}, or the model's longest input if shorter)"
    add("--length", type=int, metavar="N", help=longest)
    add_seed_and_device(command)


def _identical_words(args: argparse.Namespace) -> None:
    check_at_least(1, words=args.words)
    check_at_least(4, length=args.length)
    check_checkpoint(args)
    output: Path | None = args.output
    if output and output.suffix != ".npy" and not is_picture(output):
        raise OptionError(f"--output must end with .npy, or as a picture, but is {output}")
    import numpy as np

    from fairseq_plugins.analysis.figure_files import draw_panels
    from fairseq_plugins.analysis.identical_words import probe
    from fairseq_plugins.analysis.indicators import infinite, measure, measure_by_offset
    from fairseq_plugins.analysis.loaded_stacks import load_stack
    from fairseq_plugins.analysis.probe_figures import pair_maps

    with checkpoint_given_by("--path"):
        loaded = load_stack(args.path, args.data, cpu=args.cpu)
        found = probe(loaded, words=args.words, length=args.length, seed=args.seed)
    if output and is_picture(output):
        panels = pair_maps({label_of(args.path): vars(found)}, "scores", "weights")
        save_for_print(draw_panels(panels), output)
    elif output:
        with writing(output) as (file,):
            np.save(file, found.weights.float().numpy())
    facts = {"words": found.words, "length": len(found.weights), "model": loaded.family}
    metrics = measure(found.weights, loaded.num_bos, loaded.num_eos)
    by_offset = measure_by_offset(found.weights)
    undefined = infinite(found.weights)
    print(json.dumps({"metrics": metrics, "by_offset": by_offset, "infinite": undefined, **facts}))
