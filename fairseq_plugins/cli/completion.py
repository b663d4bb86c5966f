"""``fairseq-pe completion bash|zsh|tcsh``: a script for tab completion."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from fairseq_plugins.__main__ import COMMANDS, PROGRAM
from fairseq_plugins.cli.table_options import SCRIPTS
from fairseq_plugins.cli.table_options import get_parser as table_parser
from fairseq_plugins.common.parser import Parser

SHELLS = ("bash", "zsh", "tcsh")


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog=f"{PROGRAM} completion",
        description="Print a script that makes a shell complete commands and options.",
        epilog=f'for bash: eval "$({PROGRAM} completion bash)" in ~/.bashrc',
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Build one parser of all commands whose modules have a `get_parser`."""
    parser = Parser(prog=PROGRAM)
    commands = parser.add_subparsers(dest="command")
    for name, (module, summary) in COMMANDS.items():
        if name == "table":
            tables = commands.add_parser(name, help=summary).add_subparsers(dest="table")
            for table, about in SCRIPTS.items():
                own = table_parser(table)
                tables.add_parser(table, parents=[own], add_help=False, help=about.source)
            continue
        get = getattr(import_module(module), "get_parser", None)
        parents: list[Parser] = [get()] if get else []
        commands.add_parser(name, parents=parents, add_help=not parents, help=summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the script; return the exit status 0."""
    args = get_parser().parse_args(argv)
    from shtab import complete  # an extra

    print(complete(whole_parser(), shell=args.shell))
    return 0
