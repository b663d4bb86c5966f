"""Files of encodings outside the package, which an environment variable names."""

import os
from pathlib import Path

from fairseq_plugins.common.errors import OptionError

VARIABLE = "FAIRSEQ_PLUGINS_ENCODINGS"


def own_encodings() -> dict[str, Path]:
    """Return the files that `VARIABLE` names, by the name of their module.

    The variable is made absolute, since commands that this process starts may run in other folders.

    Raises OptionError: one is no Python file, or two have the same name.
    """
    files: dict[str, Path] = {}
    for word in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        path = Path(word).resolve()
        if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
            raise OptionError(
                f"`{VARIABLE}` must name Python files, with {os.pathsep!r} between them, but "
                f"names {word}"
            )
        if files.setdefault(path.stem, path) != path:
            raise OptionError(f"`{VARIABLE}` must name {path.name} once, but names two such files")
    if files:
        os.environ[VARIABLE] = os.pathsep.join(map(str, files.values()))
    return files
