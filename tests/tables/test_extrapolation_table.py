"""Table of lengths beyond training: what is measured, when again, and what its page says."""

import json
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairseq_plugins.cli.table_options import get_parser
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.extrapolation import (
    EXTRAPOLATION,
    MASKED_EXTRAPOLATION,
    factors_of,
)
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.experiments.rows import check_rows, default_rows
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.claims import Claim, Comparison
from fairseq_plugins.papers.extrapolation import EXTRAPOLATION as TABLE
from fairseq_plugins.papers.extrapolation import MASKED_EXTRAPOLATION as MASKED_TABLE
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.records import results
from fairseq_plugins.records.runs import Run
from fairseq_plugins.report.figures import draw_figure, draw_panels
from fairseq_plugins.report.observations import observations
from fairseq_plugins.report.panels import Panel, panels_of
from fairseq_plugins.report.render import render
from fairseq_plugins.runner import run_state, table_runner
from fairseq_plugins.runner.plan import plan
from fairseq_plugins.runner.run_options import RunOptions
from fairseq_plugins.runner.slurm_job import jobs_of
from fairseq_plugins.runner.status import RunStatuses
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.judged import JudgedTable
from fairseq_plugins.statistics.scale_results import ScaleResults
from fairseq_plugins.statistics.series import length_lines, longest_places, place_lines
from fairseq_plugins.statistics.verdicts import Word, judge
from tests.tables.fake_fairseq import FakeFairseq, run_table

SCALE = EXTRAPOLATION.scales["toy"]
REASON = "`learned` under vanilla attention has no meaning beyond position 128"


def printed(bits: dict[int, float | None], sliding: bool = True) -> dict:
    """What the command prints of losses by length; None has no meaning."""
    lines = {}
    for factor, loss in bits.items():
        line = {"length": 64 * factor}
        if loss is None:
            line["reason"] = REASON
        else:
            line |= {"tokens": 512, "bits": loss, "by_position": [loss] * 4 * factor}
            line |= {"sliding_bits": loss + 0.5} if sliding else {}
        lines[f"{factor}x"] = line
    return {"trained_length": 64, "checkpoint": "ab" * 32, "lengths": lines}


def metrics_of(tmp_path: Path, found: dict, experiment=EXTRAPOLATION) -> dict:
    """What a run records of it."""
    training = SimpleNamespace(data=Path("data"))
    run = Run(TABLE.name, "toy", "rope", "vanilla", 1)
    (step,) = experiment.steps(training, Path("x.pt"), run, 0)
    log = tmp_path / step.log
    log.write_text("words\n" + json.dumps(found) + "\n")
    return step.read(log)


@pytest.fixture
def make(make_result, tmp_path):
    def result(row: str, bits: dict[int, float | None], seed: int = 1, attention="vanilla"):
        made = make_result(row, attention, seed, 2.0, table=TABLE.name)
        told = {k: made["metrics"][k] for k in ("train_seconds", "updates", "tokens_per_second")}
        own = metrics_of(tmp_path, printed(bits))
        made["metrics"] = {**own, **told, "parameters": 10}
        results.check_result(made, EXTRAPOLATION.metrics)
        return made

    return result


def test_what_is_printed_becomes_perplexities_and_reasons(tmp_path):
    found = metrics_of(tmp_path, printed({1: 3.0, 2: 4.0, 4: None}))
    assert (found["ppl_1x"], found["ppl_2x"], found["ppl_4x"]) == (8.0, 16.0, None)
    assert found["ppl_1x_sliding"] == pytest.approx(2**3.5, abs=1e-4)
    assert found["ppl_4x_sliding"] is None and found["reasons"] == {"4x": REASON}
    assert found["by_position"]["2x"] == [4.0] * 8 and found["tokens"] == 512
    assert factors_of(found) == (1, 2, 4)
    masked = metrics_of(tmp_path, printed({1: 3.0}, sliding=False), MASKED_EXTRAPOLATION)
    assert "ppl_1x_sliding" not in masked and masked["ppl_1x"] == 8.0


