"""A generated language pair in which translating is reordering: the toy corpus of translation.

    source (qaa)   NOUN ADJ VERB NOUN ADJ [PREP NOUN ADJ].
                   subject       object    modifier
    target (qab)   [ka ADJ NOUN PREP] lo ADJ NOUN mi ADJ NOUN VERBmi.
                   modifier           object      subject

Source sentences put the subject first, the verb second and adjectives after their nouns; nothing
but the order says who does what to whom. In the target the verb is last and ends in the subject's
class, articles that agree in class stand before the nouns, adjectives between the two, and the
preposition follows what it governs. A translation is a function of its source, so a right model
reaches 100 BLEU; one that cannot tell the order of the source words must guess the roles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fairseq_plugins.data import lexicon
from fairseq_plugins.translation.parallel import ParallelText, Paths

VERSION = 1  # raise when the same seed would give other text
SOURCE, TARGET = "qaa", "qab"  # codes for private use
PAIRS = {"train": 12_000, "valid": 300, "test": 300}

_NOUNS = {noun: c for c, nouns in enumerate(lexicon.NOUNS[:3]) for noun in nouns[:6]}
_VERBS = lexicon.VERBS[:10]
_ADJECTIVES = lexicon.ADJECTIVES[:10]


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its adjective, each a word of the source language."""

    noun: str
    adjective: str

    @property
    def noun_class(self) -> int:
        return _NOUNS[self.noun]

    @property
    def source(self) -> list[str]:
        return [self.noun, self.adjective]

    @property
    def target(self) -> list[str]:
        return [
            lexicon.ARTICLES[self.noun_class],
            translate(self.adjective),
            translate(self.noun),
        ]


@dataclass(frozen=True)
class Clause:
    """Subject, verb and object of a sentence, perhaps with a place (preposition, noun phrase)."""

    subject: NounPhrase
    verb: str
    object: NounPhrase
    modifier: tuple[str, NounPhrase] | None

    @property
    def source(self) -> list[str]:
        words = [*self.subject.source, self.verb, *self.object.source]
        if self.modifier:
            words += [self.modifier[0], *self.modifier[1].source]
        return words

    @property
    def target(self) -> list[str]:
        place = [*self.modifier[1].target, translate(self.modifier[0])] if self.modifier else []
        verb = translate(self.verb) + lexicon.ARTICLES[self.subject.noun_class]
        return [*place, *self.object.target, *self.subject.target, verb]


def translate(word: str) -> str:
    """The target's word: the source's, read backwards."""
    return word[::-1]


def _noun_phrase(rng: Random) -> NounPhrase:
    return NounPhrase(rng.choice(tuple(_NOUNS)), rng.choice(_ADJECTIVES))


def _clause(rng: Random) -> Clause:
    modifier = None
    if rng.random() < 0.5:
        modifier = (rng.choice(lexicon.PREPOSITIONS), _noun_phrase(rng))
    return Clause(_noun_phrase(rng), rng.choice(_VERBS), _noun_phrase(rng), modifier)


def generate_pairs(seed: int | str, count: int) -> list[tuple[str, str]]:
    """`count` sentences with their translations, the same for the same seed."""
    rng = Random(seed)
    pairs = []
    for _ in range(count):
        clause = _clause(rng)
        pairs.append(
            (" ".join(clause.source) + lexicon.STOP, " ".join(clause.target) + lexicon.STOP)
        )
    return pairs


def write_pairs(folder: Path, *, seed: int, pairs: Mapping[str, int]) -> ParallelText:
    """Write <split>.<language> for every split, drawn from streams of their own."""
    found: dict[str, Paths] = {}
    for split, count in pairs.items():
        found[split] = (folder / f"{split}.{SOURCE}", folder / f"{split}.{TARGET}")
        sides = zip(*generate_pairs(f"{seed}/{split}", count), strict=True)
        for path, lines in zip(found[split], sides, strict=True):
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return ParallelText([found["train"]], found["valid"], found["test"])
