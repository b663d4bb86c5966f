"""The figure of BLEU by the length of the source, and what its page says of it."""

import json

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairseq_plugins.experiments import EXPERIMENTS
from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric
from fairseq_plugins.papers.extrapolation import TRANSLATION_LENGTHS as TABLE
from fairseq_plugins.report.figures import draw_figure, draw_panels
from fairseq_plugins.report.observations import observations
from fairseq_plugins.report.panels import panels_of
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.series import bucket_lines


@pytest.fixture
def make(make_result):
    def result(row: str, *scores: float | None, seed: int = 1, attention: str = "linear"):
        made = make_result(row, attention, seed, 2.0, table=TABLE.name)
        padded = [*scores, *[None] * (len(BUCKETS) - len(scores))]
        made["metrics"] = {
            "test_bleu": 20.0,
            "sentences": {name: 100 * i for i, name in enumerate(BUCKETS)},
            **{bleu_metric(name): value for name, value in zip(BUCKETS, padded, strict=True)},
        }
        return made

    return result


def test_lines_are_means_over_seeds_without_dashes(make):
    made = [
        make("rope", 30.0, 20.0, None, 10.0),
        make("rope", 32.0, 22.0, seed=2),
        make("base", attention="vanilla"),
    ]
    assert bucket_lines(made) == {("rope", "linear"): [(0.0, 31.0), (1.0, 21.0), (3.0, 10.0)]}


def test_the_picture_and_its_numbers_have_every_bucket_there_is(make, tmp_path):
    made = [
        make("base", 28.0, 24.0, 11.0),
        make("rope", 29.0, 25.0, 13.0),
        make("rope", 31.0, 25.0, 13.0, seed=2),
        make("base", 20.0, 10.0, attention="linear_both"),
    ]
    first, second = panels_of(TABLE, "buckets", made)
    assert [first.title, second.title] == ["linear attention", "linear_both attention"]
    assert [*first.lines] == ["RoPE", "Base"], "the best first"
    picture = draw_panels([first, second], "")
    FigureCanvasAgg(picture).draw()
    ticks = [label.get_text() for label in picture.axes[0].get_xticklabels()]
    assert ticks == ["1-10\n0 sentences", "11-20\n100 sentences", "21-30\n200 sentences"]
    legend = picture.axes[0].get_legend()
    box = legend.get_window_extent()
    assert box.x1 <= picture.bbox.x1 and not box.overlaps(picture.axes[0].get_window_extent())
    draw_figure(tmp_path / "results", TABLE, TABLE.figures[0], "mini", made)
    numbers = json.loads((tmp_path / "results/translation_lengths/mini.json").read_text())
    assert list(numbers["rows"]["rope-linear"]) == [c.label for c in TABLE.columns[:4]]
    cell = numbers["rows"]["rope-linear"]["BLEU (1-10)"]
    assert cell == {"mean": 30.0, "deviation": pytest.approx(2**0.5, abs=1e-5), "seeds": 2}
    assert numbers["sentences"]["11-20"] == 100
    draw_figure(tmp_path / "own", TABLE, TABLE.figures[0], "study.v2", made)
    files = {path.name for path in (tmp_path / "own/translation_lengths").iterdir()}
    assert files == {f"study.v2.{ending}" for ending in ("json", "png", "svg")}


def test_the_page_says_what_longer_sources_do_to_each_row(make):
    made = [
        make("base", 28.0, 24.0, 11.0),
        make("rope", 27.0, 25.0, 13.0),
        make("lrpe_type2", 30.0, None, 31.0),
    ]
    (section,) = observations(JudgedTable.of(TABLE, made))
    said, _, saw = section.parts
    assert section.heading == "Observations" and "LRPE" in saw
    falls, gains = said.splitlines()
    assert falls == (
        "- Linear attention, from sources of 1-10 words to those of 21-30: BLEU falls in 2 of 3 "
        "rows, least in `lrpe_type2` (30.00 to 31.00) and most in `base` (28.00 to 11.00)."
    )
    assert gains == (
        "- Linear attention, BLEU minus that of `base` at 1-10, 11-20, 21-30 words: `lrpe_type2` "
        "+2.00, -, +20.00; `rope` -1.00, +1.00, +2.00 (each row has one seed, so no difference "
        "has an interval)."
    )


def test_a_difference_beyond_chance_is_marked(make):
    made = [
        make(
            row, 28.0 + gain * (20 + seed / 10) + seed, 24.0 + seed + gain * (-1) ** seed, seed=seed
        )
        for row, gain in (("base", 0), ("rope", 1))
        for seed in (1, 2, 3)
    ]
    (section,) = observations(JudgedTable.of(TABLE, made))
    said = section.text
    assert "`rope` +20.20†, -0.33 (†: significant, as in the table)." in said


def test_nothing_is_said_of_one_bucket_or_of_none(make):
    assert (
        observations(
            JudgedTable.of(TABLE, [make("base", 28.0), make("alibi", 20.0, attention="vanilla")])
        )
        == []
    )
    assert observations(JudgedTable.of(TABLE, [make("base")])) == []


def test_the_page_of_a_table_without_losses_says_nothing_of_them(make):
    made = make("base", 28.0)
    (with_loss := make("base", 28.0))["metrics"]["valid_loss"] = 2.0
    told = [" ".join(EXPERIMENTS["mt"].caption_notes([one])) for one in (made, with_loss)]
    assert "Decoding: beam" in told[0] and "The loss is" not in told[0]
    assert "The loss is the cross-entropy without label smoothing" in told[1]
