"""One-line errors about a user's options, at the end of fairseq's log.

fairseq's commands end with a long traceback through fairseq, PyTorch and Hydra, which hides the
message of this package's own errors.
"""

import os
import re
import sys
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

from fairseq_plugins.common.data_commands import commands_for
from fairseq_plugins.common.dictionaries import read_dictionary
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.suggestions import did_you_mean

TRACEBACK = "FAIRSEQ_PLUGINS_TRACEBACK"
_HYDRA = "HYDRA_FULL_ERROR"
_PACKAGE = Path(__file__).resolve().parents[1]
_NO_SPLIT = re.compile(r"Dataset not found: (\S+) \((.+)\)")  # of fairseq's tasks


def shorten_errors() -> None:
    """Print this package's ValueErrors as one line from now on; the exit status stays 1.

    So are invalid options that fairseq checks itself, a missing GPU, missing data and a damaged
    dictionary. Other errors keep their traceback; ``FAIRSEQ_PLUGINS_TRACEBACK=1`` and
    ``HYDRA_FULL_ERROR=1`` keep it for all. The latter is set here, since fairseq-hydra-train
    otherwise prints tracebacks itself; by now the configuration is composed and Hydra has no more
    errors to report.
    """
    if os.environ.get(TRACEBACK) == "1" or os.environ.get(_HYDRA) == "1":
        return
    os.environ[_HYDRA] = "1"
    sys.excepthook = _excepthook


def _excepthook(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if message := _short_message(error):
        program = Path(sys.argv[0]).name
        hint = f"({TRACEBACK}=1 shows where this is raised)"
        print(f"{program}: error: {message} {hint}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


def _short_message(error: BaseException) -> str:
    """Return the message of an error about options or data; "" for other errors."""
    if isinstance(error, ValueError) and _is_raised_in(_PACKAGE, error):
        return str(error)
    return (
        _lack_of_data(error)
        or _lack_of_cuda(error)
        or _damaged_dictionary(error)
        or _refused_option(error)
        or _failed_check(error)
    )


def _lack_of_data(error: BaseException) -> str:
    """Return the message for missing data, with the command that makes it; "" for other errors."""
    if not isinstance(error, FileNotFoundError):
        return ""
    if error.filename is None:
        missing = _NO_SPLIT.search(str(error))
        return f"{missing[2]} has no binarised text of the split {missing[1]}" if missing else ""
    commands = " and ".join(f"`{command}`" for command in commands_for(os.fsdecode(error.filename)))
    return commands and f"{os.fsdecode(error.filename)} does not exist; first run {commands}"


def _lack_of_cuda(error: BaseException) -> str:
    """Return the message for a missing GPU; "" for other errors."""
    import torch

    if torch.cuda.is_available() or not _is_raised_in(Path(torch.cuda.__file__).parent, error):
        return ""
    reason = str(error).splitlines()[0]
    return (
        f"the options ask for a GPU, and PyTorch finds none here ({reason}); on a CPU train with "
        "`common.cpu=true common.fp16=false` (--cpu without --fp16), as a recipe's scales toy and "
        "mini do"
    )


def _damaged_dictionary(error: BaseException) -> str:
    """Return the message for a dict.txt that fairseq could not read; "" for other errors."""
    path = ""
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code.co_name == "add_from_file" and isinstance(frame.f_locals.get("f"), str):
            path = frame.f_locals["f"]
    if not path:
        return ""
    try:
        read_dictionary(Path(path))
    except DataError as damage:
        return str(damage)
    except OSError as damage:
        return f"{path}: {damage.strerror}"
    return f"{path}: {error}"


def _refused_option(error: BaseException) -> str:
    """Return the message for an option that fairseq's dataclasses refuse; "" for other errors."""
    from omegaconf.errors import OmegaConfBaseException

    is_refused = isinstance(error, OmegaConfBaseException) and _sections_of(error)
    return invalid_option(error) if is_refused else ""


def invalid_option(error: Any) -> str:
    """Return the message of OmegaConf's error about the name or value of an option, in one line."""
    option = ".".join([*_sections_of(error), str(error.full_key)])
    known = getattr(error.object_type, "__dataclass_fields__", {})
    hint = did_you_mean(str(error.key), known) if known and error.key not in known else ""
    return f"`{option}`: {str(error).splitlines()[0]}.{hint}"


def _sections_of(error: BaseException) -> list[str]:
    """Return the section whose options fairseq completed when an error was raised, if any."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return [str(one.f_locals["k"]) for one in frames if one.f_code.co_name == "add_defaults"]


def _failed_check(error: BaseException) -> str:
    """Return the message of an option check in fairseq's commands; "" for other errors."""
    import fairseq_cli

    folder = Path(fairseq_cli.__file__).parent
    is_check = isinstance(error, AssertionError | ValueError) and _is_raised_in(folder, error)
    return str(error) if is_check else ""


def _is_raised_in(folder: Path, error: BaseException) -> bool:
    """Return whether an error was raised in a folder, or in compiled code called from there."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    files = [Path(frame.f_code.co_filename) for frame in frames]
    source = [file for file in files if file.is_file()]  # NumPy's compiled code names no file
    return bool(source) and source[-1].resolve().is_relative_to(folder.resolve())
