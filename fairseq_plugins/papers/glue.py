"""GLUE in the papers: Table 3 of LRPE (Qin et al. 2023) and Table 3 of the BERT paper (Wang et al.,
"On Position Embeddings in BERT", 2021) as data, and the same columns from metrics of one's own.

LRPE prints accuracies everywhere, the BERT paper the official metric of each task. Its header says
"acc" for CoLA; but its caption says official metrics, and 60 would be less than the 69% accuracy of
always naming the larger class, so the column is Matthews' correlation. Its MNLI is the mismatched
part (Appendix E). WNLI is in no average (Appendix E), and LRPE does not have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

AVERAGE = "average"  # the metric of a table's last column
Metrics = Mapping[str, Mapping[str, Mapping[str, float]]]  # [task][subset][metric], in percent


@dataclass(frozen=True)
class Source:
    """One number of an evaluation: task, subset and metric."""

    task: str
    subset: str
    metric: str


@dataclass(frozen=True)
class Column:
    """A column. instead: what fills it where `source` has no data.

    averaged: whether it counts in the average.
    """

    label: str
    source: Source
    averaged: bool = True
    instead: Source | None = None


@dataclass(frozen=True)
class PublishedRow:
    """A row: `name` is its configs/model/<name>.yaml, `label` what the paper prints.

    cells: a number for each column; average and deviation as printed.
    """

    name: str
    label: str
    attention: str
    cells: tuple[float, ...]
    average: float
    deviation: float | None = None


@dataclass(frozen=True)
class GlueTable:
    """A table: its columns, its rows, and what the average's column is called."""

    name: str
    source: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[PublishedRow, ...]
    average_label: str

    def row(self, name: str, attention: str) -> PublishedRow | None:
        """The published row, None where the paper has none."""
        for row in self.rows:
            if (row.name, row.attention) == (name, attention):
                return row
        return None

    def averages(self, row: PublishedRow) -> dict[str, float]:
        """Averages of a published row, computed: over the averaged columns, and over all."""
        averaged = [cell for cell, c in zip(row.cells, self.columns, strict=True) if c.averaged]
        return {
            "averaged": sum(averaged) / len(averaged),
            "all": sum(row.cells) / len(row.cells),
        }


@dataclass(frozen=True)
class Summary:
    """A row of one's own.

    cells: label -> percent, None without data. average: over the averaged columns that have
    data, which `averaged` names; None without any. replaced: columns filled from `instead`.
    """

    cells: Mapping[str, float | None]
    average: float | None
    averaged: tuple[str, ...]
    replaced: tuple[str, ...]

    def is_complete(self, table: GlueTable) -> bool:
        """Whether every column that counts in the average has its own data."""
        return not self.replaced and self.averaged == tuple(
            column.label for column in table.columns if column.averaged
        )


def summarise(table: GlueTable, metrics: Metrics) -> Summary:
    """The table's columns from metrics[task][subset][metric] in percent."""
    cells: dict[str, float | None] = {}
    replaced, averaged, values = [], [], []
    for column in table.columns:
        value = _lookup(metrics, column.source)
        if value is None and column.instead is not None:
            value = _lookup(metrics, column.instead)
            if value is not None:
                replaced.append(column.label)
        cells[column.label] = value
        if column.averaged and value is not None:
            averaged.append(column.label)
            values.append(value)
    average = sum(values) / len(values) if values else None
    return Summary(cells, average, tuple(averaged), tuple(replaced))


def _lookup(metrics: Metrics, source: Source) -> float | None:
    return metrics.get(source.task, {}).get(source.subset, {}).get(source.metric)


def _column(label: str, task: str, metric: str, subset: str = "valid", **more: bool) -> Column:
    return Column(label, Source(task, subset, metric), **more)


def _lrpe(name: str, label: str, attention: str, *numbers: float) -> PublishedRow:
    return PublishedRow(name, label, attention, numbers[:-1], numbers[-1])


# The average counts the matched part of MNLI alone, in all rows but Base under linear attention:
# its printed 81.65 is over all five columns, over the four of the others it is 83.23.
LRPE_TABLE_3 = GlueTable(
    name="table3",
    source="LRPE, Table 3",
    title="accuracy on GLUE's development sets",
    columns=(
        _column("MNLI-m", "MNLI", "accuracy"),
        _column("MNLI-mm", "MNLI", "accuracy", "valid1", averaged=False),
        _column("QNLI", "QNLI", "accuracy"),
        _column("QQP", "QQP", "accuracy"),
        _column("SST-2", "SST-2", "accuracy"),
    ),
    rows=(
        _lrpe("base", "Base", "linear", 74.87, 75.37, 82.59, 88.17, 87.27, 81.65),
        _lrpe("rope", "RoPE", "linear", 67.13, 67.69, 79.97, 85.11, 78.21, 77.61),
        _lrpe("spe", "SPE", "linear", 67.07, 68.51, 74.79, 71.43, 78.67, 72.99),
        _lrpe("per", "PER", "linear", 67.43, 69.26, 76.13, 83.93, 86.93, 78.61),
        _lrpe("lrpe_type5", "Type5", "linear", 74.66, 75.05, 83.10, 85.98, 88.30, 83.01),
        _lrpe("base", "Base", "vanilla", 79.37, 79.07, 87.79, 88.33, 90.25, 86.44),
        _lrpe("rope", "RoPE", "vanilla", 75.21, 76.06, 86.20, 87.34, 87.73, 84.12),
        _lrpe("spe", "SPE", "vanilla", 76.01, 76.61, 85.67, 87.66, 89.33, 84.67),
        _lrpe("t5", "T5", "vanilla", 77.83, 78.84, 86.93, 87.78, 89.91, 85.61),
        _lrpe("lrpe_type1", "Type1", "vanilla", 79.18, 79.85, 87.57, 87.89, 89.11, 85.94),
    ),
    average_label="AVG",
)


