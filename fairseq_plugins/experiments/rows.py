"""Rows of a table: known ones, those that run by default, and checks of their names."""

import functools
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from omegaconf import OmegaConf
from yaml import YAMLError

from fairseq_plugins.common.own_encodings import VARIABLE
from fairseq_plugins.papers.tables import Table

BASE = "base"  # the recipe that other rows modify
_NEAR = 6  # most suggestions for an unknown name
PAPER = "paper"  # in --rows: the rows of the paper


def has_file(configs: Path, row: str) -> bool:
    """Return whether a row has settings of its own, in configs/model/<row>.yaml."""
    return (configs / "model" / f"{row}.yaml").is_file()


@functools.cache  # compositions are cached too, so a changed file counts in a new process alone
def encoding_of(configs: Path, row: str) -> str | None:
    """Return the encoding of a row that differs from Base in its encoding alone, else None.

    Raises ValueError: its file is no YAML or sets no encoding.
    """
    if not has_file(configs, row):
        return row
    path = configs / "model" / f"{row}.yaml"
    if any(other != path for other in configs.rglob(f"{row}.yaml")):
        return None  # the row's name also selects from another group
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except YAMLError as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or "@package" in path.read_text():
        return None
    if not content.keys() & {"position_encoding", "defaults"}:
        names = ", ".join(map(str, content)) or "nothing"
        raise ValueError(f"{path} must set `position_encoding`, but sets {names}")
    return str(content["position_encoding"]) if [*content] == ["position_encoding"] else None


def runnable_rows(configs: Path) -> list[str]:
    """Return the names of all rows: those with a file, and every encoding in Base's recipe."""
    from fairseq_plugins.encodings import ENCODINGS  # imports torch, which takes seconds

    files = {path.stem for path in (configs / "model").glob("*.yaml")}
    return sorted(files | set(ENCODINGS))


def known_rows(table: Table, configs: Path) -> list[str]:
    """Return the names of the rows that a table can have, sorted."""
    return sorted({*runnable_rows(configs), *table.adapted, *table.controls})


def default_rows(table: Table, configs: Path) -> list[str]:
    """Return the names of the rows that run by default."""
    runnable = known_rows(table, configs)
    own = [name for name in table.row_names if name in runnable]
    return [*own, *(n for n in runnable if n not in own)] if table.takes_any_encoding else own


def check_rows(table: Table, configs: Path, asked: list[str]) -> list[str]:
    """Return the requested rows, each once; the word ``paper`` stands for the rows of the paper.

    Raises ValueError: a row is unknown; the message has the nearest names.
    """
    runnable = known_rows(table, configs)
    own = [name for name in table.row_names if name in runnable]
    names = [name for word in asked for name in (own if word == PAPER else [word])]
    for name in names:
        check_row(runnable, name, f"`--rows` must be {PAPER!r} or")
    return list(dict.fromkeys(names))


def check_row(runnable: Sequence[str], name: str, must_be: str) -> None:
    """Check the name of a row (ValueError: it is unknown; the message has the nearest names).

    runnable: names of rows. must_be: the beginning of the message, with the option.
    """
    if name not in runnable:
        from fairseq_plugins.encodings import ENCODINGS  # imports torch, which takes seconds

        near = get_close_matches(name.lower().replace("-", "_"), runnable, n=_NEAR, cutoff=0.4)
        hint = ""
        if near:
            hint = f" Did you mean {near[0]!r}? The names nearest to it are {', '.join(near)}."
        others = ", ".join(row for row in runnable if row not in ENCODINGS)
        raise ValueError(
            f"{must_be} among the known names, but has {name!r}.{hint} "
            f"`fairseq-pe encodings` lists all encodings; the other names are {others}. "
            f"{VARIABLE} must name the file of an encoding of your own."
        )
