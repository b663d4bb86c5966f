"""Which trained models a figure of the BERT paper takes from the tables' checkpoints."""

import json
import re
from pathlib import Path

import pytest

from fairseq_plugins.__main__ import main
from fairseq_plugins.cli import analyse_bert as figure
from fairseq_plugins.cli import analysis_options
from fairseq_plugins.cli.table_options import get_parser
from fairseq_plugins.common.provenance import command_line
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_figures import FIGURE_MODELS, Model
from tests.published import write_bert_folder

ROWS = [path.stem for path in figure.ROOT.glob("configs/model/*.yaml")]


def put(root: Path, path: str) -> Path:
    file = root / "checkpoints" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figure, "ROOT", tmp_path)
    return tmp_path


def test_every_model_can_be_a_row_of_its_table() -> None:
    for models in FIGURE_MODELS.values():
        for model in models:
            assert model.row in ROWS
            assert model.attention in TABLES[model.table].attentions


def test_the_best_checkpoint_is_before_the_last_and_seeds_are_in_their_order(root: Path) -> None:
    model = Model("table2", "learned", "language model")
    assert figure._left_by(model, "mini") == []
    third = put(root, "table2/mini/learned-vanilla-s3/checkpoint_last.pt")
    assert figure._left_by(model, "mini") == [third]
    put(root, "table2/mini/learned-vanilla-s2/checkpoint_last.pt")
    best = put(root, "table2/mini/learned-vanilla-s2/checkpoint_best.pt")
    put(root, "table2/toy/learned-vanilla-s1/checkpoint_best.pt")
    assert figure._left_by(model, "mini") == [best]


def test_all_trainings_of_a_run_are_taken(root: Path) -> None:
    model = Model("bert_table4", "learned", "SQuAD", "*")
    runs = "bert_table4/mini/learned-vanilla-s1"
    files = [put(root, f"{runs}/{part}/checkpoint_last.pt") for part in ("v1", "v2")]
    put(root, f"{runs}/run.json")
    assert figure._left_by(model, "mini") == files


def test_of_a_training_on_its_way_some_checkpoints_are_taken(root: Path) -> None:
    (model,) = FIGURE_MODELS[8]
    folder = "bert_start/mini-steps/learned-vanilla-s1"
    assert figure._left_by(model, "mini") == []
    put(root, f"{folder}/checkpoint_best.pt")
    put(root, f"{folder}/checkpoint_last.pt")
    assert figure._left_by(model, "mini") == []
    kept = [put(root, f"{folder}/checkpoint_1_{150 * n}.pt") for n in range(1, 27)]
    taken = figure._left_by(model, "mini")
    assert taken == [kept[n] for n in (0, 6, 12, 25)]
    assert figure._label(model, taken[1]) == "1,050 updates"
    assert figure._on_the_way(kept[:2]) == kept[:2]
    options = "--name mini-steps --set checkpoint.keep_interval_updates=-1"
    assert options in figure._command(model, "mini")


