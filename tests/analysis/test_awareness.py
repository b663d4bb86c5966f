"""Forward- and backward-awareness as numbers: Definitions, Properties and Corollaries of the dual
encoding's paper."""

import json
import math
from collections.abc import Iterable

import pytest
import torch

from fairseq_plugins.analysis.awareness import (
    SAME,
    as_words,
    centre_gap,
    function_gap,
    gaps,
    measure_awareness,
    min_distance,
    sum_formula_error,
)
from fairseq_plugins.analysis.awareness_files import absolute_names, draw, observe, table_rows
from fairseq_plugins.analysis.position_rows import (
    WIDTH,
    added_scores,
    build_plain,
    embeds,
    input_rows,
)
from fairseq_plugins.cli.analyse import main
from fairseq_plugins.cli.analyse_encodings import RELATIVE
from fairseq_plugins.common.provenance import command_line
from fairseq_plugins.encodings import ENCODINGS

LENGTHS = (*range(2, 41),)
ABSOLUTE = sorted(name for name in ENCODINGS if embeds(name))
# The paper's five: forward-aware, backward-aware, one formula for sums of positions.
PAPER = {
    "sinusoidal": (True, False, True),
    "rspe": (False, True, False),
    "aspe": (False, False, False),
    "dpe": (True, True, False),
    "2dspe": (True, False, False),
}


def rows_by_length(name: str, lengths: Iterable[int]) -> dict[int, torch.Tensor]:
    encoding = build_plain(name).inputs[0]
    assert encoding is not None
    return {length: input_rows(encoding, length) for length in lengths}


def rows(name: str):
    return rows_by_length(name, LENGTHS)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_encodings_are_as_it_says(name: str) -> None:
    found = measure_awareness(rows(name))
    forward, backward, has_formula = PAPER[name]
    assert (found.forward.is_aware, found.backward.is_aware) == (forward, backward)
    assert (found.sum_error < 1e-3) == has_formula
    # Properties 3.1 and 3.2 follow from the definitions.
    functions = (found.forward.function_gap, found.backward.function_gap)
    assert [gap is not None and gap < SAME * found.size for gap in functions] == [forward, backward]


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("width", [64, 768])
def test_slow_waves_of_wide_models_are_not_taken_for_equal(name: str, width: int) -> None:
    encoding = build_plain(name, width=width).inputs[0]
    assert encoding is not None
    found = measure_awareness({length: input_rows(encoding, length) for length in LENGTHS})
    assert (found.forward.is_aware, found.backward.is_aware) == PAPER[name][:2]


def test_slices_are_the_halves_that_the_formulas_have() -> None:
    found = measure_awareness(rows("dpe"))
    assert (as_words(found.forward.features), as_words(found.backward.features)) == (
        "0:16",
        "16:32",
    )
    assert as_words(measure_awareness(rows("sinusoidal")).forward.features) == f"0:{WIDTH}"
    assert as_words(measure_awareness(rows("rspe")).forward.features) == "none"
    assert as_words(measure_awareness(rows("2dspe")).forward.features) == "0:16"


def test_aspe_has_a_formula_for_each_length_alone() -> None:
    """Appendix E."""
    every = rows("aspe")
    for length in (20, 40):
        assert sum_formula_error({length: every[length]}) < 1e-4
    assert sum_formula_error(every) > 0.05


def test_pairs_may_be_half_the_width_apart() -> None:
    """fairseq's sinusoid has sines in one half and cosines in the other."""
    assert sum_formula_error(rows("base")) < 1e-3 < 0.05 < sum_formula_error(rows("learned"))


