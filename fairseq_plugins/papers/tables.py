"""What a table of a paper is, and the one notation in which its numbers are written down."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

ATTENTIONS = ("linear", "vanilla")  # the columns of the LRPE paper, in its order
AVERAGE = "average"  # the metric of a column that is the mean of others
MARK = "†"  # of significance


@dataclass(frozen=True)
class Printed:
    """A published number, with the standard deviation where the paper prints one.

    is_marked: whether the paper marks it as significant, by the test that the table's `mark` says.
    """

    mean: float
    deviation: float | None = None
    is_marked: bool = False

    def text(self, digits: int) -> str:
        """As the paper prints it, with that many digits after the point."""
        mark = MARK if self.is_marked else ""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{mark}{spread}"


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
class Figure:
    """A picture made of a table's runs.

    Attributes:
        kind: ``ranking`` has a dot for each row and attention, ``curves`` the perplexity at every
            evaluation of a training, ``attention`` the weights of each row's model, ``lengths``
            the perplexity at each length, ``parts`` the answers after each part of a pre-training,
            ``buckets`` BLEU by the length of the source, ``settings`` a line for each row over
            what stands in the place of attentions.
        source: the paper's name for it, empty where it is none of the paper's.
        name: of its own script and page, empty where it stands beside the table's page.
    """

    kind: Literal["ranking", "curves", "attention", "lengths", "parts", "buckets", "settings"]
    source: str = ""
    name: str = ""


@dataclass(frozen=True)
class Adapted:
    """A row that measures the model of another one with something changed, and trains nothing.

    Attributes:
        of: the row whose model it is.
        encoding: in place of that row's; empty for the same.
        grow_table: how its learned table is made longer; empty for not at all.
    """

    of: str
    encoding: str = ""
    grow_table: str = ""


@dataclass(frozen=True)
class Control:
    """A row beyond the paper that shows what an exchange of the encoding costs by itself.

    Attributes:
        of: the row whose model it has.
        overrides: Hydra's, of the training that starts from another encoding's model.
    """

    of: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        experiment: how its runs are trained and measured, a name in `experiments.EXPERIMENTS`.
        columns: the last one, or that of the metric `rank`, ranks the rows.
        rows: the paper's, in its order.
        controls: by name, rows that run by default where rows start from a published model.
        average_of: the metrics whose mean the column `AVERAGE` is.
        takes_any_encoding: whether every other encoding is a row beyond the paper.
        attentions: what runs by default.
        seeds: likewise, at scale paper.
        names: what pages call an attention, where that is not its word.
        against: attentions that all others are compared with in each row, a section for each.
        further: attentions beyond the paper, with a heading for their rows.
        reference: the row that the others are compared with.
        figures: what is drawn of its runs.
        mark: what the paper's marks of significance mean, empty where it prints none.
        notes: sentences of the caption.
        lengths: what is measured by default where a user may choose, in training lengths.
        saw: what papers say of what the figure shows, each with the paper's name before.
        may_start_published: whether a user may choose a published model for its rows to start from.
        adapted: further rows by name, of models that others are.
        only_trained: whether rows that nobody asked for by name are left out where what they start
            from is not trained yet.
    """

    name: str
    source: str
    title: str
    experiment: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    controls: Mapping[str, Control] = field(default_factory=dict)
    rank: str | None = None
    average_of: tuple[str, ...] = ()
    takes_any_encoding: bool = False
    attentions: tuple[str, ...] = ATTENTIONS
    seeds: tuple[int, ...] = (1,)
    names: Mapping[str, str] = field(default_factory=dict)
    reference_attentions: tuple[str, ...] = ()
    extra_attentions: Mapping[str, str] = field(default_factory=dict)
    reference: str = "base"
    figures: tuple[Figure, ...] = (Figure("ranking"),)
    mark: str = ""
    notes: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    published_observations: tuple[tuple[str, str], ...] = ()
    may_start_published: bool = False
    adapted: Mapping[str, Adapted] = field(default_factory=dict)
    evaluate_only: bool = False

    @property
    def is_printed(self) -> bool:
        """Whether the paper has numbers of it."""
        return any(row.paper for row in self.rows)

    @property
    def ranked_by(self) -> Column:
        """The column by which rows are compared."""
        return self.columns[-1] if self.rank is None else self.column(self.rank)

    def column(self, metric: str) -> Column:
        """The column of a metric, of which there is one."""
        (found,) = (column for column in self.columns if column.metric == metric)
        return found

    def row(self, name: str) -> Row:
        """The paper's row of that name, or one without published numbers."""
        return next((row for row in self.rows if row.name == name), Row(name, name, "", {}))

    def word_of(self, attention: str) -> str:
        """What the head of a column calls an attention."""
        return self.names.get(attention, attention)

    def name_of(self, attention: str) -> str:
        """What a sentence calls it."""
        return self.names.get(attention, f"{attention} attention")

    def model_of(self, name: str) -> str:
        """The row whose model a row measures: its own, but for the adapted ones."""
        return self.adapted[name].of if name in self.adapted else name

    @property
    def printed_columns(self) -> tuple[Column, ...]:
        """Those of which the paper has numbers."""
        printed = {m for row in self.rows for numbers in row.paper.values() for m in numbers}
        return tuple(column for column in self.columns if column.metric in printed)

    @property
    def row_names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)


def without_paper(table: Table) -> Table:
    """The same rows and columns without published numbers and what is said of these."""
    rows = tuple(replace(row, paper={}) for row in table.rows)
    return replace(table, rows=rows, mark="")


def read_rows(
    printed: str,
    columns: tuple[Column, ...],
    labels: Mapping[str, str],
    attentions: tuple[str, ...] = ATTENTIONS,
) -> tuple[Row, ...]:
    """Rows of a table from its numbers as printed.

    A line is a row: its name, then its numbers, all columns under one attention after the other.
    ``26.34±1.05`` has a standard deviation, ``26.34±1.05†`` a mark too, ``-`` is a dash in the
    paper. A line that ends with a
    colon names the group of the rows below it.

    Args:
        printed: the table.
        columns: of one attention.
        attentions: in the order of the page.
        labels: what the paper calls each row, by its name.

    Raises:
        ValueError: a line with too few or too many numbers, or a word that is none.
    """
    rows, group = [], ""
    places = [(attention, column.metric) for attention in attentions for column in columns]
    for line in filter(None, map(str.strip, printed.splitlines())):
        if line.endswith(":"):
            group = line.removesuffix(":")
            continue
        name, *words = line.split()
        paper: dict[str, dict[str, Printed]] = {}
        for (attention, metric), word in zip(places, words, strict=True):
            if word != "-":
                mean, _, deviation = word.removesuffix(MARK).partition("±")
                spread = float(deviation) if deviation else None
                number = Printed(float(mean), spread, word.endswith(MARK))
                paper.setdefault(attention, {})[metric] = number
        rows.append(Row(name, labels[name], group, paper))
    return tuple(rows)
