"""Encodings in files outside the package, which FAIRSEQ_PLUGINS_ENCODINGS names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins import encodings
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.own_encodings import VARIABLE, own_encodings
from fairseq_plugins.common.provenance import command_line, sources
from fairseq_plugins.common.root import ROOT

FADE = '''
from fairseq_plugins.encodings.base import PositionEncoding, relative_positions
from fairseq_plugins.encodings.registry import register_encoding


@register_encoding("fade", summary="a bias of one per token", source="own", formula="t - s")
class Fade(PositionEncoding):
    """A bias."""

    def attn_bias(self, q_positions, k_positions):
        return relative_positions(q_positions, k_positions).unsqueeze(1).float()
'''


@pytest.fixture
def fade(tmp_path: Path) -> Path:
    path = tmp_path / "fade.py"
    path.write_text(FADE)
    return path


def test_a_file_outside_is_as_one_of_the_package(fade: Path) -> None:
    script = """
import pickle
from fairseq_plugins.common.provenance import sources
from fairseq_plugins.common.root import ROOT
from fairseq_plugins.encodings import build_encoding

built = build_encoding("fade", num_heads=2, head_dim=4)
print(type(pickle.loads(pickle.dumps(built))).__module__, sources(ROOT))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {VARIABLE: str(fade)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    module, digest = done.stdout.split()
    assert module == "fairseq_plugins.encodings.fade"
    assert digest != sources(ROOT), "results say that other code made them"


def test_a_relative_path_is_that_of_the_first_process(
    fade: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a table run in the root, wherever the table was started."""
    monkeypatch.chdir(fade.parent)
    monkeypatch.setenv(VARIABLE, fade.name)
    assert own_encodings() == {"fade": fade}
    monkeypatch.chdir(tmp_path.parent)
    assert own_encodings() == {"fade": fade}


def test_recorded_commands_name_the_files_that_they_need(
    fade: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["fairseq-eval-lm", "data/toy", f"--path={fade.parent / 'best.pt'}"]
    monkeypatch.delenv(VARIABLE, raising=False)
    assert command_line(command) == "fairseq-eval-lm data/toy --path=best.pt"
    monkeypatch.setenv(VARIABLE, str(fade))
    assert command_line(command) == f"{VARIABLE}=fade.py fairseq-eval-lm data/toy --path=best.pt"


def test_what_is_no_file_of_its_own_name_is_refused(
    fade: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "again" / "fade.py"
    again.parent.mkdir()
    again.write_text(FADE)
    for words, message in (
        ((tmp_path / "absent.py",), r"must name Python files.* names .*absent\.py"),
        ((tmp_path,), "must name Python files"),
        ((fade, again), r"must name fade\.py once"),
    ):
        monkeypatch.setenv(VARIABLE, os.pathsep.join(map(str, words)))
        with pytest.raises(OptionError, match=message):
            own_encodings()
    monkeypatch.setenv(VARIABLE, os.pathsep.join(map(str, (fade, fade))))
    assert own_encodings() == {"fade": fade}
    with pytest.raises(ValueError, match=r"must have another name.*encodings\.rotary"):
        encodings._import_file("fairseq_plugins.encodings.rotary", fade)


def test_every_command_names_a_file_that_is_none(tmp_path: Path) -> None:
    absent = tmp_path / "absent.py"
    for words in (["encodings", "rope"], ["analyse", "picture", "rope"]):
        done = subprocess.run(
            [sys.executable, "-m", "fairseq_plugins", *words],
            env=os.environ | {VARIABLE: str(absent)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert f"must name Python files, with ':' between them, but names {absent}" in line


def test_a_file_that_fails_can_be_mended_and_imported(tmp_path: Path) -> None:
    path, name = tmp_path / "mended.py", f"{encodings.__name__}.mended"
    path.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        encodings._import_file(name, path)
    path.write_text("answer = 42")
    encodings._import_file(name, path)
    assert sys.modules.pop(name).answer == 42
