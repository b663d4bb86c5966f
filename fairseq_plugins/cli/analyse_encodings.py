"""Commands of `fairseq-pe analyse` that draw and measure encodings."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    PICTURES,
    WITH_DICTIONARIES,
    add_command,
    check_checkpoint,
    folder_or_picture,
    is_picture,
    label_of,
    typed,
)
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.option_types import number, numbers, parse_seed
from fairseq_plugins.common.pictures import save_for_print
from fairseq_plugins.data.options import check_at_least

if TYPE_CHECKING:
    from fairseq_plugins.encodings import PositionEncoding

# Imports in the functions that run take seconds, which --help must not.
RELATIVE = ("alibi", "t5", "rope", "shaw", "xl", "lrpe_type2")  # for Corollary 3.5
_LONGEST = 8192  # positions: pictures and relative encodings have a number for every two of them


def add_picture(commands: Any) -> None:
    """Add the command of pictures of encodings."""
    summary = "pictures of an encoding: PNG, SVG, JSON, and its canonical form"
    command = add_command(commands, "picture", _picture, summary)
    add = command.add_argument
    text = "names of encodings, such as rope or base+alibi; several are also drawn side by side"
    add("encodings", nargs="*", metavar="ENCODING", help=text)
    text = "draw all encodings, and write a README.md with the pictures"
    add("--all", action="store_true", help=text)
    text = "checkpoint whose encoding is drawn with its learned parameters, in place of ENCODING"
    add("--path", type=Path, metavar="CHECKPOINT", help=text)
    add("--data", type=Path, metavar="DIR", help=WITH_DICTIONARIES)
    text = "layer of the checkpoint, 0 for the encoding of the first layer's input (default: 1)"
    add("--layer", type=number("--layer", 0), default=1, metavar="N", help=text)
    text = f"folder for the files, {PICTURE} (several encodings: side by side; default: {PICTURES})"
    add("--output", type=folder_or_picture, default=PICTURES, metavar="DIR", help=text)
    text = 'options of the encoding, such as "base=500 rotated=half"'
    add("--options", default="", metavar="WORDS", help=text)
    add("--length", type=int, metavar="N", help="number of positions (default: 129)")
    add("--seed", type=parse_seed, default=1, help="random seed (default: 1)")


def _picture(args: argparse.Namespace) -> None:
    if [bool(args.encodings), args.all, args.path is not None].count(True) != 1:
        raise OptionError("ENCODING, --all or --path must be given, and only one of them")
    if len({*args.encodings}) < len(args.encodings):
        raise OptionError(f"each ENCODING must be named once, but is {' '.join(args.encodings)}")
    if len(args.encodings) != 1 and args.options:
        raise OptionError("--options must be left out unless one ENCODING is given")
    if (args.path is None) != (args.data is None):
        raise OptionError("--path and --data must be given together")
    if args.path is not None:
        check_checkpoint(args)
    if args.all and is_picture(args.output):
        raise OptionError(f"--output must be a folder with --all, but is {args.output}")
    check_at_least(2, most=_LONGEST, length=args.length)
    from fairseq_plugins.analysis import picture, picture_files
    from fairseq_plugins.encodings import ENCODINGS, parse_options

    length = picture.LENGTH if args.length is None else args.length
    names = sorted(ENCODINGS) if args.all else args.encodings
    options, model = parse_options(args.options), ""
    # All of them first: a misspelt name is refused before anything is drawn.
    encodings = [picture.build(name, length=length, seed=args.seed, **options) for name in names]
    if args.path is not None:
        found, longest = _trained(args)
        length = length if args.length is not None else min(length, longest)
        names, encodings = [found.label], [found]
        model = f"layer {args.layer} of {label_of(args.path)}"
    all_seen = []
    for name, encoding in zip(names, encodings, strict=True):
        seen = picture.observe(name, encoding, length=length, seed=args.seed)
        seen = replace(seen, options=" ".join(args.options.split()), model=model)
        if not is_picture(args.output):
            picture_files.write_picture(seen, args.output)
        print("\n".join(picture_files.form_lines(seen)), flush=True)
        all_seen.append(seen)
    if is_picture(args.output):
        alone = len(all_seen) == 1
        drawn = (
            picture_files.draw(all_seen[0]) if alone else picture_files.draw_side_by_side(all_seen)
        )
        save_for_print(drawn, args.output)
    elif args.all:
        write_text(args.output / "README.md", picture_files.page(all_seen, typed(args)))
    elif len(all_seen) > 1:
        picture_files.write_side_by_side(all_seen, args.output)
    print(f"written: {args.output}")


def _trained(args: argparse.Namespace) -> tuple["PositionEncoding", int]:
    """Return the encoding of a checkpoint's layer, and its longest input."""
    from fairseq_plugins.analysis.loaded_stacks import load_stack

    with checkpoint_given_by("--path"):
        loaded = load_stack(args.path, args.data, cpu=True)
    if args.length is not None and args.length > loaded.max_length:
        raise OptionError(
            f"--length must be at most the model's {loaded.max_length}, but is {args.length}"
        )
    if args.layer > len(loaded.stack.layers):
        raise OptionError(
            f"--layer must be at most {len(loaded.stack.layers)}, but is {args.layer}"
        )
    found = loaded.encoding(args.layer)
    if found is None:
        raise OptionError(f"--layer must have an encoding, but {args.layer} has none")
    return found.float(), loaded.max_length


def add_awareness(commands: Any) -> None:
    """Add the command of position awareness."""
    command = add_command(
        commands,
        "awareness",
        _awareness,
        "whether position vectors encode the distance to both ends of a sequence",
        "Forward- and backward-awareness of encodings (dual positional encoding, Definitions 3.1 "
        "and 3.2, Properties 3.1 and 3.2, Corollaries 3.5 and 3.6), without any training, and heat "
        "maps of their vectors as in its Figures 2 and 6.",
    )
    add = command.add_argument
    text = f"names of encodings (default: all absolute ones, {', '.join(RELATIVE)})"
    add("encoding", nargs="*", metavar="ENCODING", help=text)
    text = 'options of the encoding, such as "scale=one"'
    add("--options", default="", metavar="WORDS", help=text)
    add("--width", type=int, metavar="C", help="features of a vector (default: 32)")
    lengths = "10,20"  # of the heat maps in the paper's Figures 2 and 6
    text = f"sequence lengths of the heat maps (default: {lengths})"
    add("--lengths", type=numbers("--lengths", 2), default=lengths, metavar="N,N", help=text)
    add("--seed", type=parse_seed, default=1, help="random seed (default: 1)")
    text = f"folder for figures, numbers and a page, {PICTURE} (default: print only)"
    add("--output", type=folder_or_picture, metavar="DIR", help=text)


def _awareness(args: argparse.Namespace) -> None:
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
