"""fairseq's dictionaries: a word and its count in each line of a dict.txt, and special symbols.

The line gives a word its id: dictionaries are equal if words and order are; counts may differ.
"""

from pathlib import Path

from fairseq_plugins.common.errors import DataError

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # before a dict.txt's words
DICTIONARY_FILE = "dict.txt"
MASK = "<mask>"  # after the words, added by the tasks of bidirectional models
PADDING = "madeupword"  # prefix of entries that pad a dictionary to a multiple of 8


def read_dictionary(path: Path) -> list[str]:
    """Read the words of a dictionary.

    Raises DataError: a line is not a word and its count, or a word is repeated.
    """
    words: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdecimal():
            raise DataError(
                f"{path}, line {number}: must be a word and its count, but is {line[:80]!r}"
            )
        if word in words:
            raise DataError(f"{path}, line {number}: {word!r} is in line {words[word]} too")
        words[word] = number
    return list(words)


def count_symbols(path: Path) -> int:
    """Count the symbols of a dictionary with fairseq's special ones, without a task's <mask>."""
    with path.open("rb") as lines:
        return sum(1 for _ in lines) + len(SPECIAL_SYMBOLS)


def check_same_dictionary(ours: Path, theirs: Path) -> None:
    """Raise DataError at the first line where the words of two dict.txt differ."""
    found, expected = read_dictionary(ours), read_dictionary(theirs)
    for number, (word, wanted) in enumerate(zip(found, expected, strict=False), start=1):
        if word != wanted:
            raise DataError(
                f"{ours}, line {number}: must be {wanted!r} as in {theirs}, but is {word!r}"
            )
    if len(found) != len(expected):
        raise DataError(f"{ours} must have {len(expected)} lines as {theirs}, but has {len(found)}")


def read_lines(path: Path) -> list[str]:
    """Read lines of UTF-8, ended by line feeds alone; DataError if not UTF-8."""
    try:
        return path.read_bytes().decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error
