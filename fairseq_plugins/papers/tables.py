"""Tables of papers: rows, columns, figures, and a parser of printed numbers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

ATTENTIONS = ("linear", "vanilla")  # in the order of the LRPE paper; vanilla is softmax
AVERAGE = "average"  # the metric of a column that is the mean of others
PUBLISHED = "published"  # the scale at which models start from published weights
MARK = "†"  # of significance


@dataclass(frozen=True)
class Printed:
    """A published number, with the standard deviation if the paper prints one.

    is_marked: whether the paper marks it as significant, by the test of `Table.mark`.
    """

    mean: float
    deviation: float | None = None
    is_marked: bool = False

    def text(self, digits: int) -> str:
        """Format the number as in the paper, with `digits` decimals."""
        mark = MARK if self.is_marked else ""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{mark}{spread}"


@dataclass(frozen=True)
class Column:
    """A column of a table; ``metric`` is its key in a result's metrics.

    digits: number of decimals.
    """

    metric: str
    label: str
    higher_is_better: bool = False
    digits: int = 2


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str  # of its encoding or of configs/model/<name>.yaml
    label: str  # as printed in the paper
    group: str  # heading above it in the paper
    paper: Mapping[str, Mapping[str, Printed]]  # by attention and metric, without its dashes


@dataclass(frozen=True)
class Figure:
    """A figure drawn from a table's runs."""

    kind: Literal[
        "ranking",  # a dot for each row and attention
        "curves",  # the perplexity at every validation
        "attention",  # the attention weights of each row
        "lengths",  # the perplexity at each length
        "parts",  # SQuAD after each part of a pre-training
        "buckets",  # BLEU by the length of the source
        "settings",  # a dot for each row and column in one panel
    ]
    source: str = ""  # the paper's name for it, empty if it is not in the paper
    name: str = ""  # of its own script and page, empty if it is on the table's page


@dataclass(frozen=True)
class Adapted:
    """A row that evaluates the model of another row with something changed."""

    of: str  # the row whose model is evaluated
    encoding: str = ""  # replaces that row's; empty to keep it
    grow_table: str = ""  # how a learned table is extended; empty to keep its length


@dataclass(frozen=True)
class Control:
    """A row beyond the paper that replaces an encoding by a new one of its kind, as a control."""

    of: str  # the row whose model it has
    overrides: tuple[str, ...]  # Hydra's, of the training that starts from another encoding's model


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    name: str  # of its script, folders and page
    source: str  # where it is in the paper
    title: str  # its caption
    experiment: str  # key of `experiments.EXPERIMENTS`
    columns: tuple[Column, ...]  # the last one, or that of the metric `rank`, ranks the rows
    rows: tuple[Row, ...]  # of the paper, in order
    # Metrics without a column of the table: those of claims, computed from the curves of runs, and
    # those of other sections of the page.
    derived: tuple[Column, ...] = ()
    # By name, rows that run by default if rows start from a published model.
    controls: Mapping[str, Control] = field(default_factory=dict)
    rank: str | None = None  # metric of the column that ranks the rows, None for the last column
    average_of: tuple[str, ...] = ()  # metrics whose mean is the column `AVERAGE`
    takes_any_encoding: bool = False  # whether every other encoding is a row beyond the paper
    attentions: tuple[str, ...] = ATTENTIONS  # run by default
    seeds: tuple[int, ...] = (1,)  # run by default at scale paper
    names: Mapping[str, str] = field(default_factory=dict)  # of attentions on pages, if other
    reference_attentions: tuple[str, ...] = ()  # all others are compared with each, in a section
    # Attentions beyond the paper, with a heading for their rows.
    extra_attentions: Mapping[str, str] = field(default_factory=dict)
    reference: str = "base"  # the row that the others are compared with
    figures: tuple[Figure, ...] = (Figure("ranking"),)  # drawn from its runs
    mark: str = ""  # meaning of the paper's marks of significance, empty if it has none
    notes: tuple[str, ...] = ()  # sentences of the caption
    lengths: tuple[int, ...] = ()  # by default, in multiples of the training length; empty if fixed
    trained_start: tuple[str, ...] = ()  # in the caption, on a model trained here to start from
    # What papers observed of the quantity in the figure: their names, each with a sentence.
    published_observations: tuple[tuple[str, str], ...] = ()
    may_start_published: bool = False  # whether rows may start from a published model
    # By name, extra rows that evaluate the model of another row.
    adapted: Mapping[str, Adapted] = field(default_factory=dict)
    evaluate_only: bool = False  # leave out unnamed rows whose model is not trained yet
    # By scale the metrics that its runs do not measure, each with the reason.
    untested: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_printed(self) -> bool:
        """Return whether the paper prints numbers for the table."""
        return any(row.paper for row in self.rows)

    @property
    def ranked_by(self) -> Column:
        """The column that ranks the rows."""
        return self.columns[-1] if self.rank is None else self.column(self.rank)

    def column(self, metric: str) -> Column:
        """Return the column of a metric, also of a derived one."""
        every = (*self.columns, *self.derived)
        (found,) = (column for column in every if column.metric == metric)
        return found

    def at(self, scale: str) -> "Table":
        """Return the table without the columns that runs of a scale do not measure."""
        reasons = self.untested.get(scale, {})
        if not reasons:
            return self
        columns = tuple(column for column in self.columns if column.metric not in reasons)
        return replace(self, columns=columns, notes=(*self.notes, *dict.fromkeys(reasons.values())))

    def row(self, name: str) -> Row:
        """Return the paper's row of that name, or one without published numbers."""
        return next((row for row in self.rows if row.name == name), Row(name, name, "", {}))

    def word_of(self, attention: str) -> str:
        """Return the name of an attention in a column heading."""
        return self.names.get(attention, attention)

    def name_of(self, attention: str) -> str:
        """Return the name of an attention in a sentence."""
        return self.names.get(attention, f"{attention} attention")

    def model_of(self, name: str) -> str:
        """Return the row whose model a row evaluates: itself, except for adapted rows."""
        return self.adapted[name].of if name in self.adapted else name

    @property
    def printed_columns(self) -> tuple[Column, ...]:
        """The columns that the paper prints."""
        printed = {m for row in self.rows for numbers in row.paper.values() for m in numbers}
        return tuple(column for column in self.columns if column.metric in printed)

    @property
    def row_names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)


