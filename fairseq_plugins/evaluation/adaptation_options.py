"""Options of commands that evaluate a model with another encoding than in training."""

import argparse


def add_adaptation(parser: argparse.ArgumentParser) -> None:
    """Add `--encoding`, `--options` and `--grow-table`."""
    add = parser.add_argument
    text = "encoding in place of the model's own, as yarn for rope; it must have its "
    text += "weights: nothing is trained"
    add("--encoding", default="", metavar="NAME", help=text)
    text = 'options of that encoding, as "factor=4"; the factor is by default the length over '
    text += "that of the training"
    add("--options", default="", metavar="WORDS", help=text)
    text = "extend a learned table to each length, without training: copy its rows and draw the "
    text += "others, interpolate between them, or derive all by Su's decomposition"
    add("--grow-table", default="", metavar="HOW", help=text)
