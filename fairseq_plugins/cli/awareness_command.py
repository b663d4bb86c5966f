"""`fairseq-pe analyse awareness ENCODING`: position awareness of an encoding's vectors."""

import argparse
from typing import Any

from fairseq_plugins.cli.analysis_options import PICTURE, folder_or_picture, is_picture, typed
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.option_types import numbers, parse_seed
from fairseq_plugins.common.pictures import save_for_print
from fairseq_plugins.data.options import check_at_least

RELATIVE = ("alibi", "t5", "rope", "shaw", "xl", "lrpe_type2")  # for Corollary 3.5
_LONGEST = 8192  # positions: a relative encoding has a score for every two of them
LENGTHS = "10,20"  # of the heat maps in the paper's Figures 2 and 6


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    command = commands.add_parser(
        "awareness",
        help="whether position vectors encode the distance to both ends of a sequence",
        description="Forward- and backward-awareness of encodings (dual positional encoding, "
        "Definitions 3.1 and 3.2, Properties 3.1 and 3.2, Corollaries 3.5 and 3.6), without any "
        "training, and heat maps of their vectors as in its Figures 2 and 6.",
    )
    add = command.add_argument
    text = f"names of encodings (default: all absolute ones, {', '.join(RELATIVE)})"
    add("encoding", nargs="*", metavar="ENCODING", help=text)
    text = 'options of the encoding, such as "scale=one"'
    add("--options", default="", metavar="WORDS", help=text)
    add("--width", type=int, metavar="C", help="features of a vector (default: 32)")
    text = f"sequence lengths of the heat maps (default: {LENGTHS})"
    add("--lengths", type=numbers("--lengths", 2), default=LENGTHS, metavar="N,N", help=text)
    add("--seed", type=parse_seed, default=1, help="random seed (default: 1)")
    text = f"folder for figures, numbers and a page, {PICTURE} (default: print only)"
    add("--output", type=folder_or_picture, metavar="DIR", help=text)
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    # Here, since these take seconds, which --help must not.
    from fairseq_plugins.analysis import awareness_files, position_rows
    from fairseq_plugins.encodings import parse_options

    width = position_rows.WIDTH if args.width is None else args.width
    if width < 4 or width % 4:
        raise OptionError(f"--width must be a multiple of 4, but is {width}")
    if args.options and len(args.encoding) != 1:
        raise OptionError("--options must be with one ENCODING")
    check_at_least(2, most=_LONGEST, lengths=max(args.lengths))
    as_picture = args.output is not None and is_picture(args.output)
    if as_picture and len(args.lengths) > 1:
        raise OptionError(f"--lengths must be one number to draw {args.output}")
    names = [*dict.fromkeys(args.encoding)] or [*awareness_files.absolute_names(), *RELATIVE]
    options = parse_options(args.options)
    seen = [
        awareness_files.observe(name, width=width, lengths=args.lengths, seed=args.seed, **options)
        for name in names
    ]
    print(awareness_files.as_text(seen))
    if as_picture:
        save_for_print(awareness_files.draw(seen, *args.lengths), args.output)
    elif args.output is not None:
        awareness_files.write(seen, args.output, typed(args))
    if args.output is not None:
        print(f"written: {args.output}")
