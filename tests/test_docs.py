"""The documents say what the code says, and their code runs."""

import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from fairseq_plugins.catalog.page import COMMAND, page
from fairseq_plugins.encodings import (
    ALL_HOOKS,
    FoldsBasis,
    LinearFacts,
    PositionEncoding,
    PositionFacts,
    RelativeOnAverage,
    Repositions,
    SeesMask,
    Stochastic,
)
from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.tables import ATTENTIONS
from fairseq_plugins.statistics.table_results import read_numbers

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
EVERY_WAY = "causal, bidirectional, cross"
NAMES = ["gaussian_window", "head_rope"]


def test_the_page_of_encodings_is_current() -> None:
    if (ROOT / "docs" / "encodings.md").read_text(encoding="utf-8") != page():
        pytest.fail(f"docs/encodings.md is not what the code says; run: {COMMAND}")


@pytest.mark.parametrize(
    "path",
    [
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
        *("data/README.md", "checkpoints/README.md"),
        *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_lead_somewhere(path: str) -> None:
    """Each to a file, or to one heading of the page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    headings = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in _headings(text)]
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(text)):
        if target.startswith("#"):
            assert headings.count(target[1:]) == 1, target
        elif "://" not in target:
            assert (ROOT / path).parent.joinpath(target).is_file(), target


def _headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", _prose(text), re.MULTILINE)


def _prose(text: str) -> str:
    """Without the blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_the_readmes_python_runs_as_it_stands(tmp_path: Path) -> None:
    plain, huggingface = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
    path = tmp_path / "example.py"
    path.write_text(huggingface, encoding="utf-8")
    logits = runpy.run_path(str(path))["logits"]
    assert (logits.shape, bool(logits.isfinite().all())) == ((2, 16, 50), True)
    path.write_text(plain, encoding="utf-8")
    found = runpy.run_path(str(path))
    assert found["output"].shape == found["v"].shape
    real = ~found["key_padding_mask"]
    assert found["output"].transpose(1, 2)[real].isfinite().all()


def test_the_readmes_commands_of_fairseq_train_as_they_stand(tmp_path: Path) -> None:
    """In a folder of its own, with the commands of this Python."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)
    (block,) = [block for block in blocks if "fairseq-train" in block]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in {
        "fairseq-pe": "fairseq_plugins",
        "fairseq-train": "fairseq_cli.train",
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        program.chmod(0o755)
    around = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    around |= {"FAIRSEQ_PE_DATA": str(tmp_path / "data")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path,
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "checkpoints" / "lrpe_type2-linear" / "checkpoint_last.pt").is_file()


def test_the_readmes_numbers_stand_on_their_pages() -> None:
    """In the table of findings; who renders a page anew puts the new ones there."""
    rows = re.findall(r"^\| .* \| (\S+ \(\S+ to \S+\)) \| ([\d.]+) \|$", README, re.M)
    orders = dict(re.findall(r"^\| \[Table (\d)\]\(.*?\), [\w ]+ \| (.*) \|$", README, re.M))
    tables = ["table2", "table8", "table4"]
    numbers = read_numbers(ROOT, [TABLES[name] for name in tables], "mini")["mini"]
    found = [numbers.table(name) for name in tables]
    assert len(rows) == len(found) * len(ATTENTIONS)
    for judged, attention in itertools.product(found, ATTENTIONS):
        one = judged.pair(attention, "lrpe_type2", "rope")
        assert one is not None and one.adjusted is not None
        effect = f"{one.effect:+.2f} ({one.low:+.2f} to {one.high:+.2f})"
        assert rows.pop(0) == (effect, f"{one.adjusted:.3f}")
    for judged in found:
        agreed = [judged.agreement(attention) for attention in ATTENTIONS]
        counts = ["/".join(str(a.count(holds)) for a in agreed) for holds in (True, False, None)]
        assert orders[judged.table.name[-1]] == " | ".join(counts)


@pytest.mark.parametrize("path", ["README.md", "docs/reproducing.md", "docs/published.md"])
def test_tables_are_trained_and_not_shown(path: str) -> None:
    """A clone has the results of these commands, so without --rerun they would train nothing."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(r"^scripts/\w*table\d.sh --scale (?:mini|published) (.*)$", text, re.M)
    assert found and all(words.endswith("--rerun") for words in found)


def test_the_readme_counts_claims_as_their_page_does() -> None:
    claims = json.loads((ROOT / "results" / "claims.json").read_text(encoding="utf-8"))
    found = Counter(one["verdicts"][one["best_scale"]]["verdict"] for one in claims)
    said = re.search(
        r"Of (\d+) claims (\d+) are confirmed \((\d+) mathematical\), (\d+)"
        r" contradicted \((\d+) on \[adapted models\]\(docs/published.md\)\),"
        r" (\d+) undecided and (\d+) not tested",
        " ".join(README.split()),
    )
    assert said
    judged = [found[word] for word in ("confirmed", "contradicted", "undecided")]
    computed = sum(one["best_scale"] == "computed" for one in claims)
    of_adapted = [one for one in claims if one["best_scale"] == "published"]
    verdicts = [one["verdicts"]["published"]["verdict"] for one in of_adapted]
    adapted = verdicts.count("contradicted")
    numbers = [len(claims), judged[0], computed, judged[1], adapted, judged[2]]
    numbers.append(len(claims) - sum(judged))
    assert [int(number) for number in said.groups()] == numbers
    page = (ROOT / "results" / "claims.md").read_text(encoding="utf-8")
    ties = len(re.findall(r"\*\*confirmed\*\*[^|]*; a tie on the table's page", page))
    assert ties == 9 and "nine confirmed claims are such ties" in README
    left = re.search(r"would leave (\d+) of (\d+) confirmed", page)
    assert left and f"over all claims\nleaves {left[1]} of {left[2]}." in README


def test_the_readmes_speeds_are_those_of_the_normalizer_that_it_names() -> None:
    assert 'linear attention with `normalizer="encoded"`' in README
    found = re.findall(r"(\d+) %(?:[\w\s'()]*) on an?\s\[[^]]*\]\((benchmarks/[^)]*)\)", README)
    assert len(found) == 2
    for percent, path in found:
        text = (ROOT / path).read_text(encoding="utf-8")
        ratio = re.search(r"^\| `linear_encoded/(?:softmax|flash)@8192` \| ([\d.]+) \|", text, re.M)
        assert ratio and round(100 * float(ratio[1])) == int(percent)


def test_the_readmes_perplexities_are_those_of_table_2() -> None:
    lines = (ROOT / "results" / "table2" / "mini.md").read_text(encoding="utf-8").splitlines()
    rows = re.findall(r"^\| `(\w+)`.* \| ([\d.‡]+) \| ([\d.‡]+|-) \|$", README, re.M)
    assert len(rows) == 11
    for name, *numbers in rows:
        line = next(line for line in lines if line.startswith("|") and f"`{name}`" in line[:60])
        for number in numbers:
            assert number.strip("‡") in line, name
            assert number == "-" or (f"{number.strip('‡')} (1)" in line) == ("‡" in number), name


def test_the_readme_and_the_pages_stay_short() -> None:
    """The first is read in two minutes; all pages together in a few hours."""
    assert len(README.split()) <= 900
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(path.read_text(encoding="utf-8").split()) for path in pages) <= 30_000


def test_each_version_of_the_changelog_fits_on_a_screen() -> None:
    """The newest is the version of pyproject.toml, with its date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*?)"', (ROOT / "pyproject.toml").read_text(), re.M)
    versions = text.split("\n## ")[1:]
    assert re.match(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n", versions[0])
    assert max(one.count("\n") for one in versions) <= 60


def test_the_navigation_of_the_site_is_complete() -> None:
    """Every page of docs/ is in mkdocs.yml, and what is there exists."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    said = re.findall(r"[\w./-]+\.md", text.partition("\nnav:")[2])
    assert sorted(set(said)) == sorted(said)
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(said)
    notebooks = {f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")}
    assert notebooks <= set(said)
    assert not [path for path in set(said) - notebooks if not (ROOT / path).is_file()]


def test_the_reference_in_python_has_all_that_is_exported() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^::: fairseq_plugins\.([\w.]+)\n.*\n +members: \[(.*)\]$", text, re.M))
    assert [*said] == ["encodings", "attention", "integrations.huggingface", "kernels"]
    for package, members in said.items():
        path = ROOT / "fairseq_plugins" / package.replace(".", "/") / "__init__.py"
        (exported,) = re.findall(r"^__all__ = \[(.*?)\]$", path.read_text(), re.M | re.S)
        assert sorted(members.split(", ")) == sorted(re.findall(r'"(\w+)"', exported)), package


def test_the_map_has_every_room_and_paths_that_exist() -> None:
    """Rooms and files of docs/architecture.md; those of a run have its names in brackets."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "fairseq_plugins"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    (drawn,) = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
    assert not {room for room in rooms if not re.search(rf"\b{room}\b", drawn)}
    places = (ROOT, package)
    for path in re.findall(r"`([\w./-]+(?:/|\.py|\.yaml|\.sh))`", text):
        alone = not path.removesuffix("/").count("/")
        found = [place / path for place in places if (place / path).exists()]
        assert found or (alone and list(package.rglob(path))), path


def test_the_page_of_data_names_every_script_that_makes_some() -> None:
    said = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "scripts").glob("prepare_*.sh")}
    assert scripts == set(re.findall(r"prepare_\w+\.sh", said))


def test_extending_names_everything_that_a_class_can_say() -> None:
    """Its attributes, and every hook and method that is there to be overridden."""
    own = {name for name in vars(PositionEncoding) if not name.startswith("_")} - {"hooks"}
    assert own >= ALL_HOOKS
    said = {field.name for value in (LinearFacts, PositionFacts) for field in fields(value)}
    able = {
        name
        for protocol in (FoldsBasis, RelativeOnAverage, Repositions, SeesMask, Stochastic)
        for name in vars(protocol)
        if not name.startswith("_")
    }
    assert {"redraw", "fold_basis_", "expected_scores"} <= able
    for name in own | said | able:
        assert re.search(rf"`{name}[`(]", EXTENDING), name


def test_extending_has_the_facts_in_the_order_and_with_the_defaults_of_the_code() -> None:
    """Those of positions first, as many as the sentence below the table says."""
    table = EXTENDING.partition("| fact | default |")[2].partition("\n\n")[0]
    said = re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.M)
    of_positions, others = fields(PositionFacts), fields(LinearFacts)
    assert dict(said) == {f.name: str(f.default) for f in (*of_positions, *others)}
    assert {name for name, _ in said[: len(of_positions)]} == {f.name for f in of_positions}
    count = {3: "three", 4: "four", 5: "five"}[len(of_positions)]
    said = f"`PositionFacts.of(encoding)` reads the first {count} facts, "
    assert said in " ".join(EXTENDING.split())


def _files() -> dict[str, str]:
    """The blocks of docs/extending.md that are files, by path."""
    return dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", EXTENDING, re.M | re.S))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the files of docs/extending.md."""
    copy = tmp_path_factory.mktemp("extended")
    for folder in ("fairseq_plugins", "tests", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for path, text in _files().items():
        assert not (copy / path).exists()
        (copy / path).write_text(text, encoding="utf-8")
    return copy


def _run(folder: Path, *words: str) -> str:
    """The output of this Python, run in a copy of the repository."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_files_are_encodings_and_their_rows() -> None:
    assert list(_files()) == [
        "fairseq_plugins/encodings/gaussian.py",
        "fairseq_plugins/encodings/head_rope.py",
        *(f"configs/model/{name}.yaml" for name in NAMES),
    ]


def test_the_examples_are_in_the_catalogue(extended: Path) -> None:
    expected = {"gaussian_window": ("width=16.0", "no"), "head_rope": ("slowest=0.25", EVERY_WAY)}
    code = "from fairseq_plugins.__main__ import main\nfor n in %r: main(['encodings', n])"
    printed = _run(extended, "-c", code % NAMES)
    sections = dict(zip(NAMES, re.split(rf"^(?={NAMES[1]}: )", printed, flags=re.M), strict=True))
    for name, (option, linear) in expected.items():
        shown = sections[name]
        assert f"  {option}   a number" in shown
        assert f"softmax attention: {EVERY_WAY}\nlinear attention: {linear}\n" in shown
        assert "learned parameters: 48, 8 in each layer" in shown


def test_the_example_runs_outside_fairseq(extended: Path) -> None:
    files = _files().values()
    blocks = re.findall(r"^```python\n(.*?)^```$", EXTENDING, re.M | re.S)
    (outside,) = [block for block in blocks if block not in files]
    _run(extended, "-c", outside)


@pytest.mark.slow
def test_the_examples_pass_the_tests_of_every_encoding_and_train(extended: Path) -> None:
    folders = ["analysis", "attention", "encodings", "models", "integration/test_configs_train.py"]
    places = [f"tests/{name}" for name in folders]
    options = ["-q", "-k", " or ".join(NAMES), "-p", "no:cacheprovider", "-m", "not slow"]
    summary = _run(extended, "-m", "pytest", *options, *places).splitlines()[-1]
    passed = int(re.search(r"(\d+) passed", summary)[1])
    assert passed > 150


@pytest.mark.slow
def test_the_table_of_contributing_is_planned_and_shown(extended: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    ((path, file),) = re.findall(r"^`([\w/.]+)`:\n\n```python\n(.*?)^```$", text, re.M | re.S)
    ((imported, named),) = re.findall(r"^```\n(from .*\n)(        \w+,\n)```$", text, re.M)
    (extended / path).write_text(file, encoding="utf-8")
    init = extended / "fairseq_plugins" / "papers" / "__init__.py"
    last = "        FLOOR_SWEEP,\n"
    known = init.read_text(encoding="utf-8")
    assert known.count(last) == 1
    init.write_text(imported + known.replace(last, last + named), encoding="utf-8")
    command = ["-m", "fairseq_plugins", "table", "biases", "--scale", "toy"]
    shown = _run(extended, *command, "--dry-run")
    for row in ("none", "alibi", "kerple_log", "sandwich"):
        assert f"model={row} " in shown
    _run(extended, *command, "--render")
    made = (extended / "results" / "biases" / "toy.md").read_text(encoding="utf-8")
    assert made.startswith("# Biases by distance, scale `toy`")
