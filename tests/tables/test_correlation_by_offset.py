"""Figure 5 of the BERT paper: correlations by range of offsets."""

import numpy as np
import pytest
import torch

from fairseq_plugins.analysis.indicators import direction_balance, monotonicity
from fairseq_plugins.experiments.identical_words import PATTERN
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.correlation_by_offset import (
    correlate_by_offset,
    draw_by_offset,
    measure_by_offset,
    read_weights,
)


def weights(count: int, length: int = 24) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    made = torch.randn(count, length, length, generator=draw).double().softmax(-1)
    return dict(zip(ROWS, made, strict=False))


def test_a_correlation_for_every_reach() -> None:
    found = weights(5)
    performance = {row: float(i * i) for i, row in enumerate(found)}
    values = correlate_by_offset(found, performance, [1, 4, 23], direction_balance)
    for reach, value in zip([1, 4, 23], values, strict=True):
        own = [direction_balance(one, reach) for one in found.values()]
        expected = np.corrcoef(own, list(performance.values()))[0, 1]
        assert value == pytest.approx(expected)
    same = dict.fromkeys(found, 1.0)
    assert correlate_by_offset(found, same, [3], direction_balance) == [None]
    few = {row: performance[row] for row in list(found)[:3]}
    assert correlate_by_offset(found, few, [3], direction_balance) == [None]


def test_monotonicity_within_a_reach_has_one_element_more() -> None:
    """ "First 20 offsets" counts the query's own."""
    found = weights(4)
    cells = {"bert_table3": {(r, "vanilla"): {"CoLA": {1: len(r) * 1.0}} for r in found}}
    numbers = measure_by_offset(found, cells)
    place = numbers["reaches"].index(19)
    own = [monotonicity(one, 20) for one in found.values()]
    expected = np.corrcoef(own, [len(r) for r in found])[0, 1]
    assert numbers["monotonicity, CoLA"][place] == pytest.approx(expected)
    assert numbers["monotonicity, v1_exact"][place] is None
    assert numbers["reaches"][-1] == 23


def test_weights_are_those_of_the_runs(tmp_path) -> None:
    for row, one in weights(2).items():
        path = tmp_path / Run("bert_table2", "mini", row, "vanilla", 1).folder / PATTERN
        path.parent.mkdir(parents=True)
        np.save(path, one.float().numpy())
    found = read_weights(tmp_path, "mini")
    assert list(found) == list(ROWS[:2])
    with pytest.raises(ValueError, match="the weights of at least 4 rows"):
        measure_by_offset(found, {})


def test_table_5_is_beside_what_these_weights_give() -> None:
    found = weights(5)
    seconds = {row: float(len(row)) for row in found}
    cells = {
        "bert_table2": {
            (row, "vanilla"): {
                "monotonicity": {1: -seconds[row]},
                "monotonicity_20": {1: monotonicity(one, 20)},
                "direction_balance": {1: direction_balance(one)},
            }
            for row, one in found.items()
        },
        "bert_table3": {(row, "vanilla"): {"SST-2": {1: seconds[row]}} for row in found},
    }
    made = draw_by_offset(measure_by_offset(found, cells), cells, "mini")
    lines = made.paragraphs[-1].splitlines()
    assert lines[0] == "| figure / Table 5 | SST-2 |"
    whole, *same = (line.split("|")[2].strip().split(" / ") for line in lines[2:])
    assert whole[1] == "-1.00" != whole[0]
    assert all(figure == table for figure, table in same)  # of one seed and the same weights
    assert "Direction balance" in made.agreement
    # As where the runs of Tables 3 and 4 were taken out of the results.
    del cells["bert_table3"]
    left = draw_by_offset(made.numbers, cells, "mini")
    assert "not among the results" in left.agreement.partition(": so for")[0]
    assert not any("figure / Table 5" in part or "weights" in part for part in left.paragraphs)
