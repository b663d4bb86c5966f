"""The table of names, and the errors between a user's words and a constructor."""

import re

import pytest
import torch

from fairseq_plugins.encodings import (
    ENCODINGS,
    Compose,
    EncodingContext,
    PositionEncoding,
    build_encoding,
    build_model_encodings,
    get_entry,
    parse_options,
    register_composition,
    register_encoding,
    with_absolute_embedding,
)

CONTEXT = EncodingContext(num_heads=4, head_dim=8, embed_dim=32, max_positions=32, causal=True)


def build(name: str, **options) -> PositionEncoding:
    return build_encoding(name, num_heads=4, head_dim=8, **options)


@pytest.mark.parametrize(
    ("wrong", "meant"), [("rop", "rope"), ("lrpe_typ2", "lrpe_type2"), ("alibii", "alibi")]
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong, meant):
    for name in (wrong, f"base+{wrong}"):
        with pytest.raises(ValueError, match=f"`position_encoding` .*{wrong!r}.*{meant!r}\\?"):
            build(name)
    with pytest.raises(ValueError, match=r"but is 'xyzzy' instead\. The names are .*lrpe_type1, "):
        get_entry("xyzzy")
    with pytest.raises(ValueError, match="Import an encoding of your own first, or name its file"):
        get_entry("xyzzy")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rotary", "'rope'"),
        ("RoFormer", "'rope'"),
        ("relative", "'shaw', 't5' or 'xl'"),
        ("transformer-xl", "'xl'"),
        ("permuteformer", "'per'"),
        ("nope", "'none'"),
        ("learnable", "'learned'"),
    ],
)
def test_another_word_for_an_encoding_is_answered_with_its_name(word, meant):
    """Before the list of all names."""
    with pytest.raises(
        ValueError, match=f"but is {word!r} instead. Did you mean {meant}\\? The names"
    ):
        get_entry(word)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("none", ["Gu et al. 2025, NoPE"]),
        ("sinusoidal", ["Gu et al. 2025, Eq. 5"]),
        ("t5", ["LRPE, Eq. 7", "Gu et al. 2025, Eq. 6"]),
        ("alibi", ["Gu et al. 2025, Eq. 7"]),
        ("rope", ["LRPE, Eq. 9", "Gu et al. 2025, Eq. 8"]),
    ],
)
def test_sources_name_the_equations_of_the_papers(name, places):
    """The additive form of LRPE is its Eq. 7, the multiplicative one its Eq. 9."""
    for place in places:
        assert place in get_entry(name).source


def test_words_for_encodings_are_no_names():
    words = {word for entry in ENCODINGS.values() for word in entry.known_as}
    assert words
    assert not words & ENCODINGS.keys()


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"lrpe_type2 has no option `rotate`.*'rotated'\?"):
        build("lrpe_type2", rotate="all")
    with pytest.raises(ValueError, match="alibi has no option `p`; its options: none"):
        build("alibi", p="identity")


@pytest.mark.parametrize(
    ("name", "option", "value", "constraint"),
    [
        ("lrpe_type2", "p", "house", "one of identity, householder, odd_even, fft, dct"),
        ("lrpe_type2", "rotated", "some", "one of all, half, quarter"),
        ("lrpe_type2", "learned_theta", "maybe", "true or false"),
        ("lrpe_type2", "learned_theta", 2, "true or false"),
        ("lrpe_type2", "base", "big", "a number"),
        ("lrpe_type2", "base", True, "a number"),
        ("shaw", "max_distance", "far", "an integer"),
        ("shaw", "max_distance", "16.5", "an integer"),
        ("shaw", "max_distance", 16.5, "an integer"),
        ("shaw", "max_distance", None, "an integer"),
    ],
)
def test_a_bad_value_names_option_constraint_and_value(name, option, value, constraint):
    message = re.escape(f"{name}'s option `{option}` must be {constraint}, but is {value!r}")
    with pytest.raises(ValueError, match=message):
        build(name, **{option: value})


def test_words_and_python_values_mean_the_same():
    words = {"p": "identity", "learned_theta": "False", "base": "500", "rotated": "half"}
    values = {"p": "identity", "learned_theta": False, "base": 500.0, "rotated": "half"}
    x, at = torch.randn(1, 4, 3, 8), torch.tensor([[0, 5, 9]])
    first, second = (build("lrpe_type2", **o).transform_query(x, at) for o in (words, values))
    assert torch.equal(first, second)
    assert build("shaw", max_distance="16").max_distance == 16


