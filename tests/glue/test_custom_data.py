"""Labelled data of one's own: what is read, and what is refused by its line."""

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.glue.custom import read_task

GOOD = "label\tsentence\n" + "yes\ta cat\nno\ta dog\n" * 3
PAIRS = "id\tsentence1\tsentence2\tlabel\n" + "1\ta\tb\t0.5\n2\tb\tc\t-3\n"


def write(folder, text, name="own.tsv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_classes_and_numbers_are_told_by_the_labels(tmp_path):
    task = read_task(write(tmp_path, GOOD))
    assert task.labels.classes == ("no", "yes") and task.inputs == 1
    pairs = read_task(write(tmp_path, PAIRS))
    assert pairs.labels.is_number and pairs.inputs == 2
    assert (pairs.labels.lowest, pairs.labels.highest) == (-3, 0.5)
    whole = write(tmp_path, GOOD.replace("yes", "1").replace("no", "2"))
    assert read_task(whole).labels.classes == ("1", "2")
    assert read_task(whole, kind="number").labels.is_number


@pytest.mark.parametrize("numbers", [(1990, 2000, 2020), (-3, 0.5), (7, 7), (1e9, 1e9 + 3)])
def test_numbers_fill_0_to_1_in_training_and_come_back(tmp_path, numbers):
    """Far from 0 their differences would be lost in six digits, and a model would not see them."""
    lines = "".join(f"{number}\ta\n" for number in numbers)
    labels = read_task(write(tmp_path, f"label\tsentence\n{lines}"), kind="number").labels
    scaled = [labels.scale(number) for number in numbers]
    assert min(scaled) == 0 and max(scaled) == (len({*numbers}) > 1)
    assert [labels.unscale(value) for value in scaled] == list(numbers)


@pytest.mark.parametrize("end", ["\n", "\n\n", "\r\n\r\n"])
def test_empty_lines_at_the_end_are_no_examples(tmp_path, end):
    assert read_task(write(tmp_path, GOOD + end)).labels.classes == ("no", "yes")
    with pytest.raises(DataError, match=r"line 8: must have 2 tab-separated fields, but has 1"):
        read_task(write(tmp_path, f"{GOOD}{end}no\ta bird\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text\tlabel\na\t1\n", "line 1: the header must have the columns"),
        ("label\tlabel\tsentence\na\tb\tc\n", "once each, but has label, label, sentence"),
        ("label\tsentence1\tsentence2\tsentence\n", "but has label, sentence1, sentence2, sent"),
        ("", "with tabs between them, but has none"),
        (GOOD + "yes\n", "line 8: must have 2 tab-separated fields"),
        (GOOD + "yes\t \n", "line 8: a sentence must not be empty"),
        (GOOD + "\ta cat\n", "line 8: the label must be one word"),
        (GOOD + "very good\ta cat\n", "line 8: the label must be one word"),
        (GOOD + "<unk>\ta cat\n", "line 8: the label must be none of fairseq's symbols"),
        (GOOD + "perhaps\ta cat\n", "line 8: the class 'perhaps' must have at least 2"),
        (GOOD.encode() + b"yes\t\xff\n", "line 8: is not UTF-8"),
        ("label\tsentence\n1\ta\n2\tb\n", "only one; --labels number if labels are amounts"),
        ("label\tsentence\n1.5\ta\nnan\tb\nnan\tc\n", "line 3: the label must be a number, but is"),
        ("label\tsentence\n", "holds no examples"),
        ("label\tsentence\nx\ta\nx\tb\n", "two classes or more"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, text, message):
    with pytest.raises(DataError, match=r"own\.tsv") as refused:
        read_task(write(tmp_path, text))
    assert message in str(refused.value)


def test_quotation_marks_of_a_spreadsheet_are_told(tmp_path, capsys):
    read_task(write(tmp_path, GOOD.replace("a cat", '"a" "cat"').replace("a dog", '"a dog"')))
    assert capsys.readouterr().out == ""
    read_task(write(tmp_path, GOOD.replace("a cat", '"a ""fat"" cat"')))
    assert "own.tsv: 3 examples have quotation marks that" in capsys.readouterr().out


def test_a_file_without_line_feeds_is_not_printed_in_full(tmp_path):
    with pytest.raises(DataError, match=r"but has label, sentence\ryes, a") as refused:
        read_task(write(tmp_path, GOOD.replace("\n", "\r") * 99))
    assert len(str(refused.value)) < len(str(tmp_path)) + 400


def test_numbers_other_files_and_new_classes_are_checked(tmp_path):
    with pytest.raises(DataError, match=r"own.tsv, line 2: the label must be a number"):
        read_task(write(tmp_path, GOOD), kind="number")
    other = write(tmp_path, "label\tsentence\nmaybe\ta\nno\tb\n", "valid.tsv")
    with pytest.raises(DataError, match=r"valid.tsv, line 2: the label must be one of no, yes"):
        read_task(write(tmp_path, GOOD), other)
    single = write(tmp_path, "label\tsentence\nno\ta\n", "valid.tsv")
    with pytest.raises(DataError, match=r"valid.tsv must have at least 2 examples, but has 1"):
        read_task(write(tmp_path, GOOD), single)
    unlabelled = write(tmp_path, "sentence1\na\n", "new.tsv")
    with pytest.raises(DataError, match=r"new.tsv, line 1: must have a column 'sentence'"):
        read_task(write(tmp_path, GOOD), None, unlabelled)
