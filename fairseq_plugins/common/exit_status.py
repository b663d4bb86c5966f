"""Main functions of the project's commands: options, exit statuses and error lines."""

import argparse
import atexit
import gc
import subprocess
import sys
from collections.abc import Callable, Sequence

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.parser import INVALID_INPUT, error_line
from fairseq_plugins.common.root import apply_folder_options


def command(
    get_parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int | None],
    *,
    quiet: bool = False,
    if_stopped: str = "",
) -> Callable[..., int]:
    """Return a command's main function, from arguments (None: the process's) to exit status.

    Args:
        get_parser: makes the parser.
        run: does the work, with the parsed arguments; may return an exit status of its own.
        quiet: whether to print no log lines of libraries.
        if_stopped: text to print after Ctrl-C, with exit status 130; empty to raise it.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        if argv is None:
            skip_last_collection()
        args = get_parser().parse_args(argv)
        apply_folder_options(args)
        if quiet:
            import logging  # slow to import; --help stays fast

            logging.disable(logging.INFO)
        try:
            return exit_status(args.program, lambda: run(args))
        except KeyboardInterrupt:
            if not if_stopped:
                raise
            print(f"\n{if_stopped}")
            return 130

    return main


def skip_last_collection() -> None:
    """Let this process end without Python's last garbage collections.

    With torch and fairseq imported they take 1 to 2.5 seconds. Objects in reference cycles are then
    not finalised at the end.
    """
    atexit.register(gc.freeze)


def exit_status(program: str, work: Callable[[], int | None]) -> int:
    """Run a command's work and print errors to standard error.

    Returns:
        The status that the work returns, 0 for None; 2 for invalid input (a ValueError), 1 if it
        failed.
    """
    try:
        return work() or 0
    except subprocess.CalledProcessError as error:
        print(f"{error.output}\n{program}: error: {error}", file=sys.stderr)
        return 1
    except (WorkError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(error_line(program, str(error)), file=sys.stderr)
        return INVALID_INPUT
