"""Zips that are locked, oversized or packed in unknown ways: refused by name, nothing unpacked."""

import struct
import zipfile
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.archives import LARGEST_MEMBER, Zip
from fairseq_plugins.data.published import ExpectedFile, PublishedCorpus, RawSource
from fairseq_plugins.glue import official
from fairseq_plugins.glue.tasks import TASKS

# Where a field of two or four bytes is in the entry of the central directory, and in the file's
# own header.
PLACES = {"flags": (8, 6, "<H"), "method": (10, 8, "<H"), "size": (24, 22, "<I")}
CHANGES = [
    ("flags", 0x1, r"is encrypted; it must be readable without a password"),
    ("method", 97, r"has an unsupported compression"),
    ("size", 4_000_000_000, rf"at most {LARGEST_MEMBER:,} bytes, .* have 4,000,000,000"),
]


def write_zip(path: Path, names: list[str], field: str, value: int) -> Path:
    """A zip of files with one line, and the same field changed in every entry."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "one line\n")
    content = bytearray(path.read_bytes())
    in_directory, in_header, form = PLACES[field]
    for signature, place in ((b"PK\x01\x02", in_directory), (b"PK\x03\x04", in_header)):
        at = content.find(signature)
        while at >= 0:
            struct.pack_into(form, content, at + place, value)
            at = content.find(signature, at + 4)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("field", "value", "message"), CHANGES)
def test_a_member_is_refused_before_it_is_read(field, value, message, tmp_path):
    path = write_zip(tmp_path / "a.zip", ["text"], field, value)
    with pytest.raises(DataError, match=r"text in .*a\.zip .*" + message), Zip(path).open("text"):
        pytest.fail("it was opened")


@pytest.mark.parametrize(("field", "value", "message"), CHANGES)
def test_wikitext(field, value, message, tmp_path):
    names = [f"tiny/wiki.{split}.tokens" for split in ("train", "valid", "test")]
    files = dict.fromkeys(("train", "valid", "test"), ExpectedFile(1))
    corpus = PublishedCorpus("tiny", "https://example.invalid/", None, None, files)
    path = write_zip(tmp_path / corpus.zip_name, names, field, value)
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(DataError, match=r"wiki\.train\.tokens in .*" + message):
        RawSource(path, corpus).unpack(target)
    assert not list(target.iterdir())


@pytest.mark.parametrize(("field", "value", "message"), CHANGES)
def test_glue(field, value, message, tmp_path):
    write_zip(tmp_path / "RTE.zip", ["RTE/train.tsv", "RTE/dev.tsv"], field, value)
    with pytest.raises(DataError, match=rf"RTE\.zip damaged .*RTE/train\.tsv in .*{message}"):
        official.fetch(TASKS["RTE"], tmp_path)
    assert not (tmp_path / "RTE").exists()


def test_no_more_is_unpacked_than_is_declared(tmp_path):
    """A header that lies about the size is no way around the limit."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", b"a" * 100_000)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    struct.pack_into("<I", content, content.index(b"PK\x01\x02") + 24, 10)
    (tmp_path / "a.zip").write_bytes(content)
    with (
        pytest.raises(DataError, match=r"text in .*a\.zip is damaged"),
        Zip(tmp_path / "a.zip").open("text") as stream,
    ):
        assert len(stream.read()) <= 10
