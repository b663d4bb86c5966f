"""Generated questions in SQuAD's format: the answer is a span of a text.

A text is a few sentences in random order. The answers depend on word order:

    at N          the N-th word
    after WORD    the word after WORD, which occurs once
    before WORD   the word before WORD, which occurs once
    who VERB      the subject of a statement whose verb occurs once
    whom VERB     the object of such a statement

At least half of the questions ask for the N-th word, which a small model learns within a few
hundred updates; the others are harder. In version 2.0 some questions ask about a missing word.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from fairseq_plugins.common.files import write_json
from fairseq_plugins.data import lexicon
from fairseq_plugins.data.options import check_counts
from fairseq_plugins.data.sentences import Sentence, generate

VERSION = 1  # increase when a seed gives other questions
TEXTS = {"train": 2_000, "valid": 200}
QUESTIONS_PER_TEXT = 4
_SENTENCES = (2, 3)  # per text
_POSITIONS = 8  # largest N of "at N"
_IMPOSSIBLE = 1 / 3  # share of impossible questions in version 2.0
_NEIGHBOURS = {"after": 1, "before": -1}
_ROLES = {"who": "subject", "whom": "object"}


# A question, and its answer as token range (start, end); None if impossible.
GeneratedQuestion = tuple[str, tuple[int, int] | None]


def _is_word(token: str) -> bool:
    """Return whether a token is more than punctuation, which comparisons ignore."""
    return any(character.isalpha() for character in token)


def _ask_positions(tokens: tuple[str, ...]) -> list[GeneratedQuestion]:
    """Ask for words near the beginning by position."""
    return [
        (f"at {i + 1}", (i, i + 1))
        for i, token in enumerate(tokens[:_POSITIONS])
        if _is_word(token)
    ]


def _ask_neighbours(tokens: tuple[str, ...], counts: Counter[str]) -> list[GeneratedQuestion]:
    """Ask for the neighbours of words that occur once."""
    return [
        (f"{word} {token}", (i + step, i + step + 1))
        for i, token in enumerate(tokens)
        if counts[token] == 1
        for word, step in _NEIGHBOURS.items()
        if 0 <= i + step < len(tokens) and _is_word(tokens[i + step])
    ]


def _ask_roles(sentence: Sentence, first: int, counts: Counter[str]) -> list[GeneratedQuestion]:
    """Ask for subject and object of a statement whose tokens begin at `first`."""
    if sentence.kind != "statement":
        return []
    phrases = {phrase.role: phrase for phrase in sentence.phrases}
    verb = sentence.tokens[phrases["verb"].start]
    if counts[verb] != 1:
        return []
    return [
        (f"{word} {verb}", (first + phrases[role].start, first + phrases[role].end))
        for word, role in _ROLES.items()
    ]


def _ask_impossible(rng: Random, tokens: tuple[str, ...]) -> GeneratedQuestion:
    """Ask about a missing word."""
    word = rng.choice([*_NEIGHBOURS, *_ROLES])
    words = lexicon.VERBS if word in _ROLES else lexicon.WORDS
    return f"{word} {rng.choice([w for w in words if w not in tokens])}", None


def _questions_by_kind(sentences: list[Sentence]) -> list[list[GeneratedQuestion]]:
    """Return lists of questions to choose from equally; questions by position are there twice."""
    tokens = tuple(token for sentence in sentences for token in sentence.tokens)
    counts = Counter(tokens)
    roles, first = [], 0
    for sentence in sentences:
        roles += _ask_roles(sentence, first, counts)
        first += len(sentence.tokens)
    positions = _ask_positions(tokens)
    kinds = (positions, positions, _ask_neighbours(tokens, counts), roles)
    return [questions for questions in kinds if questions]


def _paragraph(rng: Random, name: str, version: str) -> dict[str, Any]:
    """Generate a text with questions, whose ids begin with `name`."""
    sentences = generate(rng.random().hex(), rng.randint(*_SENTENCES))
    tokens = tuple(token for sentence in sentences for token in sentence.tokens)
    starts = list(accumulate((len(token) + 1 for token in tokens), initial=0))
    kinds = _questions_by_kind(sentences)
    questions = []
    for i in range(QUESTIONS_PER_TEXT):
        if version == "2.0" and rng.random() < _IMPOSSIBLE:
            asked, span = _ask_impossible(rng, tokens)
        else:
            asked, span = rng.choice(rng.choice(kinds))
        answers = []
        if span is not None:
            answers = [{"text": " ".join(tokens[slice(*span)]), "answer_start": starts[span[0]]}]
        question: dict[str, Any] = {"id": f"{name}-{i}", "question": asked, "answers": answers}
        if version == "2.0":
            question["is_impossible"] = not answers
        questions.append(question)
    return {"context": " ".join(tokens), "qas": questions}


def generate_questions(seed: int | str, texts: int, version: str) -> dict[str, Any]:
    """Generate a SQuAD file from a seed; `version` is "1.1" or "2.0"."""
    rng = Random(f"{seed}/{version}")
    paragraphs = [_paragraph(rng, f"{seed}-{i}", version) for i in range(texts)]
    article = {"title": "embedded", "paragraphs": paragraphs}
    return {"version": version if version == "1.1" else f"v{version}", "data": [article]}


def write_questions(
    folder: Path, *, seed: int, version: str, texts: Mapping[str, int]
) -> dict[str, Path]:
    """Write <split>.json for every split and return the paths by split.

    Raises:
        OptionError: a split without texts.
    """
    check_counts("texts", texts)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, count in texts.items():
        files[split] = folder / f"{split}.json"
        content = generate_questions(f"{seed}/{split}", count, version)
        write_json(files[split], content)
    return files
