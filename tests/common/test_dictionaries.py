"""fairseq's dictionaries: errors with file and line."""

from pathlib import Path

import pytest

from fairseq_plugins.common.dictionaries import check_same_dictionary, read_dictionary
from fairseq_plugins.common.errors import DataError


def test_damaged_dictionary(tmp_path):
    path = tmp_path / "dict.en.txt"
    path.write_text("the 5\ncat\n")
    with pytest.raises(DataError, match=r"dict\.en\.txt, line 2: must be a word and its count"):
        read_dictionary(path)


def test_another_dictionary_than_that_of_the_pretraining_is_named(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.txt", tmp_path / "theirs.txt"
    ours.write_text("11 5\n12 4\n13 3\n")
    theirs.write_text("11 9\n12 8\n13 7\n")
    check_same_dictionary(ours, theirs)
    theirs.write_text("11 9\n13 8\n12 7\n")
    with pytest.raises(DataError, match=r"ours.txt, line 2: must be '13' .* but is '12'"):
        check_same_dictionary(ours, theirs)
    theirs.write_text("11 9\n12 8\n")
    with pytest.raises(DataError, match="must have 2 lines"):
        check_same_dictionary(ours, theirs)
