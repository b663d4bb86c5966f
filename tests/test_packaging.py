"""pyproject.toml, the pinned requirements, the imports and the Makefile agree with each other."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fairseq_plugins.cli import analysis_options, pack, rehearse, report
from fairseq_plugins.common.extras import EXTRAS, extra_of
from fairseq_plugins.common.pictures import MOST_BYTES

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "fairseq": "fairseq-fixed",
    "fairseq-cli": "fairseq-fixed",
    "hydra": "hydra-core",
    "hydra-plugins": "hydra-submitit-launcher",
    "markdown-it": "markdown-it-py",
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
LEFT_OUT = {"torchaudio", "mock", "huggingface-hub"}  # requirements.txt says why


def pins(name):
    """{canonical name: version} of a requirements file, as far as it is for this Python.

    Every line must be an exact version.
    """
    found = {}
    for line in (ROOT / name).read_text().splitlines():
        words, _, marker = line.partition("#")[0].partition(";")
        words = words.strip()
        if words and (not marker or Marker(marker.strip()).evaluate()):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][0-9a-z.]*)", words)
            assert match, f"{name}: {words!r} is not an exact version"
            assert canonicalize_name(match[1]) not in found, f"{name}: {match[1]} stands twice"
            found[canonicalize_name(match[1])] = match[2]
    return found


RUNTIME, TOOLS = pins("requirements.txt"), pins("requirements-dev.txt")
APART = {"triton", "wandb"}  # not installed with the others
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS_ASKED = PROJECT["optional-dependencies"]
EXTRAS_OF_USERS = [name for name in EXTRAS_ASKED if name != "dev"]


@pytest.mark.parametrize(
    "text",
    [
        *PROJECT["dependencies"],
        *EXTRAS_ASKED["train"],
        *EXTRAS_ASKED["figures"],
        *EXTRAS_ASKED["report"],
        *EXTRAS_ASKED["wordpiece"],
    ],
)
def test_requirements_pin_what_setup_asks_for(text):
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return
    assert wanted.specifier.contains(RUNTIME[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", EXTRAS_ASKED["dev"])
def test_tools_are_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(TOOLS[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", EXTRAS_ASKED["gpu"])
def test_what_gpus_need_is_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(TOOLS[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", EXTRAS_ASKED["hub"])
def test_what_models_of_hugging_face_need_is_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(TOOLS[canonicalize_name(wanted.name)])


def test_metadata_and_citation_name_every_paper():
    text = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    urls = list(PROJECT["urls"].values())
    assert len(urls) == 5
    assert [url for url in urls if url not in text] == []
    assert all(len(label) <= 32 for label in PROJECT["urls"])  # what indexes accept
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert [one["url"] for one in cited] == urls
    for one in cited:
        assert one["authors"][0]["family-names"] in text
        assert f"{one['year']}]({one['url']})" in text


def test_classifiers_name_the_pythons_that_are_asked_for():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    least = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert minors == list(range(least, least + len(minors)))
    assert len(set(PROJECT["classifiers"])) == len(PROJECT["classifiers"])


def test_badges_say_what_pyproject_says(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    drawn = importlib.import_module("badges").badges()
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "badges").iterdir()}
    assert kept == drawn, "`python docs/badges.py` writes them"
    assert f">{PROJECT['version']}</text>" in kept["version.svg"]
    assert all(f"docs/badges/{name}" in (ROOT / "README.md").read_text() for name in kept)


def test_no_version_stands_in_two_files():
    assert not RUNTIME.keys() & TOOLS.keys()


@pytest.mark.parametrize("name", ["requirements", "requirements-dev"])
def test_every_version_but_torch_has_hashes(name):
    """`make lock` writes them after a change; torch's differ by its build."""
    exact = re.compile(r"[A-Za-z0-9._-]+==[^\s;#]+")
    wanted = exact.findall((ROOT / f"{name}.txt").read_text(encoding="utf-8"))
    locked = (ROOT / f"{name}.lock").read_text(encoding="utf-8").splitlines()
    found = [exact.match(line)[0] for line in locked]
    plain = str.maketrans("_.", "--")
    assert sorted(one.lower().translate(plain) for one in found) == sorted(
        one.lower().translate(plain) for one in wanted if not one.startswith("torch==")
    )
    for line in locked:
        assert re.search(r"( --hash=sha256:[0-9a-f]{64})+$", line), line[:60]


