"""`fairseq-pe analyse attention --path CHECKPOINT --data DIR`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    add_checkpoint,
    add_samples,
    add_seed_and_device,
    check_checkpoint,
    describe_training,
    label_of,
    write_analysis,
)
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.option_types import new_file, number, numbers

OUTPUT = Path("pictures/attention")
SITES = ("encoder", "decoder", "cross")
SAMPLES = 100


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "attention of every head and layer to a text: maps, mean distance, entropy"
    command = commands.add_parser(
        "attention",
        help=summary,
        description=f"{summary.capitalize()}: PNG, SVG, the numbers as JSON, and a page. Maps are "
        "of one sample, numbers of the table means over several.",
    )
    add = command.add_argument
    add_checkpoint(command, data="data folder")
    text = "of a translation model: encoder, decoder or cross, the decoder's attention to the "
    add("--site", choices=SITES, default="", help=f"{text}source (default: encoder)")
    add_samples(command)
    text = "number of the sample that is drawn, from 1 (default: 1)"
    add("--sample", type=number("--sample", 1), default=1, metavar="N", help=text)
    text = f"samples for the table, from that one on (default: {SAMPLES})"
    add("--samples", type=number("--samples", 1), default=SAMPLES, metavar="N", help=text)
    for part in ("layers", "heads"):
        option = f"--{part}"
        text = f"numbers of {part}, from 1 (default: all)"
        add(option, type=numbers(option, 1), default=(), metavar="N,N", help=text)
    text = f"path of the output files, without suffix, {PICTURE} (default: {OUTPUT})"
    add("--output", type=new_file, default=OUTPUT, metavar="STEM", help=text)
    add_seed_and_device(command)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    check_checkpoint(args)
    # Here, since these take seconds, which --help must not.
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
    figure = heads_figure(
        loaded,
        samples[args.sample - 1 :],
        args.site,
        args.layers,
        args.heads,
        load_tokenizer(pieces).text_of if pieces.is_dir() else str,
    )
    site = f" ({args.site})" if args.site else ""
    write_analysis(
        replace(figure, models=[describe_training(label_of(args.path), args.path)]),
        args.output,
        args,
        title="Attention by head and layer",
        caption=f"Attention{site} to {args.split} of {args.data.name}.",
    )