def test_the_first_item_of_sessions_of_one_and_two() -> None:
    """Corollary 3.6: RSPE's is (0, 1) in the one and the sine of every frequency in the other."""
    one, two = rows_by_length("rspe", [1, 2]).values()
    frequencies = torch.tensor([10000.0 ** (-i / WIDTH) for i in range(0, WIDTH, 2)]).double()
    torch.testing.assert_close(one[0], torch.tensor([0.0, 1.0]).double().repeat(WIDTH // 2))
    torch.testing.assert_close(two[0, ::2], frequencies.sin(), atol=1e-6, rtol=1e-5)
    assert ((two[0] - one[0]).abs()[::2] > 1e-5).all()


def test_gaps_of_rows_that_are_written_down() -> None:
    position = {n: torch.arange(n).double() for n in (3, 5)}
    made = {
        n: torch.stack((at, n - 1 - at, torch.ones(n), at * (n - 1 - at)), dim=1)
        for n, at in position.items()
    }
    assert gaps(made).tolist() == [0, 2, 0, 4]
    assert gaps(made, from_end=True).tolist() == [2, 0, 0, 4]
    features = torch.tensor([True, False, True, False])
    assert min_distance(made, features) == 1
    assert min_distance(made, torch.tensor([False, False, True, False])) == 0
    assert function_gap(made, features) == 0
    # The product agrees at position 0 alone, and is another one at position 1.
    assert function_gap(made, torch.tensor([False, False, False, True])) == 4
    assert function_gap(made, torch.tensor([False, True, False, False])) is None
    assert function_gap(made, torch.tensor([False, True, False, False]), from_end=True) == 0


def test_what_is_the_same_everywhere_knows_nothing() -> None:
    found = measure_awareness({n: torch.ones(n, 4).double() for n in (3, 5)})
    assert found.forward.features.all() and found.backward.features.all()
    assert not found.forward.is_aware and not found.backward.is_aware


@pytest.mark.parametrize("name", ABSOLUTE)
def test_every_absolute_encoding_is_measured(name: str) -> None:
    found = measure_awareness(rows(name))
    assert math.isfinite(found.size) and math.isfinite(found.sum_error)
    needs_lengths = PAPER.get(name, (False, False, False))[1]
    assert found.backward.is_aware == needs_lengths or name == "cnn"


def test_what_acts_on_queries_of_the_last_layer_alone_is_not_measured() -> None:
    """It is no vector of a token's, and not in a stack of one layer."""
    assert "deberta_emd_queries" not in {*ABSOLUTE, *absolute_names()}
    with pytest.raises(ValueError, match="a layer before the last, but the stack has 1"):
        build_plain("deberta_emd_queries")


def test_all_that_the_command_measures_by_itself_can_be() -> None:
    for name in (*absolute_names(), *RELATIVE):
        observe(name, width=8, lengths=[4], seed=1)


@pytest.mark.parametrize("name", ["alibi", "t5", "shaw_keys", "rope", "lrpe_type2"])
def test_relative_encodings_are_neither(name: str) -> None:
    """Corollary 3.5: what a key gets depends on who looks, while offsets decide it."""
    assert not embeds(name)
    encodings = build_plain(name)
    with torch.no_grad():
        for parameter in encodings.layers[0].parameters():
            parameter.add_(torch.randn_like(parameter))
    scores = added_scores(encodings, 16)
    assert centre_gap(scores) > 0.05
    for offset in range(-3, 4):
        assert scores.diagonal(offset).std() < 1e-4


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="must act inside the attention"):
        added_scores(build_plain("dpe"), 4)
    with pytest.raises(ValueError, match=r"two lengths of at least 2, but are of \[5\]"):
        measure_awareness({5: torch.ones(5, 2)})


@pytest.mark.parametrize("name", ["t5", "rope", "recursive", "deberta_emd"])
def test_the_lengths_of_heat_maps_change_no_measure(name: str) -> None:
    short, long = (table_rows([observe(name, width=8, lengths=[n], seed=1)]) for n in (4, 60))
    assert short == long


def test_heat_maps_have_ticks_at_whole_positions() -> None:
    picture = draw([observe("sinusoidal", width=8, lengths=[10], seed=1)], 10)
    picture.draw_without_rendering()
    panel = picture.axes[0]
    ticks = [*panel.get_xticks(), *panel.get_yticks()]
    assert len(ticks) > 8 and all(tick == int(tick) for tick in ticks)


def test_the_command_writes_figures_numbers_and_a_page(tmp_path, capsys) -> None:
    where = tmp_path / "new"
    assert main(["awareness", "dpe", "alibi", "--lengths", "4,6", "--output", str(where)]) == 0
    printed = capsys.readouterr().out
    assert "dpe" in printed and "0:16" in printed and "16:32" in printed
    files = {path.name for path in where.iterdir()}
    assert files == {
        "awareness.json",
        "awareness.md",
        *(f"length_{n}.{kind}" for n in (4, 6) for kind in ("png", "svg")),
    }
    numbers = json.loads((where / "awareness.json").read_text())["encodings"]
    assert numbers["dpe"]["forward_features"] == [[0, 16]]
    assert [len(numbers["dpe"]["vectors"][n]) for n in ("4", "6")] == [4, 6]
    assert numbers["alibi"]["centre_gap"] > 0
    page = (where / "awareness.md").read_text()
    assert "| dpe | yes | 0:16 | yes | 16:32 | 0.0000 | 0.0000 |" in page
    assert "| alibi | no |" in page and "*3.2 error*" in page
    assert "3.1 error  3.2 error" in printed and "\n3.1 error: how far" in printed
    short = command_line([str(where)])
    typed = f"`fairseq-pe analyse awareness dpe alibi --lengths 4,6 --output {short}`"
    assert typed in page


def test_the_heat_maps_of_a_length_are_one_picture(tmp_path) -> None:
    output = tmp_path / "x.pdf"
    assert main(["awareness", "dpe", "alibi", "--lengths", "4", "--output", str(output)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.pdf"]


def test_a_page_without_pictures_has_no_list_of_them(tmp_path) -> None:
    assert main(["awareness", "alibi", "--output", str(tmp_path / "new")]) == 0
    assert "As SVG" not in (tmp_path / "new" / "awareness.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing"),
        (["dpe", "--width", "6"], "--width must be a multiple of 4, but is 6"),
        (["dpe", "--lengths", "1"], "--lengths must be numbers from 2 on"),
        (["dpe", "--lengths", "10,100000"], "--lengths must be at most 8,192, but is 100000"),
        (["dpe", "--output", "x.pdf"], "--lengths must be one number to draw x.pdf"),
        (["rope", "--lengths", "4", "--output", "x.pdf"], "ENCODING must act on token embeddings"),
        (["--options", "scale=one"], "--options must be with one ENCODING"),
    ],
)
def test_the_command_names_what_it_refuses(words, message, capsys) -> None:
    try:
        status = main(["awareness", *words])
    except SystemExit as error:  # of the parser
        status = error.code
    assert status == 2
    assert message in capsys.readouterr().err
