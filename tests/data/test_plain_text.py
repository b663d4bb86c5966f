"""Plain text: which file is which split, and documents held out."""

import gzip
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.plain_text import find_files, read_lines, read_splits

DOCUMENTS = st.lists(st.lists(st.sampled_from(["a", "b c"]), min_size=1), min_size=3, max_size=40)


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name.replace('_', '.')}.txt").write_text(text)
    return folder


def found(folder: Path, **chosen: list[str]) -> dict[str, list[str]]:
    return {s: [path.name for path in paths] for s, paths in find_files(folder, chosen)[0].items()}


def taken(
    files: Mapping[str, Sequence[Path]], held_out: float = 1.0, lines: int | None = None
) -> dict[str, str]:
    splits = read_splits(files, held_out, lines)
    return {split: b"".join(lines).decode() for split, lines in splits.items()}


def test_names_say_the_split(tmp_path: Path) -> None:
    write(tmp_path, novels_train="a", dev="b", SOURCE="c", contest="d")
    assert found(tmp_path) == {"train": ["novels.train.txt"], "valid": ["dev.txt"], "test": []}
    assert find_files(tmp_path, {})[1] == ["SOURCE.txt", "contest.txt"]


def test_folders_of_text_are_told_and_not_read(tmp_path: Path) -> None:
    for name in ("more/deep", "pictures"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path / "more/deep", train="b")
    with pytest.raises(DataError, match=r"is named for train; .*; not read: more/$"):
        find_files(tmp_path, {})
    write(tmp_path, one="a")
    (tmp_path / ".hidden").mkdir()
    write(tmp_path / ".hidden", train="c")
    assert find_files(tmp_path, {})[1] == ["more/"]
    chosen = {"train": ["one.txt"], "valid": ["more/deep/train.txt"]}
    assert find_files(tmp_path, chosen)[1] == []


@pytest.mark.parametrize("name", ["val", "validation", "my-validation-2"])
def test_other_names_of_the_validation_set(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{"train": "a", name: "b"})
    assert found(tmp_path)["valid"] == [f"{name}.txt"]


def test_files_of_other_formats_are_told_and_not_read(tmp_path: Path) -> None:
    for name in ("more.TXT", "more.txt.zst", "more.jsonl", "._hidden.txt"):
        (tmp_path / name).write_bytes(b"\xff")
    unread = ["more.TXT", "more.jsonl", "more.txt.zst"]
    with pytest.raises(DataError, match=f"; not read: {', '.join(unread)}$"):
        find_files(tmp_path, {})
    write(tmp_path, one="a")
    assert find_files(tmp_path, {}) == (
        {"train": [tmp_path / "one.txt"], "valid": [], "test": []},
        unread,
    )


def test_without_such_names_all_is_train(tmp_path: Path) -> None:
    write(tmp_path, one="a", two="b")
    assert found(tmp_path) == {"train": ["one.txt", "two.txt"], "valid": [], "test": []}


def test_a_chosen_file_is_of_no_other_split(tmp_path: Path) -> None:
    write(tmp_path, train="a", train_full="b")
    assert found(tmp_path, test=["train.txt"])["train"] == ["train.full.txt"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"train": ["gone.txt"]}, "--train: .* does not hold gone.txt"),
        ({"train": ["a.txt"], "valid": ["a.txt"]}, "a.txt is given twice"),
        ({"valid": ["a.txt"]}, "has no text to train on"),
    ],
)
def test_wrong_choices_are_refused(chosen, message, tmp_path: Path) -> None:
    write(tmp_path, a="a")
    with pytest.raises((DataError, OptionError), match=message):
        find_files(tmp_path, chosen)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--from must be an existing folder"):
        find_files(tmp_path / "nowhere", {})


