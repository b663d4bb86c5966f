"""The paper's tables as data: which rows, in which order, with which published numbers; and the
scales at which they can be trained. Numbers are read off LRPE (Qin et al. 2023)."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ATTENTIONS = ("linear", "vanilla")  # the columns of the paper, in its order


@dataclass(frozen=True)
class Perplexity:
    """A published cell: perplexity on the validation and the test set."""

    valid: float
    test: float


@dataclass(frozen=True)
class Row:
    """A row: `name` is its configs/model/<name>.yaml, `label` what the paper prints.

    paper: per attention the published cell; an attention without one is a dash in the paper.
    """

    name: str
    label: str
    group: str
    paper: Mapping[str, Perplexity]


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    rows: the paper's, in its order. is_open: whether every other encoding is a row beyond the
    paper. recipe: name of the file in configs/ that all rows share.
    """

    name: str
    source: str
    title: str
    recipe: str
    rows: tuple[Row, ...]
    is_open: bool = False

    def row(self, name: str) -> Row:
        """The paper's row of that name, or one without published numbers."""
        for row in self.rows:
            if row.name == name:
                return row
        return Row(name, name, "", {})

    @property
    def row_names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)


@dataclass(frozen=True)
class Evaluation:
    """How fairseq-eval-lm is called, which the training's YAML has no place for.

    contexts: each the least number of tokens before a scored one (--context-window). Context 0
    is the one in the table. The paper does not say which it used.
    """

    contexts: tuple[int, ...]
    batch_size: int


@dataclass(frozen=True)
class Scale:
    """A size of the experiment; its model and budget are in configs/scale/<name>.yaml.

    gpus: what one run takes by default, 0 for a CPU. prepare: the script that makes its data.
    """

    name: str
    prepare: str
    gpus: int
    evaluation: Evaluation


SCALES = {
    scale.name: scale
    for scale in (
        Scale("toy", "scripts/prepare_toy.sh", 0, Evaluation((0,), 32)),
        Scale("mini", "scripts/prepare_wikitext2.sh", 0, Evaluation((0,), 32)),
        # fairseq's README evaluates this model two sequences at a time, with a context of 400.
        Scale("paper", "scripts/prepare_wikitext103.sh", 8, Evaluation((0, 400), 2)),
    )
}


def _row(
    name: str,
    label: str,
    group: str,
    linear: tuple[float, float] | None,
    vanilla: tuple[float, float],
) -> Row:
    paper = {"vanilla": Perplexity(*vanilla)}
    if linear:
        paper["linear"] = Perplexity(*linear)
    return Row(name, label, group, paper)


TABLE_2 = Table(
    name="table2",
    source="LRPE, Table 2",
    title="perplexity of the autoregressive language model on WikiText-103",
    recipe="wikitext103_lm",
    rows=(
        _row("base", "Base", "Competitors", (33.94, 33.74), (30.82, 29.78)),
        _row("rope", "RoPE", "Competitors", (33.40, 33.13), (30.13, 29.31)),
        _row("spe", "SPE", "Competitors", (43.50, 41.91), (32.99, 32.26)),
        _row("per", "PER", "Competitors", (32.86, 32.53), (32.21, 31.95)),
        _row("t5", "T5", "Competitors", None, (30.70, 29.74)),
        _row("xl", "XL", "Competitors", None, (32.93, 34.36)),
        _row("lrpe_type1", "Type1", "Householder", (33.65, 33.58), (29.66, 28.80)),
        _row("lrpe_type2", "Type2", "Householder", (32.83, 32.80), (29.60, 28.69)),
        _row("lrpe_type3", "Type3", "Householder", (33.04, 32.81), (29.62, 28.81)),
        _row("lrpe_type4", "Type4", "Householder", (35.05, 34.80), (31.66, 31.32)),
        _row("lrpe_type5", "Type5", "Permutation", (34.24, 33.89), (29.92, 29.10)),
        _row("lrpe_type6", "Type6", "Permutation", (33.13, 33.05), (29.83, 28.87)),
        _row("lrpe_type7", "Type7", "Permutation", (34.07, 33.87), (31.96, 31.37)),
        _row("lrpe_type8", "Type8", "FFT", (36.78, 36.31), (29.85, 28.96)),
    ),
    is_open=True,
)

TABLE_5 = Table(
    name="table5",
    source="LRPE, Table 5",
    title="perplexity with different matrices P of a learned rotation, WikiText-103",
    recipe="wikitext103_lm",
    rows=(
        _row("lrpe_type2", "Householder", "P", (32.83, 32.80), (29.60, 28.69)),
        _row("lrpe_type6", "Permutation", "P", (33.13, 33.05), (29.83, 28.87)),
        _row("lrpe_identity", "Identity", "P", (34.09, 33.70), (30.05, 29.24)),
    ),
)

TABLES = {table.name: table for table in (TABLE_2, TABLE_5)}


PAPER = "paper"  # in --rows: the paper's own


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
        near = difflib.get_close_matches(name, runnable, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`--rows` must be {PAPER!r} or among {', '.join(runnable)}, but has {name!r}.{hint}"
        )
    return list(dict.fromkeys(names))
