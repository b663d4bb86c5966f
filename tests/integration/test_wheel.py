"""The wheel in an environment and a folder of its own: whole, and nothing of the checkout in it."""

import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fairseq_plugins.common.provenance import sources
from tests.integration.wheels import build_wheel
from tests.test_packaging import PROJECT

ROOT = Path(__file__).resolve().parents[2]
OURS = (
    "__editable__",
    "fairseq_position_encodings",
    "fairseq_plugins",
    "__pycache__",
    "_virtualenv",
)
ROW = ("--scale", "toy", "--rows", "rope", "--attention", "linear", "--updates", "2", "--name", "x")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with links to the packages that are installed here, and the wheel.

    fairseq itself is a copy, since it looks for a --user-dir beside itself.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (present,) = {Path(p) for p in sys.path if p.endswith("site-packages") and Path(p).is_dir()}
    for path in present.iterdir():
        if path.name == "fairseq":
            shutil.copytree(path, site / path.name)
        elif not path.name.startswith(OURS) and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    python = folder / "bin" / "python"
    words = ["--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=200)
    for command, module in (("train", "train"), ("hydra-train", "hydra_train")):
        script = folder / "bin" / f"fairseq-{command}"
        script.write_text(f"#!{python}\nfrom fairseq_cli.{module} import cli_main\ncli_main()\n")
        script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("working folder")


@pytest.fixture(scope="module")
def run(installed: Path, empty: Path) -> Command:
    """A command of the environment in the empty folder, which must end as is expected."""

    def command(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words,
            cwd=empty,
            env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return command


@pytest.fixture(scope="module")
def toy(run: Command, empty: Path) -> Path:
    counts = [
        word
        for split, count in (("train", 800), ("valid", 80), ("test", 80))
        for word in (f"--{split}-sentences", str(count))
    ]
    run("fairseq-pe", "prepare", "toy", "--workers", "1", *counts)
    return empty / "data" / "toy"


def folders(run: Command) -> Sequence[Path]:
    return [Path(run("fairseq-pe", "path", *more).stdout.strip()) for more in ((), ("--configs",))]


@pytest.mark.slow
def test_paths_are_those_of_the_installation(run: Command, installed: Path) -> None:
    package, configs = folders(run)
    assert package.is_relative_to(installed) and package.name == "fairseq_plugins"
    assert configs.is_relative_to(installed)
    assert sorted(p.relative_to(configs) for p in configs.rglob("*.yaml")) == sorted(
        p.relative_to(ROOT / "configs") for p in (ROOT / "configs").rglob("*.yaml")
    )


def test_the_metadata_is_complete(wheel: Path, installed: Path) -> None:
    (about,) = installed.glob("lib/python3*/site-packages/fairseq_position_encodings-*.dist-info")
    text = (about / "METADATA").read_text()
    holder = (ROOT / "LICENSE").read_text().split("2026 ", 1)[1].splitlines()[0]
    assert f"Author: {holder}" in text
    for label, url in PROJECT["urls"].items():
        assert f"Project-URL: {label}, {url}\n" in text
    for classifier in PROJECT["classifiers"]:
        assert f"Classifier: {classifier}\n" in text
    assert (about / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (ROOT / "README.md").read_text().splitlines()[0] in text
    needed = [line for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert [line.split()[1] for line in needed if "extra ==" not in line] == [
        "torch>=2.8",
        "tabulate>=0.9",
    ]


def test_the_remedy_for_what_lacks_is_the_wheel_itself(run: Command, wheel: Path) -> None:
    code = (
        "from fairseq_plugins.common.extras import install_command; print(install_command('hub'))"
    )
    assert run("python", "-c", code).stdout == f"pip install '{wheel}[hub]'\n"


@pytest.mark.slow
def test_a_row_of_a_table_in_an_empty_folder(run: Command, toy: Path, empty: Path) -> None:
    """The result says which sources made it, as a checkout's would, and its loss is a curve."""
    assert toy.is_dir()
    more = ("--set", "common.log_interval=1", "--log", "tensorboard")
    run("fairseq-pe", "table", "table2", *ROW, *more)
    result = json.loads((empty / "results" / "table2" / "x" / "rope-linear-s1.json").read_text())
    assert result["commit"].startswith("release ")
    assert result["sources"] == sources(ROOT)
    changed = ["common.log_interval=1", "optimization.max_update=2"]
    assert result["study"]["overrides"] == changed
    assert str(empty) not in json.dumps(result)
    page = (empty / "results" / "table2" / "x.md").read_text()
    assert "optimization.max_update: 250 -> 2" in page
    made = {"data", "checkpoints", "results", "outputs"}
    assert {path.name for path in empty.iterdir()} == made
    (events,) = empty.glob("outputs/tensorboard/table2/x/rope-linear-s1/train_inner/events.*")
    curve = list(scalars(events, "loss"))
    assert [step for step, _ in curve] == [1, 2]
    assert all(0 < loss < 20 for _, loss in curve)


def scalars(events: Path, tag: str) -> Iterator[tuple[int, float]]:
    """Updates and values in a file of TensorBoard: records of a length, its sum, data, its sum."""
    from tensorboardX.proto.event_pb2 import Event

    left = events.read_bytes()
    while left:
        (size,) = struct.unpack("<Q", left[:8])
        event = Event.FromString(left[12 : 12 + size])
        yield from (
            (event.step, value.simple_value) for value in event.summary.value if value.tag == tag
        )
        left = left[16 + size :]


@pytest.mark.slow
def test_places_are_where_options_and_the_environment_say(
    run: Command, toy: Path, tmp_path: Path
) -> None:
    data = tmp_path / "own data"
    data.mkdir()
    (data / "toy").symlink_to(toy)
    places = ["--data-root", str(data), "--results", str(tmp_path / "r s")]
    said = run(
        *("fairseq-pe", *places, "table", "table2", *ROW, "--checkpoints", str(tmp_path / "c")),
        "--dry-run",
    ).stdout
    assert f"checkpoint.save_dir={tmp_path}/c/table2/x/rope-linear-s1" in said
    words = [word for line in said.splitlines() for word in shlex.split(line, comments=True)]
    toy_again = data / "toy"
    assert f"task.data='{toy_again}'" in words


@pytest.mark.slow
def test_what_lacks_is_said_in_a_line_with_the_command_of_an_installation(run: Command) -> None:
    words = ["table", "table4", "--scale", "toy", "--rows", "rope"]
    error = run("fairseq-pe", *words, status=2).stderr.splitlines()[-1]
    assert "fairseq-pe prepare toy mt makes it" in error


def test_what_only_a_checkout_can_do_is_said(run: Command) -> None:
    (line,) = run("fairseq-pe", "table", "table9", status=2).stderr.splitlines()
    assert "table9 must be made in a checkout" in line


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fairseq-train", "fairseq-hydra-train"])
def test_fairseqs_own_commands_find_the_package(
    run: Command, toy: Path, tmp_path: Path, command: str
) -> None:
    package, configs = folders(run)
    if command == "fairseq-train":
        words = [str(toy), "--user-dir", str(package), "--task", "language_modeling"]
        words += ["--arch", "pe_transformer_lm", "--attention-type", "linear", "--cpu"]
        words += ["--position-encoding", "lrpe_type2", "--tokens-per-sample", "16"]
        words += ["--decoder-layers", "1", "--decoder-embed-dim", "16", "--batch-size", "4"]
        words += ["--decoder-attention-heads", "2", "--decoder-ffn-embed-dim", "16"]
        words += ["--optimizer", "adam", "--lr", "0.001", "--max-update", "2"]
        words += ["--save-dir", str(tmp_path)]
    else:
        words = ["--config-dir", str(configs), "--config-name", "wikitext103_lm", "scale=toy"]
        words += ["model=lrpe_type2", "optimization.max_update=2"]
        words += [f"checkpoint.save_dir={tmp_path}"]
    run(command, *words)
    assert (tmp_path / "checkpoint_last.pt").is_file()


@pytest.mark.slow
def test_a_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "fairseq_plugins", source / "fairseq_plugins")
    shutil.copytree(ROOT / "configs", source / "configs")
    shutil.copytree(ROOT / "fairseq_position_encodings", source / "fairseq_position_encodings")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    words = ["setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run([sys.executable, *words], cwd=source, check=True, timeout=200)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        f"configs/{p.relative_to(ROOT / 'configs')}" for p in ROOT.glob("configs/**/*.yaml")
    } <= names


CORE = """
import sys
sys.modules.update(dict.fromkeys(BARRED))
import torch
import fairseq_plugins.attention as attention
from fairseq_plugins.encodings import ENCODINGS, build_encoding
for name in ("rope", "lrpe_type2", "t5"):
    build_encoding(name, num_heads=2, head_dim=8, causal=True)
print(len(ENCODINGS))
"""


def test_encodings_and_attention_need_torch_alone(run: Command) -> None:
    """Whatever the extras bring is barred, numpy among it."""
    from fairseq_plugins.common.extras import EXTRAS

    barred = {m for _, modules in EXTRAS.values() for m in modules} - {"filelock"}  # torch's own
    done = run("python", "-c", f"BARRED = {barred | {'tabulate'}!r}\n{CORE}")
    assert int(done.stdout) > 50
