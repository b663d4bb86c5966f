"""Whether figures agree with the BERT paper: decided by the numbers, either way."""

import torch

from fairseq_plugins.analysis.position_vectors import (
    asymmetry,
    clearness,
    near_minus_far,
    offset_share,
    side_gap,
)
from fairseq_plugins.analysis.probe_figures import (
    check_bands,
    check_correspondence,
    check_families,
    check_identical_words,
)
from fairseq_plugins.analysis.vector_figures import check_relative, check_training, check_vectors
from fairseq_plugins.analysis.wave_figures import check_frequencies
from fairseq_plugins.encodings.frequencies import geometric
from fairseq_plugins.report.correlation_by_offset import check_ranges

PLACES = torch.arange(40).double()
CLOSE = -(PLACES[:, None] - PLACES).abs()  # the nearer the larger
NOISE = torch.randn(40, 40, generator=torch.Generator().manual_seed(1)).double()


def test_near_is_above_far_where_it_falls_with_distance() -> None:
    assert near_minus_far(CLOSE) > 20 and near_minus_far(-CLOSE) < -20
    assert abs(near_minus_far(torch.ones(8, 8))) < 1e-12
    only_itself = 100 * torch.eye(40).double()
    assert near_minus_far(only_itself) == 0  # which is no neighbour
    assert clearness(only_itself) == 0  # all pairs are equal


def test_the_offset_explains_all_of_a_toeplitz_matrix_and_little_of_noise() -> None:
    assert abs(offset_share(CLOSE) - 1) < 1e-9
    assert offset_share(NOISE) < 0.1
    assert 0.1 < offset_share(NOISE + CLOSE / 8) < 1
    assert offset_share(torch.ones(5, 5)) == 0


def test_one_side_is_more_alike_where_cosines_say_so() -> None:
    signs = torch.sign(torch.arange(-6, 7)).double()
    assert side_gap(signs[:, None] * signs) == 2
    assert side_gap(torch.ones(13, 13).double()) == 0


def test_asymmetry_is_from_none_to_one_side_only() -> None:
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(2)).double()
    assert asymmetry(weights + weights.mT) == 0 and asymmetry(torch.eye(4)) == 0
    assert abs(asymmetry(weights.tril()) - 1) < 1e-12
    assert 0 < asymmetry(weights) < 1


def test_clearness_has_no_scale() -> None:
    assert clearness(CLOSE) > clearness(CLOSE + 20 * NOISE) > clearness(NOISE)
    assert abs(clearness(5 * CLOSE + 3) - clearness(CLOSE)) < 1e-9


def test_figure_1_has_near_absolute_vectors_and_whose_are_clearest() -> None:
    numbers = {
        "a, absolute": {"dot_products": CLOSE + 9 * NOISE, "vectors": "learned"},
        "b, absolute": {"dot_products": CLOSE, "vectors": "learnable sinusoids"},
        "c, absolute": {"dot_products": -CLOSE, "vectors": "learnable sinusoids"},
    }
    said = check_vectors(numbers)
    assert "true of `a, absolute` (+" in said and "not of `c, absolute` (-" in said
    clearest = said.split("More clearly")[1]
    assert "true of `b, absolute` (" in clearest and "not of `c, absolute` (-" in clearest
    alone = check_vectors({"b, absolute": numbers["b, absolute"]})
    assert "More clearly" not in alone  # than what?
    fixed = {"d, absolute": {"dot_products": CLOSE, "vectors": "fixed sinusoids"}}
    assert "2.51" in check_vectors({**numbers, **fixed})


def test_figure_1_has_small_and_far_offsets_of_learned_relative_vectors() -> None:
    offsets = torch.arange(-30, 31)
    small = (offsets.abs() <= 5).double()
    unlike = torch.stack([small, 2 * (1 - small)], 1)  # cosines are of no scale
    alike = torch.ones(61, 2).double()
    alternate = torch.stack([offsets % 2, 1 - offsets % 2], 1).double()

    def one(rows: torch.Tensor, kind: str = "learned") -> dict[str, object]:
        return {"dot_products": rows @ rows.mT, "vectors": kind}

    said = check_vectors(
        {
            "a, relative": one(unlike),
            "b, relative": one(alike),
            "c, relative": one(alternate),
            "d, relative": one(unlike, "fixed sinusoids"),
        }
    )
    assert "(mean cosines): true of `a, relative` (0 against 1); not of `b, relative`" in said
    assert "are alike (mean cosine above 0.95): true of `a, relative` (1), `b, relative`" in said
    assert said.count("not of") == 2 and "`d" not in said
    assert check_vectors({"d, relative": one(unlike, "fixed sinusoids")}) == ""
    assert check_vectors({"short, relative": one(unlike[10:-10])}) == "", "nothing is beyond 20"


