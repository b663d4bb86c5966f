"""Moses' tokenisation and detokenisation, by sacremoses, sped up.

Punctuation is normalised, unprintable characters become spaces, and text is tokenised with splits
at hyphens (Moses' `-a`) and escapes (`&apos;`). Rules of sacremoses that cannot apply are skipped.
"""

import functools
import unicodedata

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
        raise OptionError(
            f"{option} must be one of {known}, but is {code!r}; {' and '.join(PRIVATE_USE)}, with "
            "English rules, are for files of other languages"
        )


def printable(text: str) -> str:
    """Replace unprintable characters by spaces."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


class Moses:
    """Tokenisation and detokenisation of one language.

    Raises:
        OptionError: a language without rules.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        check_language("language", language)
        rules = "en" if language in PRIVATE_USE else language
        self._normaliser, self._ascii_normaliser = (MosesPunctNormalizer(rules) for _ in range(2))
        substitutions = self._normaliser.substitutions
        self._ascii_normaliser.substitutions = [one for one in substitutions if one[0].isascii()]
        self._tokenizer = MosesTokenizer(rules)
        # Sets of letters, which sacremoses otherwise builds per word.
        lower, letters = frozenset(self._tokenizer.IsLower), frozenset(self._tokenizer.IsAlpha)
        self._tokenizer.islower = lower.issuperset
        self._tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
        self._detokenizer = MosesDetokenizer(rules)

    def normalise(self, text: str) -> str:
        """Normalise a line's punctuation and strip spaces, equal to sacremoses' normaliser.

        Most rules need a character outside ASCII and are skipped for ASCII text.
        """
        normaliser = self._ascii_normaliser if text.isascii() else self._normaliser
        return str(normaliser.normalize(text))

    def tokenise(self, text: str) -> str:
        """Tokenise a line of raw text; tokens are joined by single spaces.

        The line end is removed first: rules for quotation marks would match it.
        """
        text = printable(self.normalise(text.rstrip("\r\n")))
        tokens = self._tokenizer.tokenize(text, aggressive_dash_splits=True, return_str=True)
        return " ".join(tokens.split())

    def detokenise(self, tokens: str) -> str:
        """Detokenise and unescape a line of tokens."""
        return self._detokenizer.detokenize(tokens.split())
