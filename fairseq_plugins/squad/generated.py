"""Questions about the embedded language, in the format of SQuAD: the answer is a span of a text.

A text is a few sentences in any order, and no question can be answered from the words alone:

    at N          the N-th word
    after WORD    the word that follows WORD, which the text has once
    before WORD   the word that precedes it
    who VERB      the subject of a statement, whose verb the text has once
    whom VERB     its object

Half of the questions, or more, ask for the N-th word, which a small model learns to find within a
few hundred updates; the others are harder, and leave room for larger models. In version 2.0 a part
of the questions asks about a word that the text does not have.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from fairseq_plugins.common.files import write_json
from fairseq_plugins.data import lexicon
from fairseq_plugins.data.options import check_counts
from fairseq_plugins.data.sentences import Sentence, generate

VERSION = 1  # raise when the same seed would give other questions
TEXTS = {"train": 2_000, "valid": 200}
QUESTIONS_PER_TEXT = 4
_SENTENCES = (2, 3)  # of a text
_PLACES = 8  # that are asked for
_IMPOSSIBLE = 1 / 3  # of the questions of version 2.0
_NEIGHBOURS = {"after": 1, "before": -1}
_ROLES = {"who": "subject", "whom": "object"}


@dataclass(frozen=True)
class _Fact:
    """A question, and its answer: tokens start to end of the text; None where it has none."""

    question: str
    span: tuple[int, int] | None


def _is_word(token: str) -> bool:
    """Return whether anything of it is left when answers are compared without punctuation."""
    return any(character.isalpha() for character in token)


def _places(tokens: tuple[str, ...]) -> list[_Fact]:
    """Questions about the word at a place near the beginning."""
    return [
        _Fact(f"at {i + 1}", (i, i + 1))
        for i, token in enumerate(tokens[:_PLACES])
        if _is_word(token)
    ]


def _neighbours(tokens: tuple[str, ...], counts: Counter[str]) -> list[_Fact]:
    """Questions about words that the text has once and the word beside them, no punctuation."""
    return [
        _Fact(f"{word} {token}", (i + step, i + step + 1))
        for i, token in enumerate(tokens)
        if counts[token] == 1
        for word, step in _NEIGHBOURS.items()
        if 0 <= i + step < len(tokens) and _is_word(tokens[i + step])
    ]


def _roles(sentence: Sentence, first: int, counts: Counter[str]) -> list[_Fact]:
    """Questions about the verb of a statement whose tokens begin at `first`."""
    if sentence.kind != "statement":
        return []
    phrases = {phrase.role: phrase for phrase in sentence.phrases}
    verb = sentence.tokens[phrases["verb"].start]
    if counts[verb] != 1:
        return []
    return [
        _Fact(f"{word} {verb}", (first + phrases[role].start, first + phrases[role].end))
        for word, role in _ROLES.items()
    ]


def _impossible(rng: Random, tokens: tuple[str, ...]) -> _Fact:
    """A question about a word that is not there."""
    word = rng.choice([*_NEIGHBOURS, *_ROLES])
    words = lexicon.VERBS if word in _ROLES else lexicon.WORDS
    return _Fact(f"{word} {rng.choice([w for w in words if w not in tokens])}", None)


def _facts(sentences: list[Sentence]) -> list[list[_Fact]]:
    """Return questions on a text by kind, the kinds in equal parts and places twice."""
    tokens = tuple(token for sentence in sentences for token in sentence.tokens)
    counts = Counter(tokens)
    roles, first = [], 0
    for sentence in sentences:
        roles += _roles(sentence, first, counts)
        first += len(sentence.tokens)
    places = _places(tokens)
    return [facts for facts in (places, places, _neighbours(tokens, counts), roles) if facts]


def _paragraph(rng: Random, name: str, version: str) -> dict[str, Any]:
    """A text with its questions, of which `name` begins the ids."""
    sentences = generate(rng.random().hex(), rng.randint(*_SENTENCES))
    tokens = tuple(token for sentence in sentences for token in sentence.tokens)
    starts = list(accumulate((len(token) + 1 for token in tokens), initial=0))
    kinds = _facts(sentences)
    questions = []
    for i in range(QUESTIONS_PER_TEXT):
        if version == "2.0" and rng.random() < _IMPOSSIBLE:
            fact = _impossible(rng, tokens)
        else:
            fact = rng.choice(rng.choice(kinds))
        answers = []
        if fact.span is not None:
            begin, end = fact.span
            answers = [{"text": " ".join(tokens[begin:end]), "answer_start": starts[begin]}]
        question: dict[str, Any] = {
            "id": f"{name}-{i}",
            "question": fact.question,
            "answers": answers,
        }
        if version == "2.0":
            question["is_impossible"] = not answers
        questions.append(question)
    return {"context": " ".join(tokens), "qas": questions}


def generate_questions(seed: int | str, texts: int, version: str) -> dict[str, Any]:
    """A file of SQuAD, the same for the same seed; `version` is "1.1" or "2.0"."""
    rng = Random(f"{seed}/{version}")
    paragraphs = [_paragraph(rng, f"{seed}-{i}", version) for i in range(texts)]
    article = {"title": "embedded", "paragraphs": paragraphs}
    return {"version": version if version == "1.1" else f"v{version}", "data": [article]}


def write_questions(
    folder: Path, *, seed: int, version: str, texts: Mapping[str, int]
) -> dict[str, Path]:
    """Write <split>.json for every split; split -> file.

    Raises:
        OptionError: a split with no texts.
    """
    check_counts("texts", texts)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, count in texts.items():
        files[split] = folder / f"{split}.json"
        content = generate_questions(f"{seed}/{split}", count, version)
        write_json(files[split], content)
    return files