def test_figure_8_compares_the_first_with_the_last() -> None:
    first, last = {"dot_products": NOISE}, {"dot_products": CLOSE}
    said = check_training({"10 updates": first, "20 updates": first, "30 updates": last})
    assert said.count("rises, from") == 2 and "to 1 (30 updates)" in said
    assert check_training({"30 updates": last, "10 updates": first}).count("does not rise") == 2
    assert check_training({"30 updates": last}) == ""
    both = {"a, absolute": last, "b, absolute": first, "a, relative": first, "b, relative": last}
    one, other = check_training(both).split("Translation")[1:]
    assert "(b, absolute)" in one and one.count("does not rise") == 2
    assert "(b, relative)" in other and other.count("rises, from") == 2
    assert check_training({"a, absolute": first, "a, relative": last}) == ""


def test_bands_are_expected_under_two_relative_encodings() -> None:
    said = check_bands(
        {
            "a": {"band": -1.0, "relative": "learned"},
            "b": {"band": 2.0, "relative": "learnable sinusoids"},
            "c": {"band": -3.0, "relative": ""},
            "d": {"band": 3.0, "relative": "fixed sinusoids"},
        }
    )
    assert "true of `a` (-1); not of `b` (+2)." in said
    assert said.endswith("under `c`.")
    assert check_bands({"c": {"band": -3.0, "relative": ""}}) == ""


def test_identical_words_have_the_properties_that_their_weights_have() -> None:
    ordered = CLOSE.softmax(-1)
    tilted = (CLOSE + 0.5 * (PLACES[:, None] > PLACES)).softmax(-1)  # looks back
    noise = (4 * NOISE).softmax(-1)
    kinds = ("", "learned", "learnable sinusoids")
    said = check_identical_words(
        {
            name: {"weights": weights, "relative": kind, "band": 1.0}
            for name, weights, kind in zip("abc", (noise, ordered, tilted), kinds, strict=True)
        }
    )
    invariance, monotone, symmetric, unequal, band = said.split(". ")
    for one in (invariance, monotone):
        assert ": true of `b` (" in one and "`c` (" in one and "; not of `a` (" in one
    assert ": true of `b` (" in symmetric and "; not of `a` (" in symmetric
    assert "of the others 1.000 is furthest from 1): true of `c` (1.6" in unequal
    assert "not of `b` (+1), `c` (+1)" in band
    nearly = {"weights": ordered + 1e-3 * tilted, "relative": kinds[2], "band": 1.0}
    others = {"weights": ordered, "relative": kinds[1], "band": 1.0}
    said = check_identical_words({"b": others, "c": nearly})
    assert "from 1): not of `c` (1.00" in said  # that is as good as equal


FIXED = torch.linspace(1, 0, 12).double()


def test_frequencies_are_compared_with_the_fixed_ones() -> None:
    fixed = geometric(8, 16)
    said = check_frequencies(
        {
            "frequencies": {"default": fixed, "a": 0.9 * fixed, "b": 1.1 * fixed},
            "psi": {"default": FIXED, "a": FIXED + 0.1, "b": FIXED - 0.1},
        }
    )
    assert "true of `a` (100%); not of `b` (0%)" in said
    assert said.endswith("true of `a` (+0.1); not of `b` (-0.1).")  # and nothing of tasks


def test_spans_are_compared_with_classes() -> None:
    early, late = FIXED.clone(), FIXED.clone()
    early[3], late[9] = 1.0, 1.0
    psi = {"default": FIXED, "x": early + 0.01, "SQuAD, v1": late, "SQuAD, v2": early}
    classes = {"GLUE, CoLA": early, "GLUE, RTE": early}
    same = dict.fromkeys({**psi, **classes}, geometric(8, 16))
    said = check_frequencies({"frequencies": same, "psi": {**psi, **classes}})
    assert "at 3 at latest): true of `SQuAD, v1` (9); not of `SQuAD, v2` (3)." in said
    assert "true of `x` (0.01 against " in said
    never = {"frequencies": same, "psi": {**psi, "GLUE, CoLA": FIXED}}
    assert "at 12 at latest): not of `SQuAD, v1` (9), `SQuAD, v2` (3)." in check_frequencies(never)


