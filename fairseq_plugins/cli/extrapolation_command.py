"""`fairseq-pe analyse extrapolation`: losses beyond the training length."""

import argparse
import json
from typing import Any

from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    add_checkpoint,
    add_seed_and_device,
    check_checkpoint,
    is_picture,
)
from fairseq_plugins.cli.evaluate import add_adaptation
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.option_types import factors, new_file
from fairseq_plugins.common.pictures import save_for_print

LENGTHS, TOKENS = "1x,2x,4x,8x", 32768


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "the losses of a checkpoint at multiples of its training length, as JSON"
    command = commands.add_parser("extrapolation", help=summary, description=summary)
    add = command.add_argument
    add_checkpoint(command, "checkpoint of a language model", "data folder")
    add("--split", default="test", help="train, valid or test (default: test)")
    text = f"multiples of the training length (default: {LENGTHS})"
    add("--lengths", type=factors, default=LENGTHS, metavar="1x,2x", help=text)
    text = f"tokens to read from the start of the split (default: {TOKENS})"
    add("--tokens", type=int, default=TOKENS, metavar="N", help=text)
    text = f"also draw the losses by length and by position: {PICTURE.removeprefix('or ')}"
    add("--output", type=new_file, metavar="FILE", help=text)
    add_adaptation(command)
    add_seed_and_device(command)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if args.output and not is_picture(args.output):
        raise OptionError(f"--output must be {PICTURE.removeprefix('or ')}, but is {args.output}")
    # Here, since these take seconds, which --help must not.
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