def test_a_number_without_a_reason_is_no_result(make):
    made = make("learned", {1: 3.0, 2: None})
    made["metrics"]["reasons"] = {}
    with pytest.raises(ValueError, match="reasons must say why"):
        results.check_result(made, EXTRAPOLATION.metrics)


def test_a_result_lacks_what_it_was_not_asked_for(tmp_path):
    found = metrics_of(tmp_path, printed({1: 3.0, 2: 4.0, 16: None}))
    assert EXTRAPOLATION.at_lengths((1, 16)).lacks(found) == ""
    assert EXTRAPOLATION.lacks(found) == "it has no 4x, 8x"
    assert EXTRAPOLATION.at_lengths((8,)).also_measuring(found).factors == (1, 2, 8, 16)


def test_a_run_measures_table_2s_model_of_its_own_seed(configs):
    planned = plan_run(configs, Run(TABLE.name, "toy", "rope", "linear", 3), Devices(0))
    assert planned.trainings == ()
    assert planned.pretraining.run == Run("table2", "toy", "rope", "linear", 3)
    last = planned.commands()[-1]
    assert last[:5] == ["python", "-m", "fairseq_plugins", "analysis", "extrapolation"]
    assert "checkpoints/table2/toy/rope-linear-s3/checkpoint_best.pt" in last
    assert last[last.index("--lengths") + 1] == "1x,2x,4x,8x"
    masked = plan_run(configs, Run(MASKED_TABLE.name, "toy", "rope", "linear", 2), Devices(0))
    assert masked.pretraining.run == Run("table8", "toy", "rope", "linear", 2)


@pytest.mark.parametrize("name", list(TABLE.adapted))
def test_an_adapted_row_measures_the_model_of_another_one(configs, name):
    adapted = TABLE.adapted[name]
    planned, _ = plan(
        configs, TABLE, SCALE, Devices(0), rows=[name], attentions=ATTENTIONS, seeds=[2]
    )
    assert [one.run.row for one in planned] == [name, name]
    for one, attention in zip(planned, ATTENTIONS, strict=True):
        assert one.trainings == ()
        assert one.pretraining.run == Run("table2", "toy", adapted.of, attention, 2)
        words = one.commands()[-1]
        changed = "--encoding" if adapted.encoding else "--grow-table"
        assert words[words.index(changed) + 1] == (adapted.encoding or adapted.grow_table)
    plain = plan_run(configs, Run(TABLE.name, "toy", adapted.of, "vanilla", 2), Devices(0))
    assert not {"--encoding", "--grow-table"} & {*plain.commands()[-1]}


def test_adapted_rows_are_of_the_tables_that_have_them_alone(configs):
    names = {*TABLE.adapted}
    assert names < {*default_rows(TABLE, configs)} and names < {
        *default_rows(MASKED_TABLE, configs)
    }
    assert not names & {*default_rows(TABLES["table2"], configs)}
    with pytest.raises(ValueError, match="`--rows` must be"):
        check_rows(TABLES["table2"], configs, ["rope_dynamic_yarn"])


def test_the_page_says_what_an_adapted_row_is(make):
    page = render(
        JudgedTable.of(TABLE, [make("rope_dynamic_yarn", {1: 3.0, 2: 4.0})]), "mini"
    ).markdown()
    assert "`rope_dynamic_yarn` is `rope_only` with `--encoding none+yarn`." in page
    assert (
        "Some rows evaluate the model"
        not in render(JudgedTable.of(TABLE, [make("rope", {1: 3.0, 2: 4.0})]), "mini").markdown()
    )


def test_lengths_are_a_users(configs, capsys):
    parser = get_parser(TABLE.name)
    assert parser.parse_args(["--lengths", "4x,1x,4x"]).lengths == (1, 4)
    for wrong in ("2", "0x", "x", "1.5x", ""):
        with pytest.raises(SystemExit):
            parser.parse_args(["--lengths", wrong])
    assert "`--lengths`" in capsys.readouterr().err
    assert "--lengths" not in get_parser("table2").format_help()
    words = {"rows": ["rope"], "attentions": ["vanilla"], "seeds": [1], "lengths": (1, 16)}
    (planned,), _ = plan(configs, TABLE, SCALE, Devices(0), **words)
    assert "1x,16x" in planned.commands()[-1]
    (job,) = jobs_of([planned])
    assert "--lengths 1x,16x" in job.sbatch({})[-1]


