"""setup.py, the pinned requirements, the imports and the Makefile agree with each other."""

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fairseq_plugins.common.extras import EXTRAS, extra_of

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "fairseq": "fairseq-fixed",
    "fairseq-cli": "fairseq-fixed",
    "hydra": "hydra-core",
    "hydra-plugins": "hydra-submitit-launcher",
    "markdown-it": "markdown-it-py",
    "pil": "pillow",
    "sklearn": "scikit-learn",
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
GPU, WANDB = pins("requirements-gpu.txt"), pins("requirements-wandb.txt")


def setup_arguments():
    """The literal keywords of the call of setup() in setup.py, without running it."""
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup":
            return {
                keyword.arg: ast.literal_eval(keyword.value)
                for keyword in node.keywords
                if keyword.arg not in ("packages", "long_description")
            }
    raise AssertionError("setup.py calls no setup()")


SETUP = setup_arguments()


EXTRAS_OF_USERS = [name for name in SETUP["extras_require"] if name != "dev"]


@pytest.mark.parametrize(
    "text",
    [
        *SETUP["install_requires"],
        *SETUP["extras_require"]["train"],
        *SETUP["extras_require"]["figures"],
        *SETUP["extras_require"]["report"],
        *SETUP["extras_require"]["wordpiece"],
    ],
)
def test_requirements_pin_what_setup_asks_for(text):
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return
    assert wanted.specifier.contains(RUNTIME[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", SETUP["extras_require"]["dev"])
def test_tools_are_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(TOOLS[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", SETUP["extras_require"]["gpu"])
def test_what_gpus_need_is_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(GPU[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("text", SETUP["extras_require"]["hub"])
def test_what_models_of_hugging_face_need_is_pinned(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(TOOLS[canonicalize_name(wanted.name)])


def test_metadata_and_citation_name_every_paper_of_the_readme():
    rows = re.findall(
        r"^\| .* \| (.*?) \| \[[^]]*(\d{4})\]\((https://\S+?)\)",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 5
    urls = [url for *_, url in rows]
    assert list(SETUP["project_urls"].values()) == urls
    assert all(len(label) <= 32 for label in SETUP["project_urls"])  # what indexes accept
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert [one["url"] for one in cited] == urls
    for one, (authors, year, _) in zip(cited, rows, strict=True):
        names = [f"{author['given-names']} {author['family-names']}" for author in one["authors"]]
        assert ", ".join(names) == authors and one["year"] == int(year)


def test_classifiers_name_the_pythons_that_are_asked_for():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in SETUP["classifiers"] if c.startswith(prefix)]
    least = int(SETUP["python_requires"].removeprefix(">=3."))
    assert minors == list(range(least, least + len(minors)))
    assert len(set(SETUP["classifiers"])) == len(SETUP["classifiers"])


def test_no_version_stands_in_two_files():
    files = (RUNTIME, TOOLS, GPU, WANDB)
    assert len(RUNTIME | TOOLS | GPU | WANDB) == sum(map(len, files))


@pytest.mark.parametrize("name", sorted(RUNTIME | TOOLS))
def test_pins_are_complete(name):
    """They are installed with --no-deps, so each must find what it needs among the pins."""
    if not metadata.version(name).startswith((RUNTIME | TOOLS)[name]):
        pytest.skip(f"{name} {metadata.version(name)} is installed, which is not the pinned one")
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
            *SETUP["install_requires"],
            *(text for extra in EXTRAS_OF_USERS for text in SETUP["extras_require"][extra]),
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
        extra: {
            canonicalize_name(Requirement(text).name) for text in SETUP["extras_require"][extra]
        }
        for extra in EXTRAS_OF_USERS
    }
    assert by_extra == asked
    assert extra_of("fairseq.models") == "train" and extra_of("no_such_module") is None


def test_every_package_is_found_by_setup():
    """A folder with modules but without __init__.py would be missing in an installation."""
    folders = {path.parent for path in (ROOT / "fairseq_plugins").rglob("*.py")}
    assert [str(f) for f in folders if not (f / "__init__.py").is_file()] == []


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
    for name in ("Makefile", "setup.py", *(path.name for path in ROOT.glob("requirements*.txt"))):
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


def test_triton_is_imported_by_its_own_modules_only():
    """It is optional: nothing may import it before the backend is chosen."""
    ours = "fairseq_plugins.kernels.triton_kernels"
    script = f"import sys, fairseq_plugins.kernels; sys.exit({ours!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


def test_the_page_on_installing_has_every_extra():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(EXTRAS_OF_USERS)
