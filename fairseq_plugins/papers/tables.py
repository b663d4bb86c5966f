"""A table of a paper as data: which rows, in which order, with which published numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.common.suggestions import did_you_mean

ATTENTIONS = ("linear", "vanilla")  # the columns of the LRPE paper, in its order
PAPER = "paper"  # in --rows: the paper's own


@dataclass(frozen=True)
class Printed:
    """A published number, with the standard deviation where the paper prints one."""

    mean: float
    deviation: float | None = None
    digits: int = 2

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f}{spread}"


@dataclass(frozen=True)
class Column:
    """A measured quantity of a table; ``metric`` is its key in a result's metrics.

    digits: after the point, where it is shown.
    """

    metric: str
    label: str
    higher_is_better: bool = False
    digits: int = 2


@dataclass(frozen=True)
class Row:
    """A row: `name` is its configs/model/<name>.yaml, `label` what the paper prints.

    paper: per attention the published numbers by metric; an attention without any is a dash in
    the paper.
    """

    name: str
    label: str
    group: str
    paper: Mapping[str, Mapping[str, Printed]]


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    experiment: how its runs are trained and measured, a name in `experiments.EXPERIMENTS`.
    columns: the last one, or that of the metric `rank`, ranks the rows. rows: the paper's, in its
    order. is_open: whether every other encoding is a row beyond the paper. attentions: what runs
    by default. seeds: likewise, at scale paper. further: attentions beyond the paper, with a
    heading for their rows. against: the row that others are tested against for significance, None
    for no test. curves: the figure that is drawn from its runs while they train. draws_patterns:
    whether its figure shows what its models attend to. notes: sentences of the caption.
    """

    name: str
    source: str
    title: str
    experiment: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    is_open: bool = False
    attentions: tuple[str, ...] = ATTENTIONS
    seeds: tuple[int, ...] = (1,)
    further: Mapping[str, str] = field(default_factory=dict)
    against: str | None = None
    curves: str | None = None
    draws_patterns: bool = False
    rank: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_printed(self) -> bool:
        """Whether the paper has numbers of it."""
        return any(row.paper for row in self.rows)

    @property
    def ranked_by(self) -> Column:
        """The column by which rows are compared."""
        return next((c for c in self.columns if c.metric == self.rank), self.columns[-1])

    def row(self, name: str) -> Row:
        """The paper's row of that name, or one without published numbers."""
        for row in self.rows:
            if row.name == name:
                return row
        return Row(name, name, "", {})

    @property
    def row_names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)


def has_file(configs: Path, row: str) -> bool:
    """Whether a row has settings of its own, in configs/model/<row>.yaml."""
    return (configs / "model" / f"{row}.yaml").is_file()


def runnable_rows(configs: Path) -> list[str]:
    """Rows by name, sorted: those with a file, and every encoding, which is Base with that one."""
    from fairseq_plugins.encodings import ENCODINGS  # imports torch, which takes seconds

    files = {path.stem for path in (configs / "model").glob("*.yaml")}
    return sorted(files | set(ENCODINGS))


def default_rows(table: Table, configs: Path) -> list[str]:
    """The rows of a table that run when none are asked for."""
    runnable = runnable_rows(configs)
    own = [name for name in table.row_names if name in runnable]
    return [*own, *(n for n in runnable if n not in own)] if table.is_open else own


def check_rows(table: Table, configs: Path, asked: list[str]) -> list[str]:
    """The asked-for rows, each once; the word ``paper`` stands for the paper's own.

    Raises:
        ValueError: for an unknown row, with the nearest name.
    """
    runnable = runnable_rows(configs)
    own = [name for name in table.row_names if name in runnable]
    names = [name for word in asked for name in (own if word == PAPER else [word])]
    for name in names:
        if name in runnable:
            continue
        raise ValueError(
            f"`--rows` must be {PAPER!r} or among {', '.join(runnable)}, but has {name!r}."
            f"{did_you_mean(name, runnable)}"
        )
    return list(dict.fromkeys(names))
