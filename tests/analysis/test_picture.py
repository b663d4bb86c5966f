"""Pictures of encodings: of every name there is, and right where the numbers are known."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fairseq_plugins.analysis.picture import DIM, HEADS, build, definition_of, observe
from fairseq_plugins.analysis.picture_files import (
    draw,
    draw_side_by_side,
    form_lines,
    page,
    to_json,
    write_picture,
    write_side_by_side,
)
from fairseq_plugins.cli.analyse import main
from fairseq_plugins.encodings import ENCODINGS, PositionFacts
from tests.analysis.test_attention_heads import causal
from tests.models.helpers import WIDTH
from tests.quick import first_of_each_kind

LENGTH = 10
ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG"  # what such a file begins with


def look(name: str, **options):
    encoding = build(name, length=LENGTH, **options)
    return observe(name, encoding, length=LENGTH)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_every_encoding_can_be_seen(name):
    seen = look(name)
    count = LENGTH if seen.causal else 2 * LENGTH - 1
    assert seen.kernel.shape == seen.spread.shape == (HEADS, count) == (HEADS, len(seen.offsets))
    assert seen.kernel.isfinite().all() and seen.spread.isfinite().all()
    assert seen.weights.shape == (LENGTH, LENGTH)
    torch.testing.assert_close(seen.weights.sum(1), torch.ones(LENGTH))
    assert float(seen.decay.max()) == 1 and float(seen.decay.min()) >= 0
    if seen.causal:
        assert not seen.weights.triu(1).any()
    encoding = build(name, length=LENGTH)
    assert seen.definition or not encoding.hooks - {"relative_logits", "relative_values"}
    for panel in seen.definition:
        assert panel.values.size(1) == len(panel.x) and panel.values.isfinite().all()
    assert bool(seen.form) != bool(seen.no_form_reason)
    assert len(form_lines(seen)) == 1 + len(seen.form)
    json.dumps(to_json(seen), allow_nan=False)
    if PositionFacts.of(encoding).is_relative and "embed" not in encoding.hooks:
        assert seen.form


# What is drawn follows from the panels that the test above sees for every encoding.
DRAWN = first_of_each_kind(sorted(ENCODINGS), lambda name: "embed" in ENCODINGS[name].hooks, str)


@pytest.mark.parametrize("name", DRAWN)
def test_encodings_are_drawn_by_the_command(name, tmp_path: Path, capsys):
    assert main(["picture", name, "--length", str(LENGTH), "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: ")
    assert sorted(path.suffix for path in tmp_path.glob(f"{name}.*")) == [".json", ".png", ".svg"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    shown = " ".join(ElementTree.parse(tmp_path / f"{name}.svg").getroot().itertext())
    assert f"{name}, " in shown and "attention over a repeated word" in shown
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["encoding"] == name and len(found["kernel"]) == HEADS
    assert all(part["title"] in shown for part in found["definition"])


def test_several_encodings_stand_side_by_side_on_one_scale(tmp_path: Path):
    words = ["rope", "alibi", "none", "--length", str(LENGTH), "--output", str(tmp_path)]
    assert main(["picture", *words]) == 0
    shown = " ".join(ElementTree.parse(tmp_path / "rope-alibi-none.svg").getroot().itertext())
    for name in ("rope", "alibi", "none"):
        assert f"{name}: kernel" in shown and f"{name}: attention" in shown
    figure = draw_side_by_side([look("alibi"), look("rope")])
    kernels = [panel for panel in figure.axes if "kernel" in panel.get_title()]
    assert len({panel.get_ylim() for panel in kernels}) == 1 and len(kernels) == 2
    low, high = kernels[0].get_ylim()
    means = [line.get_ydata() for panel in kernels for line in panel.lines[-1:]]
    assert all(low < min(mean) and max(mean) < high for mean in means)


@pytest.mark.parametrize("names", [["rope"], ["rope", "alibi"]])
def test_one_picture_is_drawn_where_the_outputs_name_says_so(names: list[str], tmp_path: Path):
    for output in (tmp_path / "x.pdf", tmp_path / "x.svg", tmp_path / "x.svg"):
        assert main(["picture", *names, "--length", str(LENGTH), "--output", str(output)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"x.pdf", "x.svg"}
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_the_readmes_picture_is_what_its_command_draws(tmp_path: Path):
    """The same pixels, but for what another version of matplotlib draws otherwise."""
    (shown,) = re.findall(r"docs/pictures/(\S*-\S*)\.png", (ROOT / "README.md").read_text())
    names = shown.split("-")
    assert f"analyse picture {' '.join(names)} " in (ROOT / "docs/pictures.md").read_text()
    write_side_by_side([observe(name, build(name), length=129) for name in names], tmp_path)
    kept = ROOT / "docs" / "pictures" / f"{shown}.png"
    assert kept.stat().st_size < 300_000
    before, after = (
        np.asarray(Image.open(path).convert("L"), float) for path in (kept, tmp_path / kept.name)
    )
    assert before.shape == after.shape and np.abs(before - after).mean() < 1


def test_alibis_kernel_falls_with_the_distance_by_its_slopes():
    seen = look("alibi")
    middle = seen.offsets.index(0)
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
    for i, offset in enumerate(seen.offsets):
        fall = seen.kernel[:, middle] - seen.kernel[:, i]
        torch.testing.assert_close(fall, slopes * abs(offset), rtol=1e-4, atol=1e-4)
    (bias,) = definition_of(build("alibi", length=LENGTH), LENGTH)
    torch.testing.assert_close(bias.values[:, bias.x.index(-3)], -3 * slopes)
    lines = form_lines(seen)
    assert any("t - s =  -4" in line and "c [-4]" in line for line in lines)  # over 1/sqrt(16)


def test_ropes_matrices_are_rotations_and_its_kernel_their_trace():
    seen = look("rope")
    for offset, (primitive,) in seen.form.items():
        matrix = primitive.matrix[0]
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(DIM).double(), atol=1e-6, rtol=0)
        rates = [10000.0 ** (-2 * j / DIM) for j in range(DIM // 2)]
        trace = 2 * sum(math.cos(offset * rate) for rate in rates)
        assert float(matrix.trace()) == pytest.approx(trace, abs=1e-5)
        # E[q W q] of independent normal features is the trace.
        mean = float(seen.kernel[:, seen.offsets.index(offset)].mean()) * math.sqrt(DIM)
        assert mean == pytest.approx(trace, abs=2.5)
    # Different words have logits of variance 1, whatever is between them.
    torch.testing.assert_close(seen.spread.mean(), torch.tensor(1.0), atol=0.15, rtol=0)


def test_a_model_without_positions_attends_to_all_alike():
    seen = look("none")
    torch.testing.assert_close(seen.weights, torch.full((LENGTH, LENGTH), 1 / LENGTH))
    assert seen.definition == [] and float(seen.kernel.std(1).max()) < 1e-5
    assert all([one.query for one in form] == ["content"] for form in seen.form.values())


@pytest.mark.filterwarnings("error")
def test_the_picture_of_none_is_the_same_each_time(tmp_path: Path):
    seen = look("none")
    for folder in ("first", "second"):
        write_picture(seen, tmp_path / folder)
    first, second = ((tmp_path / f / "none.svg").read_bytes() for f in ("first", "second"))
    assert first == second


def test_files_of_one_and_the_page_of_several(tmp_path: Path, capsys):
    words = ["picture", "base+alibi", "--output", str(tmp_path), "--length", "12"]
    assert main(words) == 0
    assert "base+alibi: no canonical form" in capsys.readouterr().out
    stem = tmp_path / "base+alibi"
    assert (tmp_path / "base+alibi.png").read_bytes().startswith(PNG)
    text = " ".join(ElementTree.parse(f"{stem}.svg").getroot().itertext())
    assert "bias of each head" in text and "base+alibi, bidirectional" in text
    found = json.loads(Path(f"{stem}.json").read_text())
    assert found["offsets"] == [-11, 11] and len(found["kernel"]) == HEADS
    before = Path(f"{stem}.svg").read_bytes(), Path(f"{stem}.png").read_bytes()
    assert main(words) == 0
    assert before == (Path(f"{stem}.svg").read_bytes(), Path(f"{stem}.png").read_bytes())
    seen = [look("rope"), look("t5")]
    write_picture(seen[0], tmp_path)
    text = page(seen, "the command")
    assert "made by `the command`" in text and "(rope.png)" in text and "## `t5`" in text


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_the_legend_hides_no_kernel(name: str):
    picture = draw(look(name))
    picture.draw_without_rendering()
    (kernel,) = (panel for panel in picture.axes if panel.get_title().startswith("kernel"))
    box = kernel.get_legend().get_window_extent()
    for line in kernel.lines:
        points = kernel.transData.transform(line.get_xydata())
        assert not any(box.contains(*point) for point in points)
    inside = kernel.get_window_extent()
    assert inside.x0 <= box.x0 and box.x1 <= inside.x1


@pytest.mark.parametrize(("name", "most"), [("xpos", 0.6), ("rope", 1.0)])
def test_a_few_weights_do_not_set_the_greys_of_a_causal_map(name: str, most: float):
    seen = look(name)
    places = (panel for panel in draw(seen).axes if panel.get_title().startswith("attention"))
    (image,) = next(places).images
    highest = float(seen.weights.max())
    assert image.get_clim()[1] <= most * highest + 1e-6
    assert image.colorbar.extend == ("max" if seen.causal else "neither")


def test_options_are_in_the_title_and_in_the_files_names(tmp_path: Path, capsys):
    words = ["picture", "rope", "--length", "12", "--output", str(tmp_path)]
    assert main(words) == main([*words, "--options", "base=500  rotated=half"]) == 0
    stem = tmp_path / "rope-base=500-rotated=half"
    text = " ".join(ElementTree.parse(f"{stem}.svg").getroot().itertext())
    assert "rope, base=500 rotated=half, bidirectional" in text
    assert "rope, base=500 rotated=half: scores" in capsys.readouterr().out
    assert json.loads(Path(f"{stem}.json").read_text())["options"] == "base=500 rotated=half"
    assert "options" not in json.loads((tmp_path / "rope.json").read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "ENCODING, --all or --path must be given, and only one of them"),
        (["rope", "--all"], "ENCODING, --all or --path must be given, and only one of them"),
        (["rop"], "is 'rop' instead. Did you mean"),
        (["rope", "--length", "1"], "--length must be at least 2, but is 1"),
        (["rope", "--options", "base=x"], "`base` must be a number"),
        (["--all", "--options", "base=2"], "--options must be left out"),
        (["--all", "--output", "x.pdf"], "--output must be a folder with --all, but is x.pdf"),
    ],
)
def test_what_cannot_be_is_named(words, message, tmp_path, capsys):
    assert main(["picture", "--output", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["picture", "rope", "--length", "10"], ["awareness", "rope"]])
def test_a_folder_that_cannot_be_one_is_no_success(words, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    for output in ("/dev/full", str(tmp_path / "file")):
        with pytest.raises(SystemExit, match="2"):
            main([*words, "--output", output])
        assert f"--output: must be a folder, but {output} is a file" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("layer", [1, 2])
def test_a_model_is_drawn_with_what_it_has_learned(layer: int, tmp_path: Path) -> None:
    loaded = causal("base+t5")
    encoding = loaded.encoding(layer).float()
    encoding.weight.data.normal_()
    seen = replace(observe("t5", encoding, length=20), model=f"layer {layer} of x")
    assert seen.causal and seen.kernel.shape == (HEADS, 20)
    (panel,) = seen.definition
    # The first buckets hold one distance each, back from the query.
    torch.testing.assert_close(panel.values.flip(1)[:, :16], encoding.weight[:16].T)
    write_picture(seen, tmp_path)
    numbers = json.loads((tmp_path / f"t5-layer-{layer}-of-x.json").read_text())
    assert numbers["model"] == f"layer {layer} of x"
    vectors = observe("base", loaded.encoding(0).float(), length=20)
    assert vectors.definition[0].values.shape == (WIDTH, 20)