def test_what_is_printed_trains_what_is_missing_and_no_more() -> None:
    for models in FIGURE_MODELS.values():
        for model in models:
            script, *words = figure._command(model, "mini").split()
            args = get_parser(Path(script).stem).parse_args(words)
            assert args.missing_checkpoints and not args.force
            assert (args.rows, args.attention) == ([model.row], [model.attention])
            assert args.keep == ("tuned" if model.parts else None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1", "--scale", "mini"], "needs models of scale mini"),
        (["3", "--scale", "mini"], "--scale must be left out with figure 3"),
        (["2", "--data", "."], "--checkpoint must be given for figure 2"),
        (["6", "--data", "."], "--checkpoint must be given with --data"),
        (["3", "--data", "."], "--checkpoint and --data must be left out with figure 3"),
        (["5", "--checkpoint", "x.pt"], "--checkpoint and --data must be left out with figure 5"),
        (["5", "--length", "12"], "--length must be left out with figure 5"),
        (["5", "--seed", "3"], "--seed must be left out with figure 5"),
        (["3", "--words", "5"], "--words must be left out with figure 3"),
        (["3", "--cpu"], "--cpu must be left out with figure 3"),
        (["6", "--length", "12"], "--length must be left out with figure 6"),
        (["8", "--scale", "mini"], "figure 8 needs models of scale mini"),
        (["2", "--scale", "mini", "--checkpoint", "x.pt"], "--scale must be left out where"),
    ],
)
def test_what_cannot_be_is_said(
    root: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", "figure", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    if words == ["1", "--scale", "mini"]:
        command = "scripts/bert_continued.sh --scale mini --rows learned --missing-checkpoints"
        assert f"  {command}\n" in shown.out
    assert not (root / "results").exists()


@pytest.mark.parametrize(("word", "said"), [("7", "`fairseq-pe table bert_figure7`"), ("x", "'x'")])
def test_another_number_is_refused_and_figure_7_has_its_command(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["analyse", "figure", word])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_page_says_of_a_training_what_the_checkpoint_does() -> None:
    cfg = {"task": {"data": "data/x", "tokens_per_sample": 64}, "common": {"seed": 2}}
    trained = {"cfg": cfg, "optimizer_history": [{"num_updates": 1500}]}
    assert analysis_options._trained(trained) == "x, 1,500 updates of samples of 64, seed 2"
    tuned = {**trained, "cfg": {**cfg, "task": {"data": "data/x"}}}
    assert analysis_options._trained(tuned) == "x, 1,500 updates, seed 2"
    # A converted one, whose data is the folder that it is in.
    converted = {"cfg": {**cfg, "task": {"data": ".", "tokens_per_sample": 64}}}
    assert analysis_options._trained(converted) == "its checkpoint does not say how it was trained"


def test_data_is_looked_for_where_all_data_is(tmp_path, monkeypatch):
    """As where checkpoints and data were copied from another machine."""
    checkpoint = {"cfg": {"task": {"data": "elsewhere/novels"}}}
    monkeypatch.setattr(
        "fairseq_plugins.common.checkpoints.read_checkpoint", lambda path: checkpoint
    )
    monkeypatch.setenv("FAIRSEQ_PE_DATA", str(tmp_path))
    assert figure._data_of(tmp_path / "any.pt") == figure.ROOT / "elsewhere" / "novels"
    (tmp_path / "novels").mkdir()
    assert figure._data_of(tmp_path / "any.pt") == tmp_path / "novels"


def test_the_folder_of_a_published_model_is_an_input(tmp_path: Path) -> None:
    """Converted without a trace, with its own dictionary, and named by its label."""
    folder = write_bert_folder(tmp_path / "bert")
    stem = tmp_path / "figure"
    words = ["10", "--checkpoint", f"tiny={folder}", "--output", str(stem)]
    assert main(["analyse", "figure", *words, "--words", "3", "--length", "16", "--cpu"]) == 0
    numbers = json.loads(stem.with_suffix(".json").read_text())
    assert "tiny" in json.dumps(numbers)
    assert str(tmp_path) not in stem.with_suffix(".md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["bert"]


@pytest.mark.parametrize("number", ["1", "8", "9", "11"])
def test_other_figures_are_of_a_published_model_too(number: str, tmp_path: Path) -> None:
    folder, stem = write_bert_folder(tmp_path / "bert"), tmp_path / "figure"
    words = [number, "--checkpoint", f"tiny={folder}", "--output", str(stem), "--cpu"]
    assert main(["analyse", "figure", *words, "--words", "2", "--length", "12"]) == 0
    assert "tiny" in stem.with_suffix(".md").read_text()


@pytest.mark.parametrize(("number", "lacks"), [("4", "sinusoids"), ("6", "relative vectors")])
def test_a_published_model_has_neither_sinusoids_nor_relative_vectors(
    number: str, lacks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_bert_folder(tmp_path / "bert")
    assert main(["analyse", "figure", number, "--checkpoint", str(folder), "--cpu"]) == 2
    assert re.search(rf"needs (absolute )?{lacks}, which no input has", capsys.readouterr().err)


def test_a_folder_needs_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_bert_folder(tmp_path / "bert")
    words = ["10", "--checkpoint", str(folder), "--data", str(tmp_path), "--cpu"]
    assert main(["analyse", "figure", *words]) == 2
    assert "0 --checkpoint that are files, but is given 1 times" in capsys.readouterr().err


def test_a_path_may_have_an_equals_sign(tmp_path: Path) -> None:
    """As folders of Hydra's sweeps have."""
    folder = write_bert_folder(tmp_path / "model=rope")
    for word, label in ((f"x={folder}", "x"), (str(folder), tmp_path.name)):
        assert analysis_options.labelled([word]) == {label: folder}
        shown = "x=model=rope" if label == "x" else "model=rope"
        assert command_line(["--checkpoint", word]) == f"--checkpoint {shown}"
    assert analysis_options.labelled(["a=absent.pt"]) == {"a": Path("absent.pt")}


def test_a_picture_alone_is_written_where_the_outputs_name_says_so(tmp_path: Path) -> None:
    assert main(["analyse", "figure", "3", "--output", str(tmp_path / "x.PDF")]) == 0
    (file,) = tmp_path.iterdir()
    assert file.read_bytes().startswith(b"%PDF")


def test_pictures_of_results_are_drawn_again_without_their_models(root: Path) -> None:
    stem = root / "results" / "bert_figure6" / "untrained"
    assert main(["analyse", "figure", "6", "--output", str(stem)]) == 0
    page, picture = stem.with_suffix(".md"), stem.with_suffix(".png")
    first = picture.read_bytes()
    picture.unlink()
    page.write_text("a page of its own")
    assert main(["analyse", "figure", "6", "--redraw"]) == 0
    assert abs(picture.stat().st_size - len(first)) < 0.1 * len(first)
    assert page.read_text() == "a page of its own"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["6", "--scale", "mini"], "--scale must be left out with --redraw"),
        (["6"], "--redraw must have a JSON in "),
        (["4"], "--redraw must be left out with figure 4, which has no maps"),
    ],
)
def test_what_cannot_be_drawn_again_is_an_error(
    words: list[str], said: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := root / "results" / "bert_figure4").mkdir(parents=True)
    (folder / "mini.json").write_text("{}")
    assert main(["analyse", "figure", *words, "--redraw"]) == 2
    assert said in capsys.readouterr().err
