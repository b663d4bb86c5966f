"""Figure 5 of the BERT paper: correlations by range of offsets."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_plugins.analysis.indicators import direction_balance, monotonicity
from fairseq_plugins.analysis.indicators import measure_by_offset as by_offset
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.report import correlation_by_offset
from fairseq_plugins.report.correlation_by_offset import (
    correlate_by_offset,
    draw_by_offset,
    measure_by_offset,
    read_properties,
)


def weights(count: int, length: int = 24) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    made = torch.randn(count, length, length, generator=draw).double().softmax(-1)
    return dict(zip(ROWS, made, strict=False))


def test_a_property_for_every_range_of_offsets() -> None:
    """ "First 20 offsets" counts the query's own, and so has one element more."""
    (one,) = weights(1).values()
    found = by_offset(one)
    assert found["offsets"] == [*range(1, 21), 23]
    at = found["offsets"].index
    assert found["monotonicity"][at(19)] == monotonicity(one, 20)
    assert found["monotonicity"][-1] == monotonicity(one)
    assert found["direction_balance"][at(20)] == direction_balance(one)
    causal = by_offset(one.tril())
    assert set(causal["direction_balance"]) == {None}, "infinite"


def test_a_correlation_for_every_range() -> None:
    drawn = np.random.default_rng(1).normal(size=(5, 3))
    properties = {row: [*map(float, one)] for row, one in zip(ROWS, drawn, strict=False)}
    performance = {row: float(i * i) for i, row in enumerate(properties)}
    found = correlate_by_offset(properties, performance)
    expected = [np.corrcoef(column, list(performance.values()))[0, 1] for column in drawn.T]
    assert found == pytest.approx(expected)
    assert correlate_by_offset(properties, dict.fromkeys(properties, 1.0)) == [None] * 3
    few = dict(list(performance.items())[:3])
    assert correlate_by_offset(properties, few) == [None] * 3
    properties[ROWS[0]][1] = properties[ROWS[1]][1] = None
    first, undefined, _ = correlate_by_offset(properties, performance)
    assert first is not None and undefined is None


@pytest.mark.parametrize(("scale", "means"), [("published", True), ("mini", False)])
def test_properties_are_those_of_the_fine_tuned_models(monkeypatch, scale, means) -> None:
    """Each seed fine-tunes its own model at `published`, all that of seed 1 elsewhere."""

    def result(row, seed, value):
        known = {"offsets": [1, 2], "monotonicity": [value, 0.5], "direction_balance": [2.0, None]}
        metrics = {"by_offset": known if value else None}
        return {"row": row, "attention": "vanilla", "seed": seed, "metrics": metrics}

    shown = [result("learned", 1, 0.25), result("learned", 2, 0.75), result("sinusoidal", 1, 0)]

    class Folder:
        def __init__(self, root, table, known):
            assert known.name == scale

        def read(self):
            return type("Read", (), {"shown": shown})

    monkeypatch.setattr(correlation_by_offset, "TableFolder", Folder)
    (found,) = read_properties(Path(), scale).values()
    assert found["offsets"] == [1, 2]
    assert found["monotonicity"] == [0.5 if means else 0.25, 0.5]
    assert found["direction_balance"] == [2.0, None]


def test_the_figure_is_of_the_tasks_with_results() -> None:
    properties = {row: by_offset(one) for row, one in weights(5).items()}
    cells = {"bert_table3": {(r, "vanilla"): {"SST-2": {1: len(r) * 1.0}} for r in properties}}
    read = {row: {k: [*map(float, v)] for k, v in one.items()} for row, one in properties.items()}
    numbers = measure_by_offset(read, cells)
    assert all(isinstance(reach, int) for reach in numbers["reaches"])
    assert [key for key in numbers if "," in key] == [
        "monotonicity, SST-2",
        "direction balance, SST-2",
    ]
    made = draw_by_offset(numbers)
    assert "| monotonicity | SST-2 |" in made.paragraphs[1]
    assert "Direction balance" in made.agreement
    with pytest.raises(ValueError, match="there are 5 such rows, and results of 0 tasks"):
        measure_by_offset(properties, {})
    with pytest.raises(ValueError, match=r"at least 4 rows.*there are 3 such rows"):
        measure_by_offset(dict(list(properties.items())[:3]), cells)