@pytest.mark.parametrize("name", sorted((RUNTIME | TOOLS).keys() - APART))
def test_pins_are_complete(name):
    """They are installed with --no-deps, so each must find what it needs among the pins."""
    installed = {one.version for one in metadata.distributions(name=name)}
    if not any(version.startswith((RUNTIME | TOOLS)[name]) for version in installed):
        pytest.skip(f"{name} is installed as {installed or 'nothing'}, not as pinned")
    allowed = RUNTIME if name in RUNTIME else RUNTIME | TOOLS
    for text in metadata.requires(name) or []:
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        other = canonicalize_name(needed.name)
        if name == "torch" and other not in allowed:
            continue  # installed with its dependencies: a CUDA build has more of them
        if other not in LEFT_OUT:
            assert other in allowed, f"{name} needs {text}"
            assert needed.specifier.contains(allowed[other]), f"{name} needs {text}"


def test_every_import_is_declared():
    declared = [
        Requirement(text)
        for text in [
            *PROJECT["dependencies"],
            *(text for extra in EXTRAS_OF_USERS for text in EXTRAS_ASKED[extra]),
        ]
    ]
    known = {canonicalize_name(requirement.name) for requirement in declared}
    for path in (ROOT / "fairseq_plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            for module in modules:
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names and top != "fairseq_plugins":
                    name = canonicalize_name(top)
                    assert DISTRIBUTIONS.get(name, name) in known, f"{path.name} imports {module}"


def test_what_is_said_of_a_missing_module_names_the_extra_that_brings_it():
    by_extra = {
        extra: {
            canonicalize_name(DISTRIBUTIONS.get(canonicalize_name(module), module))
            for module in modules
        }
        for extra, (_, modules) in EXTRAS.items()
    }
    asked = {
        extra: {canonicalize_name(Requirement(text).name) for text in EXTRAS_ASKED[extra]}
        for extra in EXTRAS_OF_USERS
    }
    assert by_extra == asked
    assert extra_of("fairseq.models") == "train" and extra_of("no_such_module") is None


def test_every_package_is_found_by_setup():
    """A folder with modules but without __init__.py would be missing in an installation."""
    folders = {path.parent for path in (ROOT / "fairseq_plugins").rglob("*.py")}
    assert [str(f) for f in folders if not (f / "__init__.py").is_file()] == []


@pytest.mark.parametrize("name", ["encodings", "attention", "kernels", "integrations.huggingface"])
def test_the_alias_has_the_same_objects(name):
    if name.startswith("integrations"):
        pytest.importorskip("transformers", reason="the models are its")
    own = importlib.import_module(f"fairseq_plugins.{name}")
    alias = importlib.import_module(f"fairseq_position_encodings.{name}")
    assert alias.__all__ == own.__all__
    assert all(getattr(alias, one) is getattr(own, one) for one in own.__all__)


def test_workflows_call_targets_of_the_makefile():
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            targets = job.get("strategy", {}).get("matrix", {}).get("target", [])
            commands = [step.get("run", "") for step in job["steps"]]
            for command in (one for one in commands if one.startswith("make ")):
                called |= {*targets} if "matrix.target" in command else {*command.split()[1:]}
    makefile = (ROOT / "Makefile").read_text()
    assert {"lint", "test", "test-slow", "release-models"} <= called
    assert not {one for one in called if not re.search(rf"^{one}:", makefile, re.MULTILINE)}


def test_workflows_test_and_install_on_each_python():
    pythons = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    folder = ROOT / ".github" / "workflows"
    tests, nightly = (
        yaml.safe_load((folder / f"{name}.yml").read_text())["jobs"][name]["strategy"]["matrix"]
        for name in ("tests", "nightly")
    )
    assert tests["python"] == pythons
    installed = [one["python"] for one in nightly["include"] if one["target"] == "release-check"]
    assert "release-check" in nightly["target"]
    assert sorted([*nightly["python"], *installed]) == pythons


def test_continuous_integration_runs_the_tests():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    assert {"make setup", "make test || status=$?"} <= {*script.read_text().splitlines()}


@pytest.mark.parametrize(
    "target",
    [
        "quickstart",
        "test",
        "test-slow",
        "test-triton",
        "test-hub",
        "release-check",
        "test-gpu",
        "test-slurm",
        "test-slurm-quick",
        "lint",
    ],
)
def test_make_help_names_the_target(target):
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"make {target} " in done.stdout


def test_make_refuses_an_old_python(tmp_path):
    """Before anything is made: the stand-in answers as Python 3.10 would."""
    old = tmp_path / "python3.10"
    old.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 10, 0)\n$2"\n'
    )
    old.chmod(0o755)
    for name in (
        "Makefile",
        "setup.py",
        "pyproject.toml",
        *(path.name for path in ROOT.glob("requirements*.txt")),
    ):
        (tmp_path / name).write_text((ROOT / name).read_text())
    command = ["make", "setup", f"PYTHON={old}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Python >= 3.11 is needed" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_clean_keeps_what_took_time(tmp_path):
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    ignored = (ROOT / ".gitignore").read_text().partition("\n\n")[0]
    kept = [
        *re.findall(r"^/(\w+)/", ignored, re.MULTILINE),
        *("outputs/gpu_campaign", "multirun/2026-01-01/.submitit", "results/local"),
    ]
    for name in (*kept, "build", "fairseq_plugins/__pycache__", "benchmarks", "tests"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, check=True)
    assert not (tmp_path / "build").exists()
    assert not (tmp_path / "fairseq_plugins" / "__pycache__").exists()
    for name in kept:
        assert (tmp_path / name / "file").exists(), name


def test_the_page_on_installing_compiles_fairseq_as_the_release_check_does():
    makefile = (ROOT / "Makefile").read_text().partition("\nrelease-check:")[2]
    text = (ROOT / "docs" / "install.md").read_text().partition("`train` compiles fairseq.")[2]
    bounds = re.findall(r'"(\w+<[\d.]+)"', text)
    assert bounds == ["setuptools<81", "cython<3.1", "numpy<2"]
    assert all(f'"{bound}' in makefile for bound in bounds)
    command = "install --no-build-isolation fairseq-fixed"
    assert command in text and command.replace("install", "install -q") in makefile


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an archive has no index")
def test_git_ignores_what_commands_write_without_output():
    """Files that git shows would mark all later results as made from a changed commit."""
    for output in (analysis_options.PICTURES, pack.OUTPUT, rehearse.OUTPUT, report.OUTPUT):
        command = ["git", "check-ignore", "-q", str(output / "file")]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0, output


def test_triton_is_imported_by_its_own_modules_only():
    """It is optional: nothing may import it before the backend is chosen."""
    ours = "fairseq_plugins.kernels.triton_kernels"
    script = f"import sys, fairseq_plugins.kernels; sys.exit({ours!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


def test_the_page_on_installing_has_every_extra():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(EXTRAS_OF_USERS)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an archive has no index")
def test_no_file_is_larger_than_the_hook_allows():
    """The hook has no exceptions, and figures are saved within its limit."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (hook,) = [one for one in local["hooks"] if one["id"] == "large-files"]
    (limit,) = re.findall(r"--enforce-all --maxkb=(\d+)$", hook["entry"])
    most = 1024 * int(limit)
    assert "exclude" not in hook and "files" not in hook and most == MOST_BYTES
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    sizes = {name: (ROOT / name).lstat().st_size for name in listed.stdout.split("\0")[:-1]}
    assert {name: size for name, size in sizes.items() if size > most} == {}


def test_no_file_is_longer_than_350_lines():
    """Except for the kernels of Triton, which share functions of the device."""
    files = (ROOT / "fairseq_plugins").rglob("*.py")
    lengths = {path.name: len(path.read_text().splitlines()) for path in files}
    longer = {name for name, lines in lengths.items() if lines > 350}
    assert longer == {"triton_kernels.py"}
