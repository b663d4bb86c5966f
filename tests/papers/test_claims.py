"""Claims name rows and metrics that there are, and the papers' own numbers agree with them."""

import json
from pathlib import Path

import pytest
import yaml

from fairseq_plugins.analysis.theory import CHECKS
from fairseq_plugins.encodings import expand_name
from fairseq_plugins.modules.naming import name_stack
from fairseq_plugins.papers import CLAIMS, TABLES, UNJUDGED
from fairseq_plugins.papers.bert_correlations import PRINTED
from fairseq_plugins.papers.claims import (
    MORE_SEEDS,
    TWO_LOOKS,
    Comparison,
    Computed,
    Correlation,
    Speed,
)
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.statistics.claims import printed

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
COMPARISONS = [claim for claim in CLAIMS if isinstance(claim.evidence, Comparison)]
CORRELATIONS = [claim for claim in CLAIMS if isinstance(claim.evidence, Correlation)]


def test_names_are_unique_and_every_claim_has_its_place():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 40
    assert all(claim.paper and claim.place and claim.text for claim in CLAIMS)


def test_claims_that_two_looks_leave_undecided_say_so():
    content = (CONFIGS.parent / "results/claims.json").read_text(encoding="utf-8")
    found = [claim for claim in json.loads(content) if MORE_SEEDS in claim["note"]]
    assert len(found) == 8
    for claim in found:
        assert (TWO_LOOKS in claim["note"]) == (claim["verdicts"]["mini"]["p"] > 0.029)


def test_what_an_interval_decides_its_p_value_decides():
    content = (CONFIGS.parent / "results/claims.json").read_text(encoding="utf-8")
    verdicts = [one for claim in json.loads(content) for one in claim["verdicts"].values()]
    decided = [one for one in verdicts if one["verdict"] in ("confirmed", "contradicted")]
    tested = [one["p"] for one in decided if one.get("p") is not None]
    assert len(tested) > 50 and max(tested) < 0.05


@pytest.mark.parametrize("check", CHECKS)
def test_every_computation_is_a_claim_and_holds(check):
    assert CHECKS[check]().holds
    assert Computed(check) in [claim.evidence for claim in CLAIMS]


@pytest.mark.parametrize("claim", COMPARISONS, ids=lambda claim: claim.name)
def test_a_comparison_is_of_what_there_is(claim):
    evidence = claim.evidence
    table = TABLES[evidence.table]
    metrics = [column.metric for column in (*table.columns, *table.derived)]
    assert {evidence.metric, evidence.second_metric or evidence.metric} <= {*metrics}
    known = {*table.attentions, *table.extra_attentions}
    assert {evidence.attention, evidence.second_attention or evidence.attention} <= known
    same = evidence.attention == (evidence.second_attention or evidence.attention)
    same &= evidence.metric == (evidence.second_metric or evidence.metric)
    assert evidence.first and evidence.second
    assert not same or not set(evidence.first) & set(evidence.second)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_the_papers_own_numbers_point_where_it_says(claim):
    """Or the claim says that they do not."""
    evidence, effect = claim.evidence, printed(claim).estimate
    if isinstance(evidence, Computed) or isinstance(getattr(evidence, "value", 0.0), str):
        assert effect is None
        return
    if isinstance(evidence, Speed):
        assert effect.effect >= evidence.at_least
        return
    if effect is None:
        if evidence.metric in [column.metric for column in TABLES[evidence.table].derived]:
            return
        rows = evidence.first + evidence.second
        paper = TABLES[evidence.table]
        attention = evidence.second_attention or evidence.attention
        without = [row for row in rows if not paper.row(row).paper.get(attention)]
        assert without or evidence.second_attention, "the paper prints all of it"
        return
    by = getattr(evidence, "by", 0.0)
    size = effect.effect if evidence.claimed == "above" else -effect.effect
    as_claimed = size > by - 1e-9  # of numbers that are printed with two digits
    assert as_claimed != bool(claim.mismatch), effect


@pytest.mark.parametrize("claim", CORRELATIONS, ids=lambda claim: claim.name)
def test_correlations_of_printed_numbers_are_those_of_the_papers_table_5(claim):
    evidence = claim.evidence
    expected = PRINTED[evidence.of[1]][evidence.with_[1]].mean
    assert printed(claim).estimate.effect == pytest.approx(expected, abs=0.02)


def test_every_paper_says_what_is_not_judged_and_why():
    assert {one.paper for one in UNJUDGED} <= {claim.paper for claim in CLAIMS}
    assert {"LRPE", "On Position Embeddings in BERT"} <= {one.paper for one in UNJUDGED}
    assert all(one.place and one.text and one.reason for one in UNJUDGED)


def test_speeds_are_claimed_under_both_attentions():
    found = [claim.evidence for claim in CLAIMS if isinstance(claim.evidence, Speed)]
    assert [one.attention for one in found] == list(ATTENTIONS)
    assert all(len(one.rows) == 8 and one.printed >= one.at_least > 0 for one in found)


def test_claims_on_longer_texts_are_of_encodings_alone_and_say_of_which_row():
    found = [claim for claim in COMPARISONS if claim.evidence.table == "extrapolation"]
    assert found
    for claim in found:
        (row,) = claim.evidence.first
        assert f"row `{row}`" in claim.text
        path = CONFIGS / "model" / f"{TABLES['extrapolation'].model_of(row)}.yaml"
        named = name_stack(
            yaml.safe_load(path.read_text())["position_encoding"], "", absolute="base", base=None
        )
        assert "base" not in expand_name(named.name)