def without_paper(table: Table) -> Table:
    """Return the table without published numbers and their marks."""
    rows = tuple(replace(row, paper={}) for row in table.rows)
    return replace(table, rows=rows, mark="")


def of_study(table: Table, done: Collection[str]) -> Table:
    """Return the table of a study: its rows alone, one of which is the reference.

    Args:
        table: of a paper.
        done: names of the rows that have results. The table's reference row is the reference, or
            without it the first row in the table's order.
    """
    known = [row for row in without_paper(table).rows if row.name in done]
    others = sorted({*done} - {row.name for row in known})
    rows = (*known, *(table.row(name) for name in others))
    first = rows[0].name if rows else table.reference
    reference = table.reference if table.reference in done else first
    return replace(table, rows=rows, mark="", reference=reference)


def read_rows(
    printed: str,
    columns: tuple[Column, ...],
    labels: Mapping[str, str],
    attentions: tuple[str, ...] = ATTENTIONS,
) -> tuple[Row, ...]:
    """Parse the rows of a table from its numbers as printed.

    A line is a row: its name, then the columns of one attention after the other. ``26.34±1.05``
    has a standard deviation, ``26.34±1.05†`` also a mark, ``-`` is a dash in the paper. A line that
    ends with a colon is the heading of the rows below it.

    Args:
        printed: the table.
        columns: of one attention.
        labels: the paper's name of each row, by row.
        attentions: in the order of the paper.

    Raises:
        ValueError: a line with too few or too many numbers, or a word that is not a number.
    """
    rows, group = [], ""
    cells = [(attention, column.metric) for attention in attentions for column in columns]
    for line in filter(None, map(str.strip, printed.splitlines())):
        if line.endswith(":"):
            group = line.removesuffix(":")
            continue
        name, *words = line.split()
        paper: dict[str, dict[str, Printed]] = {}
        for (attention, metric), word in zip(cells, words, strict=True):
            if word != "-":
                mean, _, deviation = word.removesuffix(MARK).partition("±")
                spread = float(deviation) if deviation else None
                number = Printed(float(mean), spread, word.endswith(MARK))
                paper.setdefault(attention, {})[metric] = number
        rows.append(Row(name, labels[name], group, paper))
    return tuple(rows)
