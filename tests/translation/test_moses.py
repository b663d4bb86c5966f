"""Moses' rules: what sacremoses makes of a text in any language, by rules that can apply."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from fairseq_plugins.translation.moses import PRIVATE_USE, Moses, languages, printable

# What the rules are about (quotes, dashes, brackets, no-break spaces, numbers), and letters.
MARKS = {mark for pattern, _ in MosesPunctNormalizer("en").substitutions for mark in pattern}
TEXTS = st.text(alphabet=sorted(MARKS | set("\t\r013&|<>@#/ aAbzäßñщ漢")), max_size=40)
ABBREVIATIONS = ["Mr. Smith met Dr. No. 5 in the U.S. on Jan. 3.", "z.B. bzw. Nr. 7 u.a. gilt."]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(languages() - set(PRIVATE_USE))), TEXTS)
def test_punctuation_of_every_language(language, text):
    normal = Moses(language).normalise
    assert normal(text) == MosesPunctNormalizer(language).normalize(text)


@pytest.mark.parametrize(
    "language", ["en", "de", "fr", "cs", pytest.param("zh", marks=pytest.mark.slow)]
)
def test_tokens(language):
    moses, normaliser = Moses(language), MosesPunctNormalizer(language)
    tokenizer = MosesTokenizer(language)

    def expected(text):
        text = printable(normaliser.normalize(text.rstrip("\r\n")))
        return " ".join(tokenizer.tokenize(text, aggressive_dash_splits=True))

    @settings(max_examples=60, deadline=None)
    @given(TEXTS)
    def compare(text):
        assert moses.tokenise(text) == expected(text)
        assert all(moses.tokenise(text + end) == expected(text) for end in ("\n", "\r\n"))

    compare()
    for text in (*ABBREVIATIONS, 'Er sagte: "Ja."'):  # whose end some rules read
        assert moses.tokenise(text) == moses.tokenise(f"{text}\n") == expected(text)
