"""GPT-2's byte-level BPE tokenizer: the published one, or a smaller one learned from text.

A tokenizer folder has three files, as published by fairseq for RoBERTa:

    encoder.json  subword -> id
    vocab.bpe     merges in order, after a version line
    dict.txt      fairseq's dictionary: ids as words, the most frequent first

The encoder is fairseq's. Every byte is a subword, so encoding is lossless and <unk> never occurs.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.dictionaries import DICTIONARY_FILE, read_lines
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.files import require_object
from fairseq_plugins.data.codes import KNOWN_WORDS, WORD_END
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.merges import learn_merges
from fairseq_plugins.data.offsets import EncodedText, encode_with_offsets

if TYPE_CHECKING:  # fairseq takes seconds, which a command's --help must not
    from fairseq.data import Dictionary
    from fairseq.data.encoders.gpt2_bpe_utils import Encoder

ENCODER_FILE, MERGES_FILE = "encoder.json", "vocab.bpe"
FILES = (ENCODER_FILE, MERGES_FILE, DICTIONARY_FILE)
# Published by fairseq for RoBERTa; with <mask>, which the task adds, its 50,265 symbols.
PUBLISHED_URL = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"
PUBLISHED_SHA256 = {
    ENCODER_FILE: "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    MERGES_FILE: "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    DICTIONARY_FILE: "2c31c5b236661067fe8626775eb995ef5fe808ac87d2ad4a6ddbef68550f5cc6",
}
PUBLISHED_DICTIONARY_SIZE = 50_264
END_OF_TEXT = "<|endoftext|>"  # GPT-2's last id; never occurs in text
_VERSION = "#version: 0.2"
_PADDING_FACTOR = 8  # fairseq pads dictionaries to a multiple of it


@dataclass(frozen=True)
class Gpt2Tokenizer:
    """GPT-2's tokenizer: fairseq's encoder, and a dictionary of its ids."""

    folder: Path
    encoder: "Encoder"
    dictionary: "Dictionary"
    files: tuple[str, ...] = field(default=FILES, init=False)
    separators: int = field(default=2, init=False)

    @classmethod
    def load(cls, folder: Path) -> "Gpt2Tokenizer":
        """Read a tokenizer folder; raise DataError as `load_encoder`."""
        from fairseq.data import Dictionary

        return cls(folder, load_encoder(folder), Dictionary.load(str(folder / DICTIONARY_FILE)))

    @cached_property
    def _indices(self) -> dict[int, int]:
        return {i: self.dictionary.index(str(i)) for i in self.encoder.encoder.values()}

    def tokenize(self, line: str) -> list[str]:
        """Split a line into subword ids as strings, ignoring surrounding spaces.

        This is the output of fairseq's multiprocessing_bpe_encoder and the input of
        fairseq-preprocess.
        """
        if len(self.encoder.cache) > KNOWN_WORDS:  # clauses without spaces hardly recur
            self.encoder.cache.clear()
        return [str(i) for i in self.encoder.encode(line.strip())]

    def encode_with_offsets(self, text: str) -> EncodedText:
        """Encode a text as dictionary indices, with the character span of each subword."""
        encoded = encode_with_offsets(self.encoder, text)
        return replace(encoded, ids=[self._indices[i] for i in encoded.ids])

    def text_of(self, symbol: str) -> str | None:
        """Return the text of a dictionary entry; None if it is not a subword's id."""
        is_subword = symbol.isdecimal() and int(symbol) in self.encoder.decoder
        return str(self.encoder.decode([int(symbol)])) if is_subword else None

    def sums(self) -> dict[str, str]:
        """Return the sha256 of each file."""
        return {name: sha256(self.folder / name) for name in FILES}

    def fingerprint(self) -> str:
        """Return one sha256 over the three files."""
        return hashlib.sha256(b"".join(map(bytes.fromhex, self.sums().values()))).hexdigest()

    def copy(self, target: Path) -> None:
        """Copy the three files into an existing folder."""
        for name in FILES:
            shutil.copyfile(self.folder / name, target / name)


def load_encoder(folder: Path) -> "Encoder":
    """Load fairseq's encoder from a tokenizer folder: `encode(text) -> ids`, `decode(ids) -> text`.

    Raises DataError: a file is missing or damaged, or the three do not belong together.
    """
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} does not hold {', '.join(missing)}; "
            f"{typed_command('scripts/prepare_gpt2_bpe.sh')} makes it; data prepared with a "
            "learned tokenizer has it in bpe/"
        )
    vocabulary = _read_vocabulary(folder / ENCODER_FILE)
    _check_merges(folder / MERGES_FILE, vocabulary)
    _check_dictionary(folder / DICTIONARY_FILE, vocabulary)
    return get_encoder(str(folder / ENCODER_FILE), str(folder / MERGES_FILE))