def _bert(name: str, label: str, *numbers: float) -> PublishedRow:
    return PublishedRow(name, label, "vanilla", numbers[:-2], numbers[-2], numbers[-1])


BERT_TABLE_3 = GlueTable(
    name="bert_table3",
    source="On Position Embeddings in BERT, Table 3",
    title="GLUE's official metrics on the development sets",
    columns=(
        _column("CoLA", "CoLA", "matthews"),
        _column("SST-2", "SST-2", "accuracy"),
        Column(
            "MNLI", Source("MNLI", "valid1", "accuracy"), True, Source("MNLI", "valid", "accuracy")
        ),
        _column("MRPC", "MRPC", "f1"),
        _column("QNLI", "QNLI", "accuracy"),
        _column("QQP", "QQP", "f1"),
        _column("RTE", "RTE", "accuracy"),
        _column("STS-B", "STS-B", "spearman"),
        _column("WNLI", "WNLI", "accuracy", averaged=False),
    ),
    rows=(
        _bert(
            "none", "BERT without PE",
            39.0, 86.5, 80.1, 86.2, 83.7, 86.5, 63.0, 87.4, 33.8, 76.6, 0.41,
        ),
        _bert(
            "learned", "fully learnable (BERT-style) APE",
            60.2, 93.0, 84.8, 89.4, 88.7, 87.8, 65.1, 88.6, 37.5, 82.2, 0.30,
        ),
        _bert(
            "sinusoidal", "fixed sin. APE",
            57.1, 92.6, 84.3, 89.0, 88.1, 87.5, 58.4, 86.9, 45.1, 80.5, 0.71,
        ),
        _bert(
            "learnable_sinusoidal", "learnable sin. APE",
            56.0, 92.8, 84.8, 88.7, 88.5, 87.7, 59.1, 87.0, 40.8, 80.6, 0.29,
        ),
        _bert(
            "shaw", "fully-learnable RPE",
            58.9, 92.6, 84.9, 90.5, 88.9, 88.1, 60.8, 88.6, 50.4, 81.7, 0.31,
        ),
        _bert(
            "sinusoidal_rpe", "fixed sin. RPE",
            60.4, 92.2, 84.8, 89.5, 88.8, 88.0, 62.9, 88.1, 45.1, 81.8, 0.53,
        ),
        _bert(
            "learnable_sinusoidal_rpe", "learnable sin. RPE",
            60.3, 92.6, 85.2, 90.3, 89.1, 88.1, 63.5, 88.3, 49.9, 82.2, 0.40,
        ),
        _bert(
            "learned_shaw", "fully learnable APE + fully-learnable RPE",
            59.8, 92.8, 85.1, 89.6, 88.6, 87.8, 62.5, 88.3, 51.5, 81.8, 0.17,
        ),
        _bert(
            "learned_sinusoidal_rpe", "fully learnable APE + fixed sin. RPE",
            59.2, 92.4, 84.8, 89.9, 88.8, 87.9, 61.0, 88.3, 48.2, 81.5, 0.20,
        ),
        _bert(
            "learned_learnable_sinusoidal_rpe", "fully learnable APE + learnable sin. RPE",
            61.1, 92.8, 85.2, 90.5, 89.5, 87.9, 65.1, 88.2, 49.6, 82.5, 0.44,
        ),
        _bert(
            "learnable_sinusoidal_shaw", "learnable sin. APE + fully-learnable RPE",
            57.2, 92.7, 84.8, 88.9, 88.5, 87.8, 58.6, 88.0, 51.3, 80.8, 0.44,
        ),
        _bert(
            "learnable_sinusoidal_sinusoidal_rpe", "learnable sin. APE + fixed sin. RPE",
            57.6, 92.6, 84.5, 88.8, 88.6, 87.6, 63.1, 87.4, 48.7, 81.3, 0.43,
        ),
        _bert(
            "learnable_sinusoidal_learnable_sinusoidal_rpe",
            "learnable sin. APE + learnable sin. RPE",
            57.7, 92.7, 85.0, 89.6, 88.7, 87.8, 62.3, 87.5, 50.1, 81.4, 0.33,
        ),
    ),
    average_label="mean",
)  # fmt: skip
