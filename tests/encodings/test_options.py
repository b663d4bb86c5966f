"""Every option of every encoding, as the words that a command line gives."""

import pytest

from fairseq_plugins.encodings import ENCODINGS, build_encoding
from fairseq_plugins.encodings.registry import split_options

OPTIONS = [(name, option) for name, entry in ENCODINGS.items() for option in entry.options]


def word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def build(name: str, causal: bool, **options: object) -> object:
    return build_encoding(
        name, num_heads=2, head_dim=8, max_positions=32, vocab_size=9, causal=causal, **options
    )


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_default_survives_as_a_word(name, option):
    default = ENCODINGS[name].options[option].default
    part, _, key = option.rpartition(".")
    taken = split_options(name, {option: word(default)})[part or name][key]
    assert taken == default
    assert type(taken) is type(default)


CHOICES = [
    (name, key, choice)
    for name, key in OPTIONS
    for option in [ENCODINGS[name].options[key]]
    for choice in (option.choices or ((True, False) if option.type is bool else ()))
]


@pytest.mark.parametrize(("name", "option", "choice"), CHOICES)
def test_every_choice_builds_or_is_refused_by_name(name, option, choice):
    """In at least one direction it builds, or the refusal names the option."""
    refusals = []
    for causal in (True, False):
        try:
            build(name, causal, **{option: word(choice)})
        except ValueError as refusal:
            refusals.append(str(refusal))
    key = option.rpartition(".")[2]
    assert len(refusals) < 2 or all(f"`{key}" in refusal for refusal in refusals), refusals
