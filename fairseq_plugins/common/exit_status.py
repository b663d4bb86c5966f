"""Exit statuses and error lines of the project's commands."""

import subprocess
import sys
from collections.abc import Callable

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.parser import REFUSED, error_line


def exit_status(program: str, work: Callable[[], None]) -> int:
    """Run a command's work and print errors to standard error.

    Returns:
        0 on success, 2 for invalid input (a ValueError), 1 if started work failed.
    """
    try:
        work()
    except subprocess.CalledProcessError as error:
        print(f"{error.output}\n{program}: error: {error}", file=sys.stderr)
        return 1
    except (WorkError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(error_line(program, str(error)), file=sys.stderr)
        return REFUSED
    return 0