def test_option_strings():
    assert parse_options(" p=identity   rotated=all ") == {"p": "identity", "rotated": "all"}
    assert parse_options("") == {}
    for text in ("p", "p=", "=identity", "p identity", {"p": "identity"}):
        with pytest.raises(ValueError, match="`position_encoding_options` must be words like"):
            parse_options(text)
    with pytest.raises(ValueError, match="must not give `p` twice"):
        parse_options("p=identity p=fft")


def test_names_compose():
    encoding = build("sinusoidal+rope+shaw", **{"shaw.max_distance": 5, "rope.base": "500"})
    assert isinstance(encoding, Compose)
    assert encoding.label == "sinusoidal+rope+shaw"
    assert encoding.hooks == {
        "embed", "transform_query", "transform_key", "relative_logits", "relative_values",
    }  # fmt: skip
    assert encoding.encodings[2].max_distance == 5


def test_an_option_of_a_composition_says_whose_it_is():
    for name in ("rope+shaw", "shaw+rope"):
        with pytest.raises(
            ValueError, match=r"`max_distance` must name its encoding .*`shaw.max_distance`"
        ):
            build(name, max_distance=5)
    with pytest.raises(ValueError, match=r"`t5.x` must be for one of .*but is for 't5'"):
        build("rope+shaw", **{"t5.x": 5})
    with pytest.raises(ValueError, match=r"shaw has no option `maxdistance`.*'max_distance'"):
        build("rope+shaw", **{"shaw.maxdistance": 5})
    assert build("shaw", **{"shaw.max_distance": 5}).max_distance == 5
    with pytest.raises(ValueError, match=r"`max_distance` of shaw must not be given twice"):
        build("shaw", **{"shaw.max_distance": 5, "max_distance": 6})


@pytest.mark.parametrize("name", ["rope+rope", "base+t5+base"])
def test_a_name_twice_is_refused(name):
    with pytest.raises(ValueError, match=f"must not name .* twice, but is {re.escape(repr(name))}"):
        build(name)


@pytest.mark.parametrize("argument", ["num_heads", "head_dim", "embed_dim", "max_positions"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "8"])
def test_a_context_without_meaning_is_refused(argument, value):
    sizes = {"num_heads": 4, "head_dim": 8, "embed_dim": 32, "max_positions": 32, argument: value}
    message = f"`{argument}` must be a positive integer, but is {value!r}"
    with pytest.raises(ValueError, match=message):
        EncodingContext(**sizes)


def test_a_new_encoding_is_one_decorated_class():
    """What a new file does: name, options and hooks come from the class alone."""
    try:

        @register_encoding(
            "test_only_shift", summary="adds", source="nowhere", formula="q + amount", amount=2.0
        )
        class Shift(PositionEncoding):
            def __init__(self, context: EncodingContext, *, amount: float = 1.0) -> None:
                super().__init__(context)
                self.amount = amount

            def transform_query(self, q, positions):
                return q + self.amount

        assert ENCODINGS["test_only_shift"].hooks == {"transform_query"}
        assert build("test_only_shift").amount == 2.0
        assert build("test_only_shift", amount="3").amount == 3.0
        with pytest.raises(ValueError, match="`amount` must be a number, but is 'x'"):
            build("test_only_shift", amount="x")
    finally:
        ENCODINGS.pop("test_only_shift", None)


@pytest.mark.parametrize(
    ("method", "hint"),
    [("attention_bias", " `attention_bias` is no hook. Did you mean 'attn_bias'?"), ("xyz", "")],
)
def test_a_class_without_a_hook_is_refused(method, hint):
    """It would act as ``none`` does."""
    wrong = type("Mine", (PositionEncoding,), {method: lambda self, q_positions, k_positions: 0})
    register = register_encoding("test_only_mine", summary="s", source="s", formula="f")
    message = "Mine must override a hook.* overrides none of attn_bias, embed, .*transform_value."
    with pytest.raises(ValueError, match=f"^{message}{re.escape(hint)}$"):
        register(wrong)
    assert "test_only_mine" not in ENCODINGS


def cell(name: str = "test_only_cell") -> type[PositionEncoding]:
    """Run a notebook's cell with a class of an encoding."""

    class Cell(PositionEncoding):
        def transform_query(self, q, positions):
            return q

    return register_encoding(name, summary="s", source="s", formula="f")(Cell)


