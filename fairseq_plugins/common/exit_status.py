"""Exit statuses and error lines of the project's commands."""

import subprocess
import sys
from collections.abc import Callable

from fairseq_plugins.common.errors import WorkError
from fairseq_plugins.common.parser import REFUSED, refusal


def exit_status(program: str, work: Callable[[], None]) -> int:
    """Do the work of a command, with the reason on standard error where it cannot be done.

    Returns:
        0; 2 where the input is refused, for which this project's code raises ValueError; 1 where
        the work was begun and failed.
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
        print(refusal(program, str(error)), file=sys.stderr)
        return REFUSED
    return 0
