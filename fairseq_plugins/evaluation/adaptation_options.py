"""Options of commands that evaluate a model with another encoding than it was trained with."""

import argparse


def add_adaptation(parser: argparse.ArgumentParser) -> None:
    """`--encoding`, `--options` and `--grow-table`."""
    add = parser.add_argument
    add(
        "--encoding",
        default="",
        metavar="NAME",
        help="in place of the one that the model was trained with, as yarn for rope; its weights "
        "must be those of the checkpoint, and nothing is trained",
    )
    add(
        "--options",
        default="",
        metavar="WORDS",
        help='of that encoding, as "factor=4"; without a factor it is the length in those of the '
        "training",
    )
    add(
        "--grow-table",
        default="",
        metavar="HOW",
        help="make a learned table as long as each length, without training: copy its rows and "
        "draw the others, interpolate between them, or derive all by Su's decomposition",
    )
