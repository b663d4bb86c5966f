"""``fairseq-pe path``: the folders that fairseq's commands take as options."""

import argparse
from collections.abc import Sequence

from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import PACKAGE, configs_folder


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe path",
        description="Print the folder of this package, for fairseq's --user-dir.",
    )
    text = "print the folder of the recipes instead, for --config-dir of fairseq-hydra-train"
    parser.add_argument("--configs", action="store_true", help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print a folder; return the exit status 0."""
    arguments = get_parser().parse_args(argv)
    print(configs_folder() if arguments.configs else PACKAGE)
    return 0