@given(documents=DOCUMENTS, held_out=st.floats(0.1, 30), with_valid=st.booleans())
def test_every_document_is_in_one_split(
    tmp_path_factory: pytest.TempPathFactory, documents, held_out: float, with_valid: bool
) -> None:
    """Nothing is lost, doubled or moved, and no document is torn."""
    folder = tmp_path_factory.mktemp("text")
    numbered = [[f"{i} {line}" for line in lines] for i, lines in enumerate(documents)]
    text = "\n\n".join("\n".join(lines) for lines in numbered) + "\n"
    train = folder / "train.txt"
    train.write_text(text)
    valid = write(folder, valid="other\n") / "valid.txt"
    files = {"train": [train], "valid": [valid] if with_valid else [], "test": []}
    splits = taken(files, held_out)
    if with_valid:
        assert splits.pop("valid") == "other\n"
    assert "".join(splits.values()) == text
    numbers = [{line.split()[0] for line in part.splitlines() if line} for part in splits.values()]
    assert all(numbers)
    assert sum(map(len, numbers)) == len(documents)


def test_files_are_documents_of_their_own(tmp_path: Path) -> None:
    folder = write(tmp_path, a="1\n2", b="3\n", c="4\n")
    text = taken(find_files(folder, {})[0])
    assert text == {"train": "1\n2\n\n", "valid": "3\n\n", "test": "4\n"}


def test_the_first_lines_of_each_evaluated_document(tmp_path: Path) -> None:
    text = "1\n2\n3\n\n4\n5\n6\n"
    write(tmp_path, train=text, valid=text, test=text)
    kept = taken(find_files(tmp_path, {})[0], lines=2)
    assert kept == {"train": text, "valid": "1\n2\n\n4\n5\n", "test": "1\n2\n\n4\n5\n"}


@pytest.mark.parametrize("blank", ["", "\n", "\n \n"])
def test_empty_lines_before_the_first_document_belong_to_it(tmp_path: Path, blank: str) -> None:
    write(tmp_path, train=f"{blank}1\n\n2\n\n3\n")
    found = taken(find_files(tmp_path, {})[0])
    assert found == {"train": f"{blank}1\n\n", "valid": "2\n\n", "test": "3\n"}
    write(tmp_path, train=f"{blank}1\n2\n\n3\n")  # two documents are too few: by lines
    assert taken(find_files(tmp_path, {})[0])["train"] == f"{blank}1\n"


def test_too_few_documents(tmp_path: Path) -> None:
    files = dict.fromkeys(SPLITS, ()) | {"train": [write(tmp_path, a="1\n\n2\n") / "a.txt"]}
    with pytest.raises(DataError, match="too few lines to hold out 1 for each: 2"):
        read_splits(files)


def test_a_text_without_empty_lines_is_held_out_by_lines(tmp_path: Path) -> None:
    lines = [f"{i}\n" for i in range(200)]
    files = dict.fromkeys(SPLITS, ()) | {"train": [write(tmp_path, a="".join(lines)) / "a.txt"]}
    found = {split: list(some) for split, some in read_splits(files).items()}
    assert {split: len(some) for split, some in found.items()} == {
        "train": 196,
        "valid": 2,
        "test": 2,
    }
    assert b"".join([*found["train"], *found["valid"], *found["test"]]).decode() == "".join(lines)


def test_packed_files_are_read_as_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"1\n"))
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"2\n"))
    write(tmp_path, c="3\n")
    text = taken(find_files(tmp_path, {})[0])
    assert text == {"train": "1\n\n", "valid": "2\n\n", "test": "3\n"}


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1\n\ufeff2\n", encoding="utf-8-sig")
    files = {"train": [tmp_path / "a.txt", tmp_path / "b.txt"]}
    text = taken({**files, "valid": files["train"][:1], "test": files["train"][:1]})
    assert text["train"] == "1\n\ufeff2\n\n1\n\ufeff2\n"


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: is not UTF-8"):
        list(read_lines(path))
    packed = tmp_path / "a.txt.xz"
    packed.write_bytes(lzma.compress(b"fine\n" * 10_000)[:-40])
    with pytest.raises(DataError, match=r"a\.txt\.xz is damaged after line \d+"):
        list(read_lines(packed))


def test_windows_line_ends_are_no_other_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffa \r\n\r\nb\rc".encode())
    assert [*read_lines(tmp_path / "a.txt")] == [b"a \n", b"\n", b"b\rc\n"]
