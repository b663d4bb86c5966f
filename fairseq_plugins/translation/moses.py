"""Moses' way from raw text to tokens and back, by sacremoses: the same for training and for use.

Raw text is normalised in its punctuation, rid of characters that do not print, and tokenised with
splits at hyphens (Moses' `-a`) and escapes (`&apos;`). `detokenise` undoes the last step. The rules
are sacremoses' own; what is done here is not to try those that cannot apply.
"""

import functools
import re
import unicodedata
from typing import Any

from fairseq_plugins.common.errors import OptionError

# ISO 639 keeps these codes for private use; the generated languages have them, and English rules.
PRIVATE_USE = ("qaa", "qab")


@functools.cache
def languages() -> frozenset[str]:
    """Codes of the languages that have rules of their own."""
    from sacremoses.corpus import NonbreakingPrefixes

    return frozenset(NonbreakingPrefixes().available_langs.values()) | set(PRIVATE_USE)


def check_language(option: str, code: str) -> None:
    """Raise OptionError for a code without rules, which would be treated as English."""
    if code not in languages():
        known = ", ".join(sorted(languages()))
        raise OptionError(f"{option} must be one of {known}, but is {code!r}")


def printable(text: str) -> str:
    """Replace characters that do not print, as carriage returns and controls, by spaces."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


class Normaliser:
    """The punctuation of a language, as sacremoses' MosesPunctNormalizer normalises it.

    Most of its rules name a character outside ASCII and need it in the text to apply.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesPunctNormalizer

        rules = MosesPunctNormalizer(language).substitutions
        self._all = [(re.compile(pattern).sub, to) for pattern, to in rules]
        self._ascii = [(re.compile(pattern).sub, to) for pattern, to in rules if pattern.isascii()]

    def normalise(self, text: str) -> str:
        """A line of raw text -> the same with plain punctuation, without spaces around it."""
        for substitute, replacement in self._ascii if text.isascii() else self._all:
            text = substitute(replacement, text)
        return text.strip()


@functools.cache
def _tokenizer_class() -> Any:
    """sacremoses' MosesTokenizer, but its thousands of letters become a set once, not per word."""
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
    """The rules of one language.

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
        """Split one line of raw text into its tokens, with single spaces between them.

        The end of the line does not count: rules for quotation marks would read it as a character.
        """
        text = printable(self._normaliser.normalise(text.rstrip("\r\n")))
        tokens: str = self._tokenizer.tokenize(text, aggressive_dash_splits=True, return_str=True)
        return " ".join(tokens.split())

    def detokenise(self, tokens: str) -> str:
        """A line of tokens -> text, its punctuation where it belongs and nothing escaped."""
        text: str = self._detokenizer.detokenize(tokens.split())
        return text
