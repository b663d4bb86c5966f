"""`fairseq-pe analyse similarity --checkpoint A --checkpoint B --data DIR`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.cli.analysis_options import (
    OF_ANY,
    PICTURE,
    add_samples,
    add_seed_and_device,
    describe_training,
    labelled,
    write_analysis,
)
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.option_types import new_file, number
from fairseq_plugins.data.options import check_file, check_folder

OUTPUT = Path("pictures/similarity")
TOKENS = 8192


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "similarity (linear CKA) of the layers of models, which may differ in encoding"
    command = commands.add_parser(
        "similarity",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}, on the same text: PNG, SVG, the numbers "
        "as JSON, and a page. Of a translation model, the encoder's layers.",
    )
    add = command.add_argument
    text = f"{OF_ANY}; repeatable"
    add("--checkpoint", action="append", required=True, metavar="[LABEL=]PATH", help=text)
    add("--data", type=Path, required=True, metavar="DIR", help="data folder of all checkpoints")
    add_samples(command)
    text = f"tokens from the beginning of the split (default: {TOKENS})"
    add("--tokens", type=number("--tokens", 2), default=TOKENS, metavar="N", help=text)
    text = f"path of the output files, without suffix, {PICTURE} (default: {OUTPUT})"
    add("--output", type=new_file, default=OUTPUT, metavar="STEM", help=text)
    add_seed_and_device(command)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    found = labelled(args.checkpoint)
    for path in found.values():
        check_file(path, "--checkpoint")
    check_folder(args.data, "--data")
    # Here, since these take seconds, which --help must not.
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
    write_analysis(
        replace(
            similarity_figure(states), models=[describe_training(*one) for one in found.items()]
        ),
        args.output,
        args,
        title="Similarity of layers",
        caption=f"Layers of {', '.join(found)} on {args.split} of {args.data.name}.",
    )
