"""The vocabulary of the generated language: fixed, invented, and small enough to learn in seconds.

Every word belongs to one category, so `category` recovers the tags of a sentence's tokens.
"""

from itertools import product

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_ENDINGS = ("al", "en", "ir", "os", "um")


def _invent(middle: str, count: int) -> tuple[str, ...]:
    """Return `count` words with the same vowel between two consonants, as in b-o-r-al."""
    shapes = product(_ENDINGS, _ONSETS, ("r", "l", "n"))
    return tuple(onset + middle + inner + end for end, onset, inner in shapes)[:count]


# A noun class shows in the article before the noun and in the ending after the verb.
ARTICLES = ("ka", "lo", "mi", "su")
ENDINGS = tuple("-" + article for article in ARTICLES)
NOUNS = tuple(_invent(middle, 25) for middle in ("a", "e", "i", "o"))  # NOUNS[c]: of class c
VERBS = _invent("u", 32)
ADJECTIVES = _invent("ai", 32)
PREPOSITIONS = ("by", "near", "over", "under")
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))
# Beats are meaningless words for repetition; few, so that copying is learned early.
BEATS = ("ba", "de", "di", "go", "hu", "ja", "ke", "ne")
# A period word gives the number of words after which the first one repeats.
PERIODS = {2: "twofold", 3: "threefold", 4: "fourfold"}
SAY, AGAIN, RESPECTIVELY, STOP = "say", "again", "each", "."

_CATEGORIES = {
    "article": ARTICLES,
    "ending": ENDINGS,
    "noun": tuple(noun for nouns in NOUNS for noun in nouns),
    "verb": VERBS,
    "adjective": ADJECTIVES,
    "preposition": PREPOSITIONS,
    "open": tuple(opening for opening, _ in BRACKETS),
    "close": tuple(closing for _, closing in BRACKETS),
    "period": tuple(PERIODS.values()),
    "beat": BEATS,
    "sign": (SAY, AGAIN, RESPECTIVELY, STOP),
}
CATEGORY = {word: name for name, words in _CATEGORIES.items() for word in words}
WORDS = tuple(CATEGORY)
CONTENT = _CATEGORIES["noun"] + VERBS + ADJECTIVES
