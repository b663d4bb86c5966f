"""The toy corpus of translation: a generated language pair whose translation is reordering.

    source (qaa)   NOUN ADJ VERB NOUN ADJ [PREP NOUN ADJ].
                   subject       object    modifier
    target (qab)   [ka ADJ NOUN PREP] lo ADJ NOUN mi ADJ NOUN VERBmi.
                   modifier           object      subject

In the source, the subject comes first, the verb second and adjectives after their nouns; only word
order marks the roles. In the target, the verb comes last and ends in the subject's class, articles
agree in class, adjectives stand between article and noun, and prepositions follow their noun. The
translation is a function of the source: a perfect model reaches 100 BLEU, and one without word
order must guess the roles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fairseq_plugins.data import lexicon
from fairseq_plugins.translation.parallel import ParallelText, Paths

VERSION = 1  # increase when a seed gives other text
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
    """Subject, verb and object, with an optional modifier (preposition, noun phrase)."""

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
        modifier = [*self.modifier[1].target, translate(self.modifier[0])] if self.modifier else []
        verb = translate(self.verb) + lexicon.ARTICLES[self.subject.noun_class]
        return [*modifier, *self.object.target, *self.subject.target, verb]


def translate(word: str) -> str:
    """Translate a word by reversing it."""
    return word[::-1]


def _noun_phrase(rng: Random) -> NounPhrase:
    return NounPhrase(rng.choice(tuple(_NOUNS)), rng.choice(_ADJECTIVES))


def _clause(rng: Random) -> Clause:
    modifier = None
    if rng.random() < 0.5:
        modifier = (rng.choice(lexicon.PREPOSITIONS), _noun_phrase(rng))
    return Clause(_noun_phrase(rng), rng.choice(_VERBS), _noun_phrase(rng), modifier)


def generate_pairs(seed: int | str, count: int) -> list[tuple[str, str]]:
    """Generate `count` sentences with translations from a seed."""
    rng = Random(seed)
    pairs = []
    for _ in range(count):
        clause = _clause(rng)
        pairs.append(
            (" ".join(clause.source) + lexicon.STOP, " ".join(clause.target) + lexicon.STOP)
        )
    return pairs


def write_pairs(folder: Path, *, seed: int, pairs: Mapping[str, int]) -> ParallelText:
    """Write <split>.<language> for every split, each with its own random stream."""
    found: dict[str, Paths] = {}
    for split, count in pairs.items():
        found[split] = (folder / f"{split}.{SOURCE}", folder / f"{split}.{TARGET}")
        sides = zip(*generate_pairs(f"{seed}/{split}", count), strict=True)
        for path, lines in zip(found[split], sides, strict=True):
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return ParallelText([found["train"]], found["valid"], found["test"])
