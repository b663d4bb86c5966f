"""Sentences of a generated language in which word order, not only the words, matters.

    statement  ka ADJ NOUN near lo ADJ NOUN VERB -ka mi ADJ NOUN .  ending agrees with the subject
    chain      ka ADJ NOUN mi ADJ NOUN each VERB -ka VERB -mi .     n-th verb with n-th subject
    nest       ( [ WORD ] ) { < WORD > } .                          brackets close in reverse
    pattern    threefold de go ba de go ba de go .                  a word repeats after its lag
    echo       say de go ba hu again de go ba hu .                  a string repeats after a sign

An article also determines the class of the noun after its adjectives. About half of the text are
patterns, most of one period: a small model learns a fixed lag within a few hundred updates. The
other kinds are harder. Strings of patterns and echoes are short and recur across the splits, since
the rule is tested, not the string.

A statement has its phrases marked, for questions about them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fairseq_plugins.data import lexicon


@dataclass(frozen=True)
class Phrase:
    """tokens[start:end] with a role: subject, verb or object."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class Sentence:
    """A line of the corpus, with the phrases of a statement or chain."""

    kind: str
    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...] = ()


class _Draft:
    """A sentence under construction."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.tokens: list[str] = []
        self.phrases: list[Phrase] = []

    def add(self, *words: str) -> int:
        """Append words and return the index of the first."""
        self.tokens.extend(words)
        return len(self.tokens) - len(words)

    def mark(self, role: str, start: int) -> None:
        self.phrases.append(Phrase(role, start, len(self.tokens)))

    def finish(self, kind: str) -> Sentence:
        self.add(lexicon.STOP)
        return Sentence(kind, tuple(self.tokens), tuple(self.phrases))

    def noun_phrase(self, noun_class: int, adjectives: int) -> int:
        """Append article, adjectives and noun; return the article's index."""
        article = self.add(lexicon.ARTICLES[noun_class])
        self.add(*self.rng.choices(lexicon.ADJECTIVES, k=adjectives))
        self.add(self.rng.choice(lexicon.NOUNS[noun_class]))
        return article

    def verb_for(self, article: int) -> None:
        """Append a verb, marked with its ending, which agrees with a preceding article."""
        noun_class = lexicon.ARTICLES.index(self.tokens[article])
        start = self.add(self.rng.choice(lexicon.VERBS), lexicon.ENDINGS[noun_class])
        self.mark("verb", start)

    def modifier(self) -> None:
        self.add(self.rng.choice(lexicon.PREPOSITIONS))
        self.noun_phrase(self.any_class(), adjectives=1)

    def bracketed(self, write_inside: Callable[[], None]) -> None:
        opening, closing = self.rng.choice(lexicon.BRACKETS)
        self.add(opening)
        write_inside()
        self.add(closing)

    def any_class(self) -> int:
        return self.rng.randrange(len(lexicon.ARTICLES))


def statement(rng: Random) -> Sentence:
    """Write a subject, distractors of other classes, a verb that agrees with it, an object."""
    draft = _Draft(rng)
    subject = draft.noun_phrase(draft.any_class(), adjectives=rng.randint(1, 2))
    draft.mark("subject", subject)
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.3:
            draft.bracketed(draft.modifier)
        else:
            draft.modifier()
    draft.verb_for(subject)
    start = draft.noun_phrase(draft.any_class(), adjectives=rng.randint(1, 2))
    draft.mark("object", start)
    return draft.finish("statement")


def chain(rng: Random) -> Sentence:
    """Write several subjects, then as many verbs: crossing agreements at equal distances."""
    draft = _Draft(rng)
    articles = []
    for _ in range(rng.randint(2, 4)):
        articles.append(draft.noun_phrase(draft.any_class(), adjectives=1))
        draft.mark("subject", articles[-1])
    draft.add(lexicon.RESPECTIVELY)
    for article in articles:
        draft.verb_for(article)
    return draft.finish("chain")


def nest(rng: Random) -> Sentence:
    """Write groups of typed brackets, nested up to five deep around single words."""
    draft = _Draft(rng)

    def inside(depth: int) -> None:
        if depth == 0:
            draft.add(rng.choice(lexicon.CONTENT))
        else:
            draft.bracketed(lambda: inside(depth - 1))

    for _ in range(rng.randint(2, 3)):
        inside(rng.randint(2, 5))
    return draft.finish("nest")


PERIOD_SHARES = (1, 6, 1)  # of two-, three- and fourfold patterns


def pattern(rng: Random) -> Sentence:
    """Write a period word, that many different beats, and repetitions of them."""
    draft = _Draft(rng)
    period = rng.choices(tuple(lexicon.PERIODS), PERIOD_SHARES)[0]
    draft.add(lexicon.PERIODS[period])
    start = draft.add(*rng.sample(lexicon.BEATS, period))
    repeated = rng.randint(3 * period, 6 * period)
    draft.add(*(draft.tokens[start + i % period] for i in range(repeated)))
    return draft.finish("pattern")


def echo(rng: Random) -> Sentence:
    """Write a string of different beats, a sign, and the same string again."""
    draft = _Draft(rng)
    draft.add(lexicon.SAY)
    words = rng.sample(lexicon.BEATS, rng.randint(3, 6))
    draft.add(*words, lexicon.AGAIN, *words)
    return draft.finish("echo")


# Share of each kind among the sentences.
KINDS: dict[str, tuple[Callable[[Random], Sentence], float]] = {
    "statement": (statement, 0.15),
    "chain": (chain, 0.10),
    "nest": (nest, 0.10),
    "pattern": (pattern, 0.50),
    "echo": (echo, 0.15),
}


def generate(seed: int | str, count: int) -> list[Sentence]:
    """Generate `count` sentences; the same seed gives the same ones."""
    rng = Random(seed)
    writers, shares = zip(*KINDS.values(), strict=True)
    return [writer(rng) for writer in rng.choices(writers, shares, k=count)]
