"""The whole matrix: every encoding x attention x direction x dtype runs, or says why it cannot."""

import pytest
import torch
from attention_cases import (
    ATTENTIONS,
    DIM,
    HEADS,
    NAMES,
    PAIRS,
    Layer,
    compatible,
    count,
    hooks_of,
    overflows,
    refusal,
    tokens,
)
from torch import Tensor

from fairseq_plugins.attention import build_attention, check_compatible
from fairseq_plugins.encodings import (
    ENCODINGS,
    IncompatibleEncodingError,
    PositionEncoding,
    build_encoding,
)
from fairseq_plugins.encodings.base import LOGIT_HOOKS

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("direction", ["causal", "bidirectional", "cross"])
@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_it_runs_with_finite_gradients_or_says_why_not(name, attention, direction, dtype):
    causal = direction == "causal"
    if not compatible(attention, name, causal):
        with pytest.raises(IncompatibleEncodingError) as caught:
            Layer(name, attention, causal=causal, dtype=dtype)
        assert_names_everything(str(caught.value), name, attention, causal)
        return
    layer = Layer(name, attention, causal=causal, dtype=dtype)
    inputs = {"x": tokens(2, 9, dtype)}
    if direction == "cross":
        inputs["memory"] = tokens(2, 13, dtype)
    if overflows(name, attention, dtype):
        with pytest.raises(ValueError, match=r"`normalizer` must not be clamped in float16 with"):
            run(layer, inputs)
        return
    output, gradients = run(layer, inputs)
    assert output.dtype == dtype
    assert output.isfinite().all()
    for key, gradient in gradients.items():
        assert gradient is not None, key
        assert gradient.isfinite().all(), key
        assert gradient.any() or key == "k_proj.bias", key


