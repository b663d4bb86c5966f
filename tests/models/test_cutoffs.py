"""Cut-offs of adaptive inputs and softmax are numbers, wherever they come from."""

import pytest

from fairseq_plugins.modules.cutoffs import parse_cutoffs


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("20000,60000", [20000, 60000]),
        ("10", [10]),
        (" 10 , 20,", [10, 20]),
        ("[10, 20]", [10, 20]),
        ("(10,)", [10]),
        ("010,020", [10, 20]),
        (None, None),
    ],
)
def test_numbers(text: str | None, numbers: list[int] | None) -> None:
    assert parse_cutoffs("adaptive_softmax_cutoff", text) == numbers


@pytest.mark.parametrize(
    "text", ["", "10;20", "1e3", "-1", "10,,20", "[10", "[10)", "10 20", "print(1)", "٣", "[[10]]"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"`cut` must be numbers .* as in 20000,60000, but is"):
        parse_cutoffs("cut", text)
