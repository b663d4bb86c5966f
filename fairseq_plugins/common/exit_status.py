"""How the project's commands end."""

import subprocess
import sys
from collections.abc import Callable


def exit_status(program: str, work: Callable[[], None]) -> int:
    """Do the work of a command; 1 with the reason on standard error where it cannot be done."""
    try:
        work()
    except subprocess.CalledProcessError as error:
        print(f"{error.output}\n{program}: error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    return 0