def test_an_option_that_no_word_can_give_is_refused():
    class Untyped(PositionEncoding):
        reads_positions = False

        def __init__(self, context, *, width=1.0):
            super().__init__(context)

    class Positional(Untyped):
        def __init__(self, context, width: float = 1.0):
            super().__init__(context)

    class List(Untyped):
        def __init__(self, context, *, width: list = ()):
            super().__init__(context)

    class Required(Untyped):
        def __init__(self, context, *, width: float):
            super().__init__(context)

    try:
        for cls in (Untyped, Positional, List, Required):
            name = f"test_only_{cls.__name__.lower()}"
            register_encoding(name, summary="s", source="s", formula="f")(cls)
            message = rf"option `width` of {name} must be after `\*`, .* but is `width"
            with pytest.raises(ValueError, match=message):
                build(name, width=2.0)
    finally:
        for name in [name for name in ENCODINGS if name.startswith("test_only_")]:
            del ENCODINGS[name]


def test_a_class_that_is_defined_anew_replaces_itself():
    try:
        cell()
        second = cell()
        assert ENCODINGS["test_only_cell"].cls is second
        register_composition("test_only_pair", ("rope", "t5"), summary="s", source="s")
        register_composition("test_only_pair", ("rope", "t5"), summary="anew", source="s")
        assert ENCODINGS["test_only_pair"].summary == "anew"
        message = "name must be new, but 'test_only_pair' is that of .*Compose"
        with pytest.raises(ValueError, match=message):
            register_composition("test_only_pair", ("rope", "xl"), summary="s", source="s")
    finally:
        ENCODINGS.pop("test_only_cell", None)
        ENCODINGS.pop("test_only_pair", None)


def test_a_name_of_another_class_is_refused():
    before = ENCODINGS["alibi"]
    with pytest.raises(
        ValueError, match=r"name must be new, but 'alibi' is that of .*\.bias\.ALiBi"
    ):
        cell("alibi")
    assert ENCODINGS["alibi"] is before


@pytest.mark.parametrize("name", ["my enc+x", "rope-2", "a.b", "", "é"])
def test_a_name_of_other_characters_is_refused(name):
    """Names are joined by `+`, and options by `.`."""
    with pytest.raises(
        ValueError, match=f"must be of ASCII letters, .*but is {re.escape(repr(name))}"
    ):
        cell(name)
    assert name not in ENCODINGS


def test_a_stack_shares_what_its_papers_share():
    t5 = build_model_encodings("t5", 3, CONTEXT, {})
    assert t5.inputs == [None] * len(t5.layers)
    assert t5.layers[0] is t5.layers[1] is t5.layers[2]
    lrpe = build_model_encodings("lrpe_type3", 3, CONTEXT, {})
    assert len({id(layer) for layer in lrpe.layers}) == 3
    assert not torch.equal(lrpe.layers[0].v, lrpe.layers[1].v)


def test_a_stack_embeds_once_and_attends_in_every_layer():
    parts = build_model_encodings("base+t5+lrpe_type2", 2, CONTEXT, {"t5.num_buckets": "8"})
    assert parts.inputs[0] is not None
    assert parts.inputs[0].label == "base"
    first, second = parts.layers
    assert isinstance(first, Compose)
    assert isinstance(second, Compose)
    assert first.label == "t5+lrpe_type2"
    assert first.encodings[0] is second.encodings[0]
    assert first.encodings[0].num_buckets == 8
    assert first.encodings[1] is not second.encodings[1]


def test_a_stack_with_nothing_in_its_attention():
    assert build_model_encodings("none", 2, CONTEXT, {}).layers == [None, None]
    only_embedding = build_model_encodings("learned", 2, CONTEXT, {})
    assert only_embedding.layers == [None, None]
    assert only_embedding.inputs[0] is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rope", "base+rope"),
        ("t5", "base+t5"),
        ("rope+shaw", "base+rope+shaw"),
        ("alibi", "alibi"),
        ("none", "none"),
        ("base", "base"),
        ("learned", "learned"),
        ("sinusoidal+t5", "sinusoidal+t5"),
        ("t5+alibi", "t5+alibi"),
    ],
)
def test_the_absolute_embedding_stays_on_where_the_papers_keep_it(name, expected):
    assert with_absolute_embedding(name, "base") == expected
    assert with_absolute_embedding(name, None) == name
