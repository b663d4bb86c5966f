"""The tiny corpus in all its forms."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from fairseq_plugins.data import binarise as data_binarise
from fairseq_plugins.data.published import PublishedCorpus
from tests.data.tiny import FILES, TEXT, facts


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder with the three plain files."""
    folder = tmp_path / "raw text"
    folder.mkdir()
    for split, text in TEXT.items():
        (folder / f"wiki.{split}.tokens").write_bytes(text.encode())
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The same in a zip, among members that nobody asked for."""
    path = tmp_path / "archive" / "tiny-v1.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("../escaped.txt", "no")
        out.writestr("/tmp/absolute-escaped.txt", "no")
        out.writestr("tiny/README", "no")
        for split, text in TEXT.items():
            out.writestr(f"tiny/wiki.{split}.tokens", text)
    return path


@pytest.fixture
def corpus(archive: Path) -> PublishedCorpus:
    return PublishedCorpus(
        name="tiny",
        url="https://example.invalid/tiny-v1.zip",
        zip_md5=hashlib.md5(archive.read_bytes()).hexdigest(),
        dictionary_size=16,  # 7 types, one of them <unk>, + 4 specials + 6 of padding
        files={split: facts(text) for split, text in TEXT.items()},
    )


@pytest.fixture
def binarised(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """In place of fairseq-preprocess, which takes seconds to start; the list counts the calls."""
    calls: list[str | None] = []

    def preprocess(work, arguments, workers):
        calls.append(arguments[arguments.index("--trainpref") + 1])
        folder = work / arguments[arguments.index("--destdir") + 1]
        folder.mkdir()
        words = "".join(f"{word} 1\n" for word in ("the", "sat", "on", "cat", "mat", "dog"))
        padding = "".join(f"madeupword{i:04d} 0\n" for i in range(6))
        (folder / "dict.txt").write_text(words + padding)
        for name in FILES[1:]:
            (folder / name).touch()
        return ["python", "-m", "fairseq_cli.preprocess"]

    monkeypatch.setattr(data_binarise, "preprocess", preprocess)
    return calls