def test_ranges_of_offsets_are_the_papers() -> None:
    numbers = {
        "reaches": [1, 5, 20, 55, 100],
        "monotonicity, v1_exact": [0.0, -0.99, -0.95, -0.25, -0.99],
        "monotonicity, v2_exact": [-0.99, -0.99, -0.5, -0.8, -0.99],
        "monotonicity, SST-2": [None, -1.0, 0.2, 0.4, -1.0],
        "direction balance, v1_exact": [0.6, 0.5, 0.3, 0.2, 0.4],
        "direction balance, SST-2": [0.6, 0.5, 0.3, 0.2, 0.7],
        "direction balance, QQP": [-0.9, -0.8, 0.3, 0.2, 0.1],
        "direction balance, CoLA": [None] * 5,
    }
    spans, opposite, balance = check_ranges(numbers).rstrip(".").split(". ")
    assert spans.endswith("true of `EM, v1.1` (-0.95); not of `EM, v2.0` (-0.80)")
    assert "(mean +0.30)" in opposite
    assert opposite.endswith("true of `EM, v1.1` (-0.60), `EM, v2.0` (-0.65)")
    assert "true of `EM, v1.1` (+0.60, +0.40); not of `SST-2` (+0.60, +0.70)" in balance
    assert balance.endswith("`QQP` (-0.80, +0.10)")
    few = {"reaches": [1, 3], "direction balance, QQP": [0.1, 0.2]}
    assert "not of `QQP`" in check_ranges(few)


def test_only_learned_relative_vectors_decide_figure_6() -> None:
    one = {"relative": "learned", "alike_from": 24, "cosines": torch.ones(61, 61).double()}
    other = {**one, "alike_from": None}
    said = check_relative({"a": one, "b": other, "c": {**one, "relative": "fixed sinusoids"}})
    assert "true of `a` (from 24); not of `b` (never)" in said and "`c`" not in said
    assert "than those of two (mean cosines): not of `a` (+0), `b` (+0)" in said
    assert check_relative({"c": {**one, "relative": ""}}) == ""
    assert "not of `a` (from 26)" in check_relative({"a": {**one, "alike_from": 26}})
    short = {**one, "cosines": torch.ones(3, 3), "alike_from": None}
    assert check_relative({"a": short}) == "", "it ends before 25, and has one vector a side"


def test_figure_9_is_of_near_and_far() -> None:
    numbers = {"a": {"position_position": CLOSE}, "b": {"position_position": -CLOSE}}
    assert "true of `a` (+" in check_correspondence(numbers)


def test_families_are_told_apart_by_the_papers_own_numbers() -> None:
    names = ("monotonicity", "monotonicity_20", "translation_invariance_words", "symmetry")
    kinds = ("encoder only", "decoder only", "encoder & decoder")
    numbers = {
        kind: {"kind": kind, "metrics": {**dict(zip(names, own, strict=True)), **balance}}
        for kind, own, balance in (
            (kinds[0], (0.2461, 0.0208, 0.0143, 0.0012), {"direction_balance": 1.1940}),
            (kinds[1], (0.1019, 0.0044, 0.1114, 0.0070), {"direction_balance": None}),
            (kinds[2], (0.3540, 0.0841, 0.0214, 0.0002), {"direction_balance": 0.8074}),
        )
    }
    said = check_families(numbers)
    assert said.count(": yes") == 5 and "no" not in said.split()
    swapped = {**numbers, kinds[1]: {**numbers[kinds[0]], "kind": kinds[1]}}
    assert "the least symmetric: yes" in check_families(swapped)  # a draw
    worse = {"kind": kinds[1], "metrics": {**numbers[kinds[1]]["metrics"], "symmetry": 0.0}}
    assert "the least symmetric: no" in check_families({**numbers, kinds[1]: worse})
    assert check_families({kinds[1]: numbers[kinds[1]]}) == ""
