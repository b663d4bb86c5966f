"""What is wrong with a user's options, in a line at the end of fairseq's log.

fairseq's commands end with a traceback through fairseq, PyTorch and Hydra. Where this package
refuses something, its message says what to change, and seventy lines above it only hide it.
"""

import os
import sys
from pathlib import Path
from types import TracebackType

TRACEBACK = "FAIRSEQ_PLUGINS_TRACEBACK"
_HYDRA = "HYDRA_FULL_ERROR"
_PACKAGE = Path(__file__).resolve().parents[1]


def shorten_errors() -> None:
    """From now on a refusal by this package ends the process with one line; status 1 as before.

    Other errors keep their traceback. ``FAIRSEQ_PLUGINS_TRACEBACK=1`` and ``HYDRA_FULL_ERROR=1``
    keep it for all. fairseq-hydra-train prints tracebacks itself unless the latter is set, so it is
    set here, once the configuration has been composed and Hydra has nothing more to complain of.
    """
    if os.environ.get(TRACEBACK) == "1" or os.environ.get(_HYDRA) == "1":
        return
    os.environ[_HYDRA] = "1"
    sys.excepthook = _excepthook


def _excepthook(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if is_refusal(error, traceback):
        program = Path(sys.argv[0]).name
        message = f"{program}: error: {error} ({TRACEBACK}=1 shows where this is raised)"
        print(message, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


def is_refusal(error: BaseException, traceback: TracebackType | None) -> bool:
    """Whether this package's own code has raised a ValueError, as it does for what a user sets."""
    if not isinstance(error, ValueError) or traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    raised_in = Path(traceback.tb_frame.f_code.co_filename)
    return raised_in.resolve().is_relative_to(_PACKAGE)
