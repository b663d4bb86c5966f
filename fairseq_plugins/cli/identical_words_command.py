"""`fairseq-pe analyse identical-words --path CHECKPOINT --data DIR`."""

import argparse
import json
from pathlib import Path
from typing import Any

from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    add_checkpoint,
    add_seed_and_device,
    check_checkpoint,
    is_picture,
    label_of,
)
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.option_types import new_file
from fairseq_plugins.common.pictures import save_for_print
from fairseq_plugins.data.options import check_at_least


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "properties of the first layer's attention to sentences that repeat a word, as JSON"
    command = commands.add_parser(
        "identical-words",
        help=summary,
        description=f"{summary.capitalize()}. Of a translation model, the encoder's. The direction "
        "balance of a causal model is infinite, which no JSON can hold: it is null, and named "
        "under `infinite`.",
    )
    add = command.add_argument
    add_checkpoint(command)
    text = f"also write the weights (T, T), a name that ends with .npy, {PICTURE}"
    add("--output", type=new_file, metavar="FILE", help=text)
    text = f"number of words to draw (default: {WORDS})"
    add("--words", type=int, default=WORDS, metavar="N", help=text)
    longest = f"tokens of a sentence (default: {LENGTH}, or the model's longest input if shorter)"
    add("--length", type=int, metavar="N", help=longest)
    add_seed_and_device(command)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    check_at_least(1, words=args.words)
    check_at_least(4, length=args.length)
    check_checkpoint(args)
    output: Path | None = args.output
    if output and output.suffix != ".npy" and not is_picture(output):
        raise OptionError(f"--output must end with .npy, or as a picture, but is {output}")
    import numpy as np  # here, since these take seconds, which --help must not

    from fairseq_plugins.analysis.figure_files import draw_panels
    from fairseq_plugins.analysis.identical_words import probe
    from fairseq_plugins.analysis.indicators import infinite, measure
    from fairseq_plugins.analysis.loaded_stacks import load_stack
    from fairseq_plugins.analysis.probe_figures import word_panels

    with checkpoint_given_by("--path"):
        loaded = load_stack(args.path, args.data, cpu=args.cpu)
        found = probe(loaded, words=args.words, length=args.length, seed=args.seed)
    if output and is_picture(output):
        panels = word_panels({label_of(args.path): vars(found)})
        save_for_print(draw_panels(panels), output)
    elif output:
        with writing(output) as (file,):
            np.save(file, found.weights.float().numpy())
    facts = {"words": found.words, "length": len(found.weights), "model": loaded.family}
    metrics = measure(found.weights, loaded.num_bos, loaded.num_eos)
    print(json.dumps({"metrics": metrics, "infinite": infinite(found.weights), **facts}))
