"""fairseq's dictionaries: a word and its count in each line of a dict.txt, and what is not there.

The order of its lines gives a word its number, so two dictionaries are the same where their words
are, in their order; counts may differ.
"""

from pathlib import Path

from fairseq_plugins.common.errors import DataError

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # before a dict.txt's words
DICTIONARY_FILE = "dict.txt"
MASK = "<mask>"  # behind them, added by the tasks of bidirectional models
PADDING = "madeupword"  # entries that round a dictionary up to a multiple of 8


def read_dictionary(path: Path) -> list[str]:
    """The words of one of fairseq's dictionaries.

    Raises:
        DataError: naming file and line, for a line that is not a word and its count, or a word that
            is there twice.
    """
    words: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdecimal():
            raise DataError(f"{path}, line {number}: not a word and its count but {line[:80]!r}")
        if word in words:
            raise DataError(f"{path}, line {number}: {word!r} is in line {words[word]}, too")
        words[word] = number
    return list(words)


def check_same_dictionary(ours: Path, theirs: Path) -> None:
    """Raise DataError with file and line where two dict.txt have other words or another order."""
    found, expected = read_dictionary(ours), read_dictionary(theirs)
    for number, (word, wanted) in enumerate(zip(found, expected, strict=False), start=1):
        if word != wanted:
            raise DataError(
                f"{ours}, line {number}: must be {wanted!r} as in {theirs}, but is {word!r}"
            )
    if len(found) != len(expected):
        raise DataError(f"{ours} must have {len(expected)} lines as {theirs}, but has {len(found)}")


def read_lines(path: Path) -> list[str]:
    """Lines of UTF-8, which only a line feed ends; DataError for what is none."""
    try:
        return path.read_bytes().decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error
