"""Commands of several: the first word says which one, and only that one is imported."""

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

# name: (module with main(argv) -> exit status, imported only when asked for; line for --help)
Commands = Mapping[str, tuple[str, str]]


def dispatch(
    program: str,
    description: str,
    commands: Commands,
    argv: Sequence[str] | None = None,
    *,
    epilog: str | None = None,
) -> int:
    """Run the command that ``argv`` (default: the process's) begins with; its exit status."""
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=epilog)
    choices = parser.add_subparsers(dest="command", metavar="<command>", required=True)
    for name, (_, summary) in commands.items():
        choices.add_parser(name, help=summary, add_help=False)
    arguments, rest = parser.parse_known_args(argv)
    return int(import_module(commands[arguments.command][0]).main(rest))
