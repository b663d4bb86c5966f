"""`fairseq-pe analyse picture ENCODING ...`: pictures of untrained encodings."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.option_types import new_folder, parse_seed

OUTPUT = Path("pictures")

_LONGEST = 8192  # positions: a picture is of every two of them


def register(commands: Any) -> None:
    """Add the command to those of `fairseq-pe analyse`."""
    summary = "pictures of an untrained encoding: PNG, SVG, JSON, and its canonical form"
    command = commands.add_parser("picture", help=summary, description=summary)
    add = command.add_argument
    text = "names of encodings, such as rope or base+alibi; several are also drawn side by side"
    add("encodings", nargs="*", metavar="ENCODING", help=text)
    text = "draw all encodings, and write a README.md with the pictures"
    add("--all", action="store_true", help=text)
    text = f"folder for the files (default: {OUTPUT})"
    add("--output", type=new_folder, default=OUTPUT, metavar="DIR", help=text)
    text = 'options of the encoding, such as "base=500 rotated=half"'
    add("--options", default="", metavar="WORDS", help=text)
    add("--length", type=int, metavar="N", help="number of positions (default: 129)")
    add("--seed", type=parse_seed, default=1, help="random seed (default: 1)")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if bool(args.encodings) == args.all:
        raise OptionError("ENCODING or --all must be given, and not both")
    if len({*args.encodings}) < len(args.encodings):
        raise OptionError(f"each ENCODING must be named once, but is {' '.join(args.encodings)}")
    if len(args.encodings) != 1 and args.options:
        raise OptionError("--options must be left out unless one ENCODING is given")
    # Here, since these take seconds, which --help must not.
    from fairseq_plugins.analysis import picture, picture_files
    from fairseq_plugins.encodings import ENCODINGS, parse_options

    length = picture.LENGTH if args.length is None else args.length
    if length < 2:
        raise OptionError(f"--length must be at least 2, but is {length}")
    if length > _LONGEST:
        raise OptionError(f"--length must be at most {_LONGEST:,}, but is {length}")
    names = sorted(ENCODINGS) if args.all else args.encodings
    options = parse_options(args.options)
    # All of them first: a misspelt name is refused before anything is drawn.
    encodings = [picture.build(name, length=length, seed=args.seed, **options) for name in names]
    all_seen = []
    for name, encoding in zip(names, encodings, strict=True):
        seen = picture.observe(name, encoding, length=length, seed=args.seed)
        seen = replace(seen, options=" ".join(args.options.split()))
        picture_files.write_picture(seen, args.output)
        print("\n".join(picture_files.form_lines(seen)), flush=True)
        all_seen.append(seen)
    if args.all:
        command = f"fairseq-pe analyse picture --all --output {args.output}"
        command += f" --length {length}" if length != picture.LENGTH else ""
        command += f" --seed {args.seed}" if args.seed != 1 else ""
        picture_files.write_page(all_seen, args.output, command)
    elif len(all_seen) > 1:
        picture_files.write_side_by_side(all_seen, args.output)
    print(f"written: {args.output}")
