"""The parser of every command: what it refuses is one line, exit status 2."""

import argparse
import sys
from typing import Any, NoReturn

REFUSED = 2  # exit status: bad input, and nothing was started
_WIDTH = 120  # of a line that has room for the hint
_HINT = " (--help shows the options)"


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser`, also of subcommands, without the usage before its errors.

    The parsed arguments have ``program``: the command's words, as errors begin with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_defaults(program=self.prog)  # a subcommand's own goes over this one

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like the base class, but refuse unknown words in the subcommand's name."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            _end(found.program, f"unrecognized arguments: {' '.join(rest)}")
        return found

    def error(self, message: str) -> NoReturn:
        """Say why in a line, and end with 2."""
        _end(self.prog, message)


def refusal(program: str, message: str) -> str:
    """The line that says what a program refuses."""
    return f"{program}: error: {' '.join(part.strip() for part in message.splitlines())}"


def _end(program: str, message: str) -> NoReturn:
    line = refusal(program, message)
    sys.stderr.write(f"{line}{_HINT * (len(line + _HINT) <= _WIDTH)}\n")
    sys.exit(REFUSED)
