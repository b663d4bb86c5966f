"""`fairseq-pe analyse picture ENCODING ...`: pictures of encodings."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    WITH_DICTIONARIES,
    check_checkpoint,
    folder_or_picture,
    is_picture,
    label_of,
    typed,
)
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.option_types import number, parse_seed
from fairseq_plugins.common.pictures import save_for_print

if TYPE_CHECKING:
    from fairseq_plugins.encodings import PositionEncoding

OUTPUT = Path("pictures")

_LONGEST = 8192  # positions: a picture is of every two of them


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "pictures of an encoding: PNG, SVG, JSON, and its canonical form"
    command = commands.add_parser("picture", help=summary, description=summary)
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
    text = f"folder for the files, {PICTURE} (several encodings: side by side; default: {OUTPUT})"
    add("--output", type=folder_or_picture, default=OUTPUT, metavar="DIR", help=text)
    text = 'options of the encoding, such as "base=500 rotated=half"'
    add("--options", default="", metavar="WORDS", help=text)
    add("--length", type=int, metavar="N", help="number of positions (default: 129)")
    add("--seed", type=parse_seed, default=1, help="random seed (default: 1)")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
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
    # Here, since these take seconds, which --help must not.
    from fairseq_plugins.analysis import picture, picture_files
    from fairseq_plugins.encodings import ENCODINGS, parse_options

    length = picture.LENGTH if args.length is None else args.length
    if length < 2:
        raise OptionError(f"--length must be at least 2, but is {length}")
    if length > _LONGEST:
        raise OptionError(f"--length must be at most {_LONGEST:,}, but is {length}")
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
        save_for_print(picture_files.draw_together(all_seen), args.output)
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
