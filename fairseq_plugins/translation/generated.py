"""The toy translation corpus: a generated language pair; translating it means reordering.

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


NounPhrase = tuple[str, str]  # a noun and its adjective, words of the source language


def write_clause(
    subject: NounPhrase, verb: str, object_: NounPhrase, modifier: tuple[str, NounPhrase] | None
) -> tuple[list[str], list[str]]:
    """Return the words of a clause in the source and in the target language.

    modifier: a preposition and a noun phrase.
    """
    source = [*subject, verb, *object_]
    ending = lexicon.ARTICLES[_NOUNS[subject[0]]]
    target = [*_with_article(object_), *_with_article(subject), translate(verb) + ending]
    if modifier:
        preposition, place = modifier
        source += [preposition, *place]
        target = [*_with_article(place), translate(preposition), *target]
    return source, target


def _with_article(phrase: NounPhrase) -> list[str]:
    noun, adjective = phrase
    return [lexicon.ARTICLES[_NOUNS[noun]], translate(adjective), translate(noun)]


def translate(word: str) -> str:
    """Translate a word by reversing it."""
    return word[::-1]


def generate_pairs(seed: int | str, count: int) -> list[tuple[str, str]]:
    """Generate `count` sentences with translations from a seed."""
    rng = Random(seed)

    def phrase() -> NounPhrase:
        return rng.choice(tuple(_NOUNS)), rng.choice(_ADJECTIVES)

    pairs = []
    for _ in range(count):
        has_modifier = rng.random() < 0.5
        modifier = (rng.choice(lexicon.PREPOSITIONS), phrase()) if has_modifier else None
        source, target = write_clause(phrase(), rng.choice(_VERBS), phrase(), modifier)
        pairs.append((" ".join(source) + lexicon.STOP, " ".join(target) + lexicon.STOP))
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