def learn_gpt2_bpe(lines: Iterable[str], merges: int, folder: Path) -> int:
    """Learn a byte-level BPE from lines of text, ignoring surrounding spaces.

    Args:
        lines: lines of text.
        merges: number of merges to learn.
        folder: existing folder, into which the three files are written.

    Returns:
        The number of learned merges, below ``merges`` if no further pair occurs twice.

    Raises:
        OptionError: ``merges`` is below 1.
        DataError: the text has no character.
    """
    from fairseq.data.encoders.gpt2_bpe_utils import Encoder, bytes_to_unicode

    if merges < 1:
        raise OptionError(f"merges must be at least 1, but is {merges}")
    words = _count_words(lines)
    if not words:
        raise DataError("there is no text to learn subwords from")
    learned = _learn_merges(words, merges)
    symbols = [*bytes_to_unicode().values(), *("".join(pair) for pair in learned)]
    # Two merges may give the same subword, which has one id.
    vocabulary = {subword: i for i, subword in enumerate(dict.fromkeys([*symbols, END_OF_TEXT]))}
    (folder / ENCODER_FILE).write_text(json.dumps(vocabulary), encoding="ascii")
    content = "\n".join([_VERSION, *(" ".join(pair) for pair in learned)]) + "\n"
    (folder / MERGES_FILE).write_text(content, encoding="utf-8", newline="\n")
    _dictionary(words, Encoder(vocabulary, learned)).save(str(folder / DICTIONARY_FILE))
    return len(learned)


def _count_words(lines: Iterable[str]) -> Counter[str]:
    """Count GPT-2's words, each with its preceding space, spelled as byte characters."""
    from fairseq.data.encoders.gpt2_bpe_utils import Encoder

    encoder = Encoder({}, [])
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(encoder.pat.findall(line.strip()))
    table = encoder.byte_encoder
    return Counter({"".join(table[b] for b in w.encode()): n for w, n in counts.items()})


def _learn_merges(words: Counter[str], merges: int) -> list[tuple[str, str]]:
    """Learn merges without the end-of-word mark, which GPT-2's subwords do not have."""
    pairs: dict[tuple[str, str], None] = {}  # an ordered set
    # A merge is learned at most twice: at the end of words and elsewhere.
    for first, second in learn_merges(words, 2 * merges):
        pairs[first, second.removesuffix(WORD_END)] = None
        if len(pairs) == merges:
            break
    return list(pairs)


def _dictionary(words: Counter[str], encoder: "Encoder") -> "Dictionary":
    """Make a dictionary of all ids with counts, sorted and padded as by fairseq."""
    from fairseq.data import Dictionary

    counts = Counter(dict.fromkeys(encoder.encoder.values(), 0))
    for word, count in words.items():
        for subword in encoder.bpe(word).split(" "):
            counts[encoder.encoder[subword]] += count
    dictionary = Dictionary()
    for symbol, count in counts.items():
        dictionary.add_symbol(str(symbol), n=count)
    dictionary.finalize(padding_factor=_PADDING_FACTOR)
    return dictionary


def _read_vocabulary(path: Path) -> dict[str, int]:
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    vocabulary = require_object(path)
    if not all(type(i) is int for i in vocabulary.values()):
        raise DataError(f"{path} is damaged: it must have a number for each subword")
    absent = [symbol for symbol in bytes_to_unicode().values() if symbol not in vocabulary]
    if absent:
        raise DataError(f"{path} is damaged: {len(absent)} of the 256 bytes have no id")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise DataError(f"{path} is damaged: two subwords have the same id")
    return vocabulary


def _check_merges(path: Path, vocabulary: dict[str, int]) -> None:
    version, *merges = read_lines(path)
    if not version.startswith("#version") or not path.read_bytes().endswith(b"\n"):
        raise DataError(
            f"{path} is damaged: it must begin with a line '#version' and end with a whole line"
        )
    for number, line in enumerate(merges, start=2):
        pair = line.split()
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise DataError(
                f"{path}, line {number}: must merge two subwords of {ENCODER_FILE} into another "
                f"one, but is {line!r}"
            )


def _check_dictionary(path: Path, vocabulary: dict[str, int]) -> None:
    words = {line.rpartition(" ")[0] for line in read_lines(path)}
    absent = sorted(i for i in vocabulary.values() if str(i) not in words)
    if absent:
        raise DataError(
            f"{path} lacks {len(absent)} of the ids in {ENCODER_FILE}, the first is {absent[0]}"
        )
