"""Moses' tokenisation and detokenisation, by sacremoses, sped up.

Punctuation is normalised, unprintable characters become spaces, and text is tokenised with splits
at hyphens (Moses' `-a`) and escapes (`&apos;`). Rules of sacremoses that cannot apply are skipped.
"""

import functools
import re
import unicodedata
from typing import Any

from fairseq_plugins.common.errors import OptionError

# ISO 639 codes for private use: the generated languages, with English rules.
PRIVATE_USE = ("qaa", "qab")


@functools.cache
def languages() -> frozenset[str]:
    """Return the codes of languages with rules."""
    from sacremoses.corpus import NonbreakingPrefixes

    return frozenset(NonbreakingPrefixes().available_langs.values()) | set(PRIVATE_USE)


def check_language(option: str, code: str) -> None:
    """Raise OptionError for a code without rules (sacremoses would use English ones)."""
    if code not in languages():
        known = ", ".join(sorted(languages()))
        raise OptionError(f"{option} must be one of {known}, but is {code!r}")


def printable(text: str) -> str:
    """Replace unprintable characters by spaces."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


class Normaliser:
    """Normalisation of punctuation, equal to sacremoses' MosesPunctNormalizer.

    Most rules need a character outside ASCII and are skipped for ASCII text.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesPunctNormalizer

        rules = MosesPunctNormalizer(language).substitutions
        self._all = [(re.compile(pattern).sub, to) for pattern, to in rules]
        self._ascii = [(re.compile(pattern).sub, to) for pattern, to in rules if pattern.isascii()]

    def normalise(self, text: str) -> str:
        """Normalise a line's punctuation and strip spaces."""
        for substitute, replacement in self._ascii if text.isascii() else self._all:
            text = substitute(replacement, text)
        return text.strip()


@functools.cache
def _tokenizer_class() -> Any:
    """Make sacremoses' MosesTokenizer with sets of letters, which it otherwise builds per word."""
    from sacremoses import MosesTokenizer

    class Tokenizer(MosesTokenizer):
        def __init__(self, language: str) -> None:
            super().__init__(language)
            self._lower, self._letters = frozenset(self.IsLower), frozenset(self.IsAlpha)

        def islower(self, text: str) -> bool:
            return self._lower.issuperset(text)

        def isanyalpha(self, text: str) -> bool:
            return not self._letters.isdisjoint(text)

    return Tokenizer


class Moses:
    """Tokenisation and detokenisation of one language.

    Raises:
        OptionError: a language without rules.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer

        check_language("language", language)
        rules = "en" if language in PRIVATE_USE else language
        self._normaliser = Normaliser(rules)
        self._tokenizer = _tokenizer_class()(rules)
        self._detokenizer = MosesDetokenizer(rules)

    def tokenise(self, text: str) -> str:
        """Tokenise a line of raw text; tokens are joined by single spaces.

        The line end is removed first: rules for quotation marks would match it.
        """
        text = printable(self._normaliser.normalise(text.rstrip("\r\n")))
        tokens = self._tokenizer.tokenize(text, aggressive_dash_splits=True, return_str=True)
        return " ".join(tokens.split())

    def detokenise(self, tokens: str) -> str:
        """Detokenise and unescape a line of tokens."""
        return self._detokenizer.detokenize(tokens.split())
