"""What a caption says of denominators is what the encodings of its rows say."""

import copy
from pathlib import Path

import pytest
import torch

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.lm import LANGUAGE_MODEL
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.denominators import _affected, _attention, denominators
from fairseq_plugins.report.render import render
from fairseq_plugins.statistics.judged import JudgedTable

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture(scope="module")
def model():
    """The composed model of Base under linear attention."""
    run = Run("table2", "toy", "base", "linear", 1)
    return plan_run(CONFIGS, run, Devices(0)).trainings[0].config["model"]


@pytest.fixture
def result(make_result, model):
    def make(encoding, attention="linear", **options):
        made = copy.deepcopy(make_result(encoding, attention, 1, 80.0))
        own = {"position_encoding": encoding, "attention_type": attention}
        own |= {"linear_normalizer": "encoded", **options}
        made["config"]["model"] = {**model, **own}
        return made

    return make


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("lrpe_type8", "replaces the denominator for most queries of `lrpe_type8`."),
        ("rope", "% of the queries of any row."),
        ("per", "Scores that are never negative need no lower bound: `per`."),
        ("lrpe_type7", "Scores that are never negative need no lower bound: `lrpe_type7`."),
        ("xpos", "The denominator is that of un-encoded features in `xpos`."),
    ],
)
def test_each_encoding_is_asked(result, encoding, told):
    (said,) = denominators(LANGUAGE_MODEL, [result(encoding)])
    assert said.endswith(told)
    assert ("its absolute value is at least 0.2 of its maximum" in said) == (
        encoding in ("lrpe_type8", "rope")
    )


def test_rows_are_told_together_and_the_page_has_it(result):
    results = [result(name) for name in ("rope", "lrpe_type8", "per", "spe", "base")]
    (said,) = denominators(LANGUAGE_MODEL, results)
    assert "most queries of `lrpe_type8` and at most" in said and "of any other row." in said
    assert "no lower bound: `per`, `spe`." in said and "base" not in said
    assert said in render(JudgedTable.of(TABLE_2, results), "toy").markdown()


def test_options_of_the_recipe_count(result):
    (said,) = denominators(LANGUAGE_MODEL, [result("rope", min_cosine=0.05)])
    assert "at least 0.05 of its maximum" in said
    (said,) = denominators(LANGUAGE_MODEL, [result("rope", linear_normalizer="plain")])
    assert said == "The denominator is that of un-encoded features in `rope`."


def test_the_authors_denominators_are_told(result):
    clamped = result("lrpe_type8", linear_normalizer="clamped", linear_epsilon=0.5)
    normed = result("rope", linear_normalizer="output_norm", linear_output_norm="rms_norm")
    (said,) = denominators(LANGUAGE_MODEL, [clamped, normed])
    assert "max(denominator, 0.5)" in said and "of the queries of any row." in said
    assert "2023, in `rope`" in said
    assert "never negative" not in said and "absolute value" not in said


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([0.0], "for no query."),
        ([0.7, 0.0], "for most queries of `0` and no query of any other row."),
        ([0.001, 0.0], "for at most 1% of the queries of any row."),
        ([0.004, 0.7, 0.42], "for most queries of `1` and at most 42% of the queries of any other"),
    ],
)
def test_shares_are_not_rounded_to_none(shares, told):
    assert told in _affected({str(i): share for i, share in enumerate(shares)})


def test_without_linear_attention_nothing_is_said(result):
    assert denominators(LANGUAGE_MODEL, [result("rope", "vanilla"), result("base")]) == []


def test_drawn_parameters_do_not_change_the_page(result):
    told = set()
    for seed in (1, 2, 3):
        _attention.cache_clear()
        torch.manual_seed(seed)
        told.add(*denominators(LANGUAGE_MODEL, [result("lrpe_type2")]))
    assert len(told) == 1
