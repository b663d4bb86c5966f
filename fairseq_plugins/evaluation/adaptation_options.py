"""Options of commands that evaluate a model with another encoding than in training."""

import argparse


def add_adaptation(parser: argparse.ArgumentParser) -> None:
    """Add `--encoding`, `--options` and `--grow-table`."""
    add = parser.add_argument
    add(
        "--encoding",
        default="",
        metavar="NAME",
        help="encoding in place of the model's own, as yarn for rope; it must have its "
        "weights: nothing is trained",
    )
    add(
        "--options",
        default="",
        metavar="WORDS",
        help='options of that encoding, as "factor=4"; the factor is by default the length over '
        "that of the training",
    )
    add(
        "--grow-table",
        default="",
        metavar="HOW",
        help="extend a learned table to each length, without training: copy its rows and draw the "
        "others, interpolate between them, or derive all by Su's decomposition",
    )
