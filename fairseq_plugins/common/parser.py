"""The parser of every command; errors are one line with exit status 2."""

import argparse
import re
import sys
from typing import Any, NoReturn

from fairseq_plugins.common.suggestions import did_you_mean

INVALID_INPUT = 2  # exit status for bad input, before any work
_WIDTH = 120  # longest line with the hint
_HINT = " (--help shows the options)"


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors omit the usage, for subcommands too.

    The parsed arguments have ``program``, the command with which errors begin, and
    ``command_line``, the words that were parsed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_defaults(program=self.prog)  # a subcommand's own overrides this one

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; errors about unknown words name the subcommand."""
        parsed, rest = self.parse_known_args(args, namespace)
        parsed.command_line = list(sys.argv[1:] if args is None else args)
        if rest:
            _end(parsed.program, f"unrecognized arguments: {' '.join(rest)}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print the error in a line, with a word that may have been meant, and exit with 2."""
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            hint = did_you_mean(choice[1], choice[2].replace("'", "").split(", "))
            message += f".{hint}" if hint else ""
        _end(self.prog, message)


def error_line(program: str, message: str) -> str:
    """Format an error as one line."""
    return f"{program}: error: {' '.join(part.strip() for part in message.splitlines())}"


def _end(program: str, message: str) -> NoReturn:
    line = error_line(program, message)
    sys.stderr.write(f"{line}{_HINT * (len(line + _HINT) <= _WIDTH)}\n")
    sys.exit(INVALID_INPUT)