def run(layer: Layer, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the gradients of every input and parameter."""
    inputs = {key: x.detach().requires_grad_() for key, x in inputs.items()}
    keys = inputs["memory"] if "memory" in inputs else inputs["x"]
    padding = torch.zeros(keys.shape[:2], dtype=torch.bool)
    padding[1, -3:] = True
    output = layer(**inputs, at=count(9), memory_at=count(keys.size(1)), padding=padding)
    torch.manual_seed(1)
    (output * torch.randn(output.shape).to(output.dtype)).sum().backward()
    leaves = {**inputs, **dict(layer.named_parameters())}
    return output, {key: leaf.grad for key, leaf in leaves.items()}


def assert_names_everything(message: str, name: str, attention: str, causal: bool) -> None:
    """The attention or direction, the encoding, the hook or reason, and what would work."""
    missing = hooks_of(name) & LOGIT_HOOKS if attention == "linear" else frozenset()
    assert repr(name) in message
    if not missing:
        assert refusal(name, causal) in message
        assert message.endswith(f"a {'bidirectional' if causal else 'causal'} model would work.")
        return
    assert attention in message
    hooks = "`, `".join(sorted(missing))
    needs = f"its hooks `{hooks}` need the" if len(missing) > 1 else f"its hook `{hooks}` needs the"
    assert needs in message
    assert "attention_type=vanilla" in message
    assert "rope" in message.split("one of: ")[1].split(", ")


@pytest.mark.parametrize(("name", "attention"), PAIRS)
@pytest.mark.parametrize("causal", [True, False])
def test_the_check_before_any_work_agrees(name, attention, causal):
    if compatible(attention, name, causal):
        check_compatible(attention, name, causal=causal)
    else:
        with pytest.raises(IncompatibleEncodingError, match="cannot use the encoding"):
            check_compatible(attention, name, causal=causal)


def test_it_is_an_error_of_the_user():
    assert issubclass(IncompatibleEncodingError, ValueError)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ropee", "", "'rope'"),
        ("lrpe_type2", "rotatd=all", "no option `rotatd`.*'rotated'"),
        ("lrpe_type2", "p=haus", "option `p` must be one of .*'haus'"),
        ("lrpe_type2", "theta_type=b", "`theta_type=b` depends on"),
        ("lrpe_type2", "p", "words like `name=value`"),
        # Words that are arguments of build_encoding, but not options of the encoding.
        ("lrpe_type2", "causal=false", "no option `causal`"),
        ("lrpe_type2", "max_positions=9", "no option `max_positions`"),
        ("lrpe_type2", "generator=7", "no option `generator`"),
    ],
)
def test_bad_words_are_refused_by_the_check(name, options, message):
    with pytest.raises(ValueError, match=message):
        check_compatible("vanilla", name, options, causal=True)
    check_compatible("vanilla", "lrpe_type2", "theta_type=b", causal=False)


def test_an_odd_head_dim_is_refused_by_the_check():
    with pytest.raises(ValueError, match=r"`head_dim` must be even .*but is 63"):
        check_compatible("linear", "rope", causal=True, head_dim=63)


@pytest.mark.parametrize("attention", ["Linear", "softmax", ""])
def test_an_unknown_attention_is_refused(attention):
    found = f"`attention` .* must be one of .*where vanilla is softmax, but is {attention!r}"
    with pytest.raises(ValueError, match=found):
        build_attention(attention, None, num_heads=2, head_dim=4, causal=True)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_encoding_of_other_heads_is_refused(attention):
    encoding = build_encoding("rope", num_heads=4, head_dim=8, causal=True)
    with pytest.raises(ValueError, match=r"\(4, 8\), but the attention has \(2, 8\)"):
        build_attention(attention, encoding, num_heads=2, head_dim=8, causal=True)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["rope", "base+rope", "none"])
def test_an_encoding_of_the_other_direction_is_refused(attention, causal, name):
    """T5's buckets, for one, are others: its causal ones see no later key."""
    shape = {"num_heads": HEADS, "head_dim": DIM}
    names = [name, "t5", "t5+rope"] if attention == "vanilla" else [name]
    for encoding in names:
        other = build_encoding(encoding, causal=not causal, **shape)
        message = f"built for causal={causal}, .* but is built for causal={not causal} instead"
        with pytest.raises(ValueError, match=message):
            build_attention(attention, other, causal=causal, **shape)


@pytest.mark.parametrize(
    ("attention", "option", "owner"),
    [
        ("vanilla", {"feature_map": "relu"}, "linear"),
        ("vanilla", {"feature_map": "elu"}, "linear"),
        ("vanilla", {"normalizer": "plain"}, "linear"),
        ("vanilla", {"min_cosine": 0.2}, "linear"),
        ("linear", {"dropout": 0.1}, "vanilla"),
    ],
)
def test_options_of_another_attention_are_refused(attention, option, owner):
    (name,) = option
    with pytest.raises(ValueError, match=f"`{name}` must be left out .*option of {owner}"):
        build_attention(attention, None, num_heads=2, head_dim=4, causal=True, **option)


def test_an_option_of_none_is_refused():
    with pytest.raises(ValueError, match=r"`kernel` must be one of .*'normalizer'"):
        build_attention("linear", None, num_heads=2, head_dim=4, causal=True, kernel="elu")


class NeedsLength(PositionEncoding):
    """Reverse-aware: a causal model does not know the length."""

    causal_refusal = "it counts from the sequence's end"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_what_needs_the_length_is_refused_in_a_causal_model(attention):
    context = build_encoding("none", num_heads=HEADS, head_dim=DIM).context
    encoding = NeedsLength(context)
    build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    with pytest.raises(
        IncompatibleEncodingError, match=r"causal .*'NeedsLength': it counts .*bidirectional model"
    ):
        build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=True)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_no_encoding_is_the_encoding_none(attention):
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, HEADS, 5, DIM)
    outputs = []
    shape = {"num_heads": HEADS, "head_dim": DIM, "causal": True}
    for encoding in (None, build_encoding("none", **shape)):
        module = build_attention(attention, encoding, **shape)
        outputs.append(module(q, k, v, q_positions=count(5), k_positions=count(5))[0])
    assert torch.equal(*outputs)


def test_every_name_is_in_the_matrix():
    assert set(ENCODINGS) <= set(NAMES)
