"""The printed table says what the registry and the attentions say."""

import pytest

from fairseq_plugins import catalog
from fairseq_plugins.encodings import ENCODINGS


def test_the_table_has_a_line_for_every_encoding() -> None:
    names = [line.split()[0] for line in catalog.table().splitlines()]
    assert names == ["name", *sorted(ENCODINGS)]


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_details_give_every_option_with_its_default_under_the_name(name: str) -> None:
    text = catalog.details(name)
    for option in ENCODINGS[name].options.values():
        default = option.default
        word = str(default).lower() if isinstance(default, bool) else str(default)
        assert f"  {option.name}={word} " in text


def test_attentions_follow_from_the_hooks() -> None:
    assert catalog.attentions(ENCODINGS["t5"]) == ["vanilla"]
    assert catalog.attentions(ENCODINGS["rope"]) == ["vanilla", "linear"]


def test_an_unknown_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["alibbi"]) == 2
    assert "'alibi'" in capsys.readouterr().err
