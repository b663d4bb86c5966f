"""GLUE's files: what is read, and what is refused with file and line."""

import lzma
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import find_packed
from fairseq_plugins.glue.read import Example, read_split
from fairseq_plugins.glue.tasks import GLUE, TASKS, find_task, find_tasks


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes((end.join(lines) + end).encode())
    return path


def read(path: Path, task: str, split: str = "train"):
    return read_split(path, TASKS[task], TASKS[task].split(split))


def test_cola_names_no_columns_but_its_test_file_does(tmp_path):
    train = write(tmp_path / "train.tsv", "gj04\t1\t\tFine.", "gj04\t0\t*\tNot fine.")
    assert read(train, "CoLA").examples == (
        Example(("Fine.",), "1"),
        Example(("Not fine.",), "0"),
    )
    test = write(tmp_path / "test.tsv", "index\tsentence", "0\tFine.")
    assert read(test, "CoLA", "test").examples == (Example(("Fine.",), None),)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotation_marks_byte_order_mark_and_odd_separators_are_text(tmp_path, end):
    """A quote opens nothing, and only newlines end a line."""
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    path = write(tmp_path / "train.tsv", header, '1\t1\t2\t" A\u2028 b\tA\x0bb "', end=end)
    assert read(path, "MRPC").examples == (Example(('" A\u2028 b', 'A\x0bb "'), "1"),)


def test_xz_is_read_as_the_plain_file(tmp_path):
    plain = write(tmp_path / "dev.tsv", "sentence\tlabel", "good film\t1")
    content = plain.read_bytes()
    expected = read(plain, "SST-2", "valid")
    plain.unlink()
    (tmp_path / "dev.tsv.xz").write_bytes(lzma.compress(content))
    found = find_packed(tmp_path, TASKS["SST-2"].split("valid").file)
    assert found is not None and read(found, "SST-2", "valid") == expected


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"


@pytest.mark.parametrize(
    ("task", "lines", "message"),
    [
        ("SST-2", ["sentence\tlable", "a\t1"], "line 1: must have a column 'label'"),
        ("RTE", ["index\tsentence1\tlabel", "0\ta\tb"], "line 1: .* 'sentence2'"),
        ("SST-2", ["sentence\tlabel", "a\t1", "b"], "line 3: must have 2 .* has 1"),
        ("CoLA", ["gj04\t1\t\ta", "gj04\t1\ta"], "line 2: must have 4 .* has 3"),
        ("SST-2", ["sentence\tlabel", "a\t2"], "line 2: the label must be one of 0, 1, .*'2'"),
        (
            "RTE",
            ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tneutral"],
            "line 2: the label must be one of entailment, not_entailment",
        ),
        ("STS-B", [STSB, "\t".join("0abcdefgh") + "\t5.1"], "line 2: .* from 0 to 5, but is '5.1'"),
        ("STS-B", [STSB, "\t".join("0abcdefgh") + "\tnan"], "line 2: .* from 0 to 5"),
        ("STS-B", [STSB, "\t".join("0abcdefgh") + "\tmuch"], "line 2: .* from 0 to 5"),
        ("SST-2", ["sentence\tlabel"], "holds no examples"),
    ],
)
def test_wrong_files_are_refused_with_file_and_line(tmp_path, task, lines, message):
    path = write(tmp_path / "train.tsv", *lines)
    with pytest.raises(DataError, match=message) as error:
        read(path, task)
    assert str(path) in str(error.value)


def test_a_truncated_archive_and_other_bytes_are_refused(tmp_path):
    packed = lzma.compress(b"sentence\tlabel\n" + b"good film\t1\n" * 50)
    path = tmp_path / "train.tsv.xz"
    path.write_bytes(packed[:-20])
    with pytest.raises(DataError, match="damaged"):
        read(path, "SST-2")
    path = tmp_path / "train.tsv"
    path.write_bytes(b"sentence\tlabel\ngood\t1\nb\xff\t1\n")
    with pytest.raises(DataError, match="line 3: is not UTF-8"):
        read(path, "SST-2")


def test_only_qqp_drops_malformed_lines_as_fairseq_does(tmp_path):
    path = write(tmp_path / "train.tsv", QQP, "0\t1\t2\ta\tb\t1", "broken", "3\t4\t5\tc\td\t0")
    found = read(path, "QQP")
    assert (len(found.examples), found.dropped) == (2, 1)
    assert [task.name for task in GLUE if task.drops_malformed] == ["QQP"]


def test_unknown_tasks_and_splits_are_named():
    with pytest.raises(OptionError, match=r"^--task must be .* Did you mean 'MNLI'"):
        find_task("mnlli")
    with pytest.raises(OptionError, match=r"^--tasks must be one of CoLA, .*, but is ''"):
        find_tasks(["CoLA", ""])
    with pytest.raises(OptionError, match="must be one of train, valid, test in CoLA"):
        TASKS["CoLA"].split("valid1")