def test_rows_that_nobody_named_are_left_out_where_nothing_is_trained(root, monkeypatch):
    planned, _ = plan(
        root / "configs", TABLE, SCALE, Devices(0), rows=["rope"], attentions=["vanilla"], seeds=[1]
    )
    assert run_state.without_untrained(root, planned) == []
    monkeypatch.setattr(run_state, "is_pretrained", lambda root, one: one.run.table == "table2")
    assert run_state.without_untrained(root, planned) == planned


class Evaluator:
    """In place of commands: prints losses of the lengths that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, command, log, on_lines, keep_open) -> int:
        words = command[command.index("--lengths") + 1]
        self.asked.append(words)
        factors = [int(word.removesuffix("x")) for word in words.split(",")]
        log.write_text(json.dumps(printed(dict.fromkeys(factors, 3.0))) + "\n")
        return 0


def test_more_lengths_are_measured_beside_those_there_are(root, monkeypatch, capsys):
    (planned,), _ = plan(
        root / "configs", TABLE, SCALE, Devices(0), rows=["rope"], attentions=["vanilla"], seeds=[1]
    )
    monkeypatch.setattr(table_runner, "is_pretrained", lambda root, one: True)
    attempt = "fairseq_plugins.runner.run_execution"
    monkeypatch.setattr(f"{attempt}.checkpoints.require_model", lambda *a: None)
    folder = root / planned.measured[0].folder
    folder.mkdir(parents=True)
    (folder / "train.log").write_text("")
    fake = Evaluator()

    def work(*factors: int) -> None:
        asked = planned.experiment.at_lengths(factors)
        one = replace(planned, requested=asked)
        assert run_table(root, [one], RunOptions(), launcher=fake) == 0

    work(1, 2)
    work(2)
    assert fake.asked == ["1x,2x"]
    work(16)
    assert fake.asked == ["1x,2x", "1x,2x,16x"]
    assert "it has no 16x; it is completed" in capsys.readouterr().out
    found = results.load_result(root / planned.run.result, EXTRAPOLATION.metrics)
    assert factors_of(found["metrics"]) == (1, 2, 16)
    assert (root / "results/extrapolation/toy.svg").is_file()


def test_a_damaged_model_fails_its_row_alone_and_says_what_trains_it_again(root, capsys):
    words = {"rows": ["rope", "alibi"], "attentions": ["vanilla"], "seeds": [1]}
    planned, _ = plan(root / "configs", TABLE, SCALE, Devices(0), **words)
    models = [one.pretraining for one in planned]
    fake = FakeFairseq(root)
    assert run_table(root, models, RunOptions(), launcher=fake) == 0
    rope, alibi = planned
    best = root / rope.pretraining.run.folder / "checkpoint_best.pt"
    best.write_bytes(best.read_bytes()[:-300])
    capsys.readouterr()
    status = run_table(root, planned, RunOptions(), launcher=Evaluator())
    assert status == 1 and (root / alibi.run.result).is_file()
    again = "scripts/table2.sh --scale toy --rows rope --attention vanilla --seeds 1 --force"
    said = capsys.readouterr().out
    assert "checkpoint_best.pt: it is truncated" in said and f"; {again} trains it again" in said
    (failed,) = (one for one in RunStatuses(root, [], {}).statuses() if one.state == "failed")
    assert (failed.table, failed.name) == (TABLE.name, rope.run.name)
    assert failed.log == f"{rope.pretraining.run.folder}/train.log" and failed.lines


def test_the_page_has_both_protocols_and_says_what_a_dash_is(make):
    made = [
        make("rope", {1: 3.0, 2: 4.0, 4: 5.0, 8: 6.0}),
        make("learned", {1: 3.0, 2: None, 4: None, 8: None}),
        make("learned_copied", {1: 3.0, 2: 4.0, 4: 5.0, 8: None}),
        make("alibi", {1: 3.0, 2: 2.9, 4: 2.9, 8: 2.9, 16: 2.8}),
    ]
    page = render(JudgedTable.of(TABLE, made), "mini").markdown()
    assert "| `rope` | 8.00 (1) | 16.00 (1) | 32.00 (1) | 64.00 (1) |" in page
    assert "| `learned` | 8.00 (1) | - | - | - |" in page
    at = "`learned_copied` (vanilla) at 8x; `learned` (vanilla) at 2x, 4x, 8x"
    assert f"No number for {at}: the encoding has no meaning beyond position 128." in page
    assert "The figure and the results' JSON also have 16x" in page
    assert "## In a sliding window" in page and "90.51 (1)" in page
    assert "![Beyond the training length as a figure](mini.png)" in page
    assert page.count("](mini.png)") == 1


def test_the_sliding_window_has_all_rows_too(make):
    made = [make("rope", {1: 3.0, 8: 4.0}), make("alibi", {1: 3.0, 8: 2.0})]
    _, sliding = (
        render(JudgedTable.of(TABLE, made), "mini").markdown().split("## In a sliding window")
    )
    assert "| `rope` | 11.31 (1) | - | - | 22.63 (1) |" in sliding
    assert "| `alibi` | 11.31 (1) | - | - | 5.66 (1) |" in sliding


def test_the_page_says_which_rows_go_on_by_its_numbers_and_what_papers_saw(make):
    made = [
        make("rope", {1: 3.0, 8: 4.0}),
        make("alibi", {1: 3.0, 8: 2.9}),
        make("fire", {1: 3.0, 8: 3.0 + math.log2(1.04)}),
        make("t5", {1: 3.0, 8: 3.0 + math.log2(1.06)}),
        make("learned", {1: 3.0, 8: None}),
        make("rope", {1: 3.0, 8: 4.0}, attention="linear"),
    ]
    page = render(JudgedTable.of(TABLE, made), "mini").markdown()
    assert (
        "- Vanilla attention, whole windows: from 1x to 8x the perplexity rises by at most 5 % in "
        "2 of 4 rows: `alibi` (-6.7 %), `fire` (+4.0 %); among the others it rises least in `t5` "
        "(+6.0 %) and most in `rope` (+100.0 %)."
    ) in page
    assert (
        "- Linear attention, whole windows: from 1x to 8x the perplexity rises by at most 5 % in "
        "none of 1 rows; it rises least in `rope` (+100.0 %)."
    ) in page
    for name in ("KERPLE", "FIRE", "CoPE", "Sandwich", "YaRN", "Ruoss", "ALiBi", "survey"):
        assert name in page.split("**What the papers observed**")[1]
    assert "Observations" not in render(JudgedTable.of(TABLE, [made[4]]), "mini").markdown()


def test_a_rise_is_over_the_seeds_that_have_both_lengths(make):
    made = [make("rope", {1: 4.0, 8: 4.0}, seed=1), make("rope", {1: 2.0, 2: 9.0}, seed=2)]
    (section,) = observations(JudgedTable.of(TABLE, made))
    said = section.text
    assert "8x the perplexity rises by at most 5 % in 1 of 1 rows: `rope` (+0.0 %)" in said


@pytest.mark.usefixtures("real_pictures")
def test_lines_are_means_over_seeds(make, tmp_path):
    made = [
        make("rope", {1: 3.0, 2: 4.0}, seed=1),
        make("rope", {1: 2.0, 2: 3.0}, seed=2),
        make("learned", {1: 3.0, 2: None}),
        make("lrpe_type2", {1: 3.0, 2: 9.0}, attention="linear"),
    ]
    lines = length_lines(made)
    assert lines["rope", "vanilla"] == [(1.0, 6.0), (2.0, 12.0)]
    assert lines["learned", "vanilla"] == [(1.0, 8.0)]
    places = place_lines(made, 2)
    assert ("learned", "vanilla") not in places
    assert places["rope", "vanilla"][0] == (0.125, 12.0) and len(places["rope", "vanilla"]) == 8
    draw_figure(tmp_path / "results", TABLE, TABLE.figures[0], "mini", made)
    folder = tmp_path / "results" / "extrapolation"
    numbers = json.loads((folder / "mini.json").read_text())
    assert numbers["windows"]["rope-vanilla"] == [[1.0, 6.0], [2.0, 12.0]]
    assert "by_position_2x" in numbers and len(numbers["sliding"]["rope-vanilla"]) == 2
    svg = (folder / "mini.svg").read_text()
    assert "RoPE" in svg and "Type2" in svg
    assert (folder / "mini.png").stat().st_size > 10_000


def panel(lines) -> Panel:
    named = {f"row {i}": line for i, line in enumerate(lines)}
    return Panel("", "", "", named, reference="row 0", log_x=True, log_y=True)


def test_many_lines_are_small_multiples_inside_the_picture():
    crowded = panel([[(1.0, 50.0 + i), (2.0, 51.0), (8.0, 60.0 + i)] for i in range(20)])
    picture = draw_panels([crowded], "title")
    FigureCanvasAgg(picture).draw()
    (axis,) = picture.axes
    labels = [text for text in axis.texts if text.get_text().startswith("row ")]
    assert [text.get_text() for text in labels[:2]] == ["row 0  60.00", "row 1  61.00"]
    boxes = [text.get_window_extent() for text in axis.texts]
    assert all(box.x0 >= 0 and box.x1 <= picture.bbox.x1 and box.y0 >= 0 for box in boxes)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_line_is_scaled_until_it_leaves_its_panel():
    lines = [[(1.0, 50.0), (8.0, 60.0 + i)] for i in range(9)]
    found = panel([*lines, [(1.0, 50.0), (2.0, 50.0), (4.0, 9e6), (8.0, 60.0)]])
    assert found.scaled(lines[0])[0] == (0.0, 0.0)
    *_, (x, y) = found.scaled(found.lines["row 9"])
    assert y == 1.0 and 1 / 3 < x < 2 / 3
    assert all(0 <= u <= 1 and 0 <= v <= 1 for u, v in found.band())


@pytest.mark.parametrize("rows", [1, 4, 9, 16, 40])
@pytest.mark.parametrize("times", [1.0, 1.5, 10.0])
def test_few_lines_ever_leave_the_picture(rows, times):
    rising = [[(1.0, 50.0), (4.0, 300.0 * times**i)] for i in range(rows)]
    top = panel(rising).top
    left = [line for line in rising if line[-1][1] > top]
    assert len(left) == (min(3, rows // 5) if times > 4 else 0)


def test_lines_far_above_the_others_leave_the_picture():
    lines = [[(1.0, 50.0), (8.0, 60.0 + i)] for i in range(9)]
    for far in ([9e6], [400.0, 9e6]):
        found = panel([*lines, *([(1.0, 50.0), (8.0, value)] for value in far)])
        assert found.top == pytest.approx(1.1 * 68)


def test_lengths_that_no_row_has_a_number_at_are_neither_drawn_nor_told_of(make, tmp_path):
    nowhere = {1: 3.0, 2: 3.5, 4: 4.0, 8: None}
    made = [
        make("rope", nowhere),
        make("base", {**nowhere, 4: None}),
        make("rope", {**nowhere, 4: None}, attention="linear"),
    ]
    places = longest_places(made)
    assert [(a, factor) for a, (factor, _) in places.items()] == [("linear", 2), ("vanilla", 4)]
    drawn = panels_of(MASKED_TABLE, "lengths", made)
    assert [len(panel.lines) for panel in drawn] == [1, 2, 1, 1]
    assert "window of 2x" in drawn[2].x and "window of 4x" in drawn[3].x
    draw_figure(tmp_path / "results", MASKED_TABLE, MASKED_TABLE.figures[0], "mini", made)
    numbers = json.loads((tmp_path / "results/extrapolation_masked/mini.json").read_text())
    assert numbers["by_position_2x"].keys() == {"rope-linear"}
    assert numbers["by_position_4x"].keys() == {"rope-vanilla"}
    assert "by_position_8x" not in numbers
    page = render(JudgedTable.of(TABLE, made), "mini").markdown()
    assert "Linear attention, whole windows: from 1x to 2x the perplexity rises by" in page
    assert "Vanilla attention, whole windows: from 1x to 4x the perplexity rises by" in page
    at = "every row at 8x; `base` (vanilla) at 4x; `rope` (linear) at 4x"
    assert f"No number for {at}: the encoding has no meaning beyond position 128." in page


def test_masked_models_have_what_papers_saw_of_them(make):
    (told,) = [
        text for paper, text in MASKED_TABLE.published_observations if "implemented here" in paper
    ]
    assert told.startswith("none measured the loss of masked models beyond")
    found = JudgedTable.of(MASKED_TABLE, [make("rope", {1: 3.0, 2: 4.0, 8: None})])
    (seen,) = observations(found)
    assert "in none of 1 rows" in seen.text and told in seen.text and "ALiBi" not in seen.text


def test_attentions_without_numbers_have_no_panel(make):
    made = [make("rope", {1: 3.0, 2: 4.0}), make("learned", {2: None}, attention="linear")]
    titles = [panel.title for panel in panels_of(TABLE, "lengths", made)]
    assert titles == ["vanilla attention"] * 2
    alone = [make("learned", {2: None})]
    assert draw_panels(panels_of(TABLE, "lengths", alone), "title").axes == []
    assert "Observations" not in render(JudgedTable.of(TABLE, alone), "mini").markdown()


@pytest.mark.parametrize(("rise", "word"), [(0.01, Word.CONFIRMED), (0.5, Word.CONTRADICTED)])
def test_a_claim_compares_two_lengths_of_one_row_seed_by_seed(make, rise, word):
    made = [
        make("alibi", {1: level, 2: level + rise + 0.001 * seed}, seed=seed)
        for seed, level in ((1, 3.0), (2, 4.0), (3, 5.0))
    ]
    cells = {TABLE.name: gather(made, TABLE.columns)}
    evidence = Comparison(
        TABLE.name, "ppl_2x", "vanilla", ("alibi",), ("alibi",), "below",
        by=-5.0, relative=True, second_metric="ppl_1x",
    )  # fmt: skip
    verdict = judge(Claim("p", "x", "s", "t", evidence), ScaleResults(cells, {}))
    assert verdict.word == word and verdict.unit == "%"
    expected = 100 * (2 ** (rise + 0.002) - 1)
    assert math.isclose(verdict.estimate.effect, expected, rel_tol=1e-3)


def test_two_lengths_of_one_run_are_compared_within_it(make):
    """What a seed does to both lengths is no error of the rise; rows differ in it by little."""
    made = [
        make(row, {1: level, 2: level + rise}, seed=seed)
        for row, seed, level, rise in (
            *(("alibi", 1, 3.0, 0.010), ("alibi", 2, 4.0, 0.012)),
            *(("rope_only", 1, 3.0, 0.101), ("rope_only", 2, 4.0, 0.100)),
            ("sinusoidal", 1, 3.5, 0.020),
        )
    ]
    evidence = Comparison(
        TABLE.name, "ppl_2x", "vanilla", ("sinusoidal",), ("sinusoidal",), "below",
        by=-5.0, relative=True, second_metric="ppl_1x",
    )  # fmt: skip
    numbers = ScaleResults({TABLE.name: gather(made, TABLE.columns)}, {})
    verdict = judge(Claim("p", "x", "s", "t", evidence), numbers)
    assert verdict.word == Word.CONFIRMED
    # One rise, with the deviation of the other rows' rises: 0.002 / sqrt(2) and 0.001 / sqrt(2).
    deviation = math.log(2) * math.sqrt((0.002**2 + 0.001**2) / 4)
    reach = 4.302653 * deviation  # Student's t of two degrees of freedom
    expected = [100 * math.expm1(math.log(2) * 0.02 + sign * reach) for sign in (-1, 1)]
    assert [verdict.estimate.low, verdict.estimate.high] == pytest.approx(expected, rel=1e-3)


def test_tables_of_other_models_have_no_lengths():
    assert [name for name, table in TABLES.items() if table.lengths] == [
        "extrapolation",
        "extrapolation_masked",
    ]
