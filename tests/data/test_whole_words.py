"""Where words begin in pieces, against words found in the text itself."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data.gpt2_bpe import Gpt2Tokenizer, learn_gpt2_bpe
from fairseq_plugins.data.whole_words import word_start_mask

TEXT = (
    "The café's cat sat; the dog (a terrier) ran.",
    "naïve dogs, naïve cats: 1990s cats cost $5",
    "unseen Zürich words -- no merge knows them",
)
WORDS = re.compile(r"[^\W_]+|--|[^\w\s]|_")  # a run of letters and digits, or a mark


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Gpt2Tokenizer:
    folder = tmp_path_factory.mktemp("pieces")
    learn_gpt2_bpe([*TEXT[:2], "-- --"] * 3, 40, folder)
    return Gpt2Tokenizer.load(folder)


def sample(pieces: Gpt2Tokenizer, *lines: str) -> torch.Tensor:
    """As a masked model reads them: <s>, then lines with </s> behind each."""
    found = [pieces.dictionary.bos()]
    for line in lines:
        found += [*pieces.encode_with_offsets(line).ids, pieces.dictionary.eos()]
    return torch.tensor(found)


def words_of(pieces: Gpt2Tokenizer, item: torch.Tensor) -> list[str]:
    """The texts between one beginning and the next, special symbols by their names."""
    begins = word_start_mask(pieces.dictionary, pieces.folder).gather(0, item)
    assert begins.dtype == torch.uint8 and begins.shape == item.shape
    places = [*begins.nonzero().view(-1).tolist(), len(item)]
    assert places[0] == 0
    found = []
    for first, last in itertools.pairwise(places):
        symbols = [pieces.dictionary[int(i)] for i in item[first:last]]
        special = [symbol for symbol in symbols if not symbol.isdecimal()]
        assert not special or len(symbols) == 1, symbols
        found.append(special[0] if special else pieces.encoder.decode([int(s) for s in symbols]))
    return found


@pytest.mark.parametrize("line", TEXT)
def test_words_are_those_of_the_text(line: str, pieces: Gpt2Tokenizer) -> None:
    found = words_of(pieces, sample(pieces, line))
    assert [word.strip() for word in found] == ["<s>", *WORDS.findall(line), "</s>"]


def test_a_line_begins_a_word_and_its_special_symbols_stand_alone(pieces: Gpt2Tokenizer) -> None:
    """fairseq's mask of the vocabulary joins </s> and the first word, which no space precedes."""
    found = words_of(pieces, sample(pieces, "cats", "", "dogs ran"))
    assert found == ["<s>", "cats", "</s>", "</s>", "dogs", " ran", "</s>"]


def test_a_sample_may_begin_within_a_word(pieces: Gpt2Tokenizer) -> None:
    _, *rest = pieces.encode_with_offsets("Zürich").ids
    assert rest
    found = words_of(pieces, torch.tensor([*rest, pieces.dictionary.eos()]))
    assert found[1:] == ["</s>"]


def test_a_space_that_is_a_piece_belongs_to_the_word_behind_it(pieces: Gpt2Tokenizer) -> None:
    ids = [str(pieces.encoder.encoder[piece]) for piece in ("Ġ", "q", "Ġ", "(", "x")]
    found = words_of(pieces, torch.tensor([pieces.dictionary.index(word) for word in ids]))
    assert found == [" q", " (", "x"]


def test_another_dictionary_is_refused(pieces: Gpt2Tokenizer, tmp_path: Path) -> None:
    dictionary = Dictionary()
    for word in ("cats", "dogs", "5"):
        dictionary.add_symbol(word)
    with pytest.raises(DataError, match=r"must be tokens of .* but 2 are not, the first is 'cats'"):
        word_start_mask(dictionary, pieces.folder)
    with pytest.raises(DataError, match=r"does not hold encoder\.json"):
        word_start_mask(pieces.dictionary, tmp_path)
