"""Published results are of the models that the code builds today."""

import json

import pytest
import torch

from fairseq_plugins.records.recipe import trainings_of
from fairseq_plugins.records.recipe_files import read_content
from tests.tables.published_models import FILE, numbers, numbers_of, published

KEPT = json.loads(FILE.read_bytes())
PATHS = dict(published())
QUICK = ("table2", "table8")  # every encoding in a causal and in a bidirectional model


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name.split()[0] in QUICK else [pytest.mark.slow])
        for name in PATHS
    ],
)
def test_a_published_rows_model_is_what_it_was(name):
    """If not, its results are of another model: train them again, then write the numbers anew."""
    assert name in KEPT, "write the numbers of new rows: python -m tests.tables.published_models"
    torch.testing.assert_close(numbers_of(PATHS[name]), KEPT[name], rtol=1e-4, atol=1e-4)


def test_no_numbers_are_left_of_what_has_no_results():
    assert set(KEPT) == set(PATHS)


@pytest.mark.parametrize(
    "change",
    [
        {"position_encoding": "lrpe_type1"},
        {"attention_type": "vanilla"},
        {"linear_normalizer": "output_norm"},
    ],
    ids=str,
)
def test_another_model_has_other_numbers(change):
    path = PATHS["table2 lrpe_type2-linear"]
    (training,) = trainings_of(read_content(path)["config"]).values()
    changed = numbers({**training, "model": {**training["model"], **change}})
    with pytest.raises(AssertionError):
        torch.testing.assert_close(changed, KEPT["table2 lrpe_type2-linear"], rtol=1e-4, atol=1e-4)
