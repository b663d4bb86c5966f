"""The adapter beside fairseq's own ``MultiheadAttention``. Shapes are fairseq's: T x B x C."""

from typing import Any

import pytest
import torch
from attention_cases import steps_of
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.attention.multihead import FairseqMultiheadAttention
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import build_encoding

WIDTH, HEADS, LENGTH, BATCH, MEMORY = 32, 4, 9, 3, 6
ATTENTIONS = ["vanilla", "linear"]
both = pytest.mark.parametrize("attention", ATTENTIONS)


def build(
    attention: str = "vanilla", encoding: str | None = None, *, causal: bool = True, **options: Any
) -> FairseqMultiheadAttention:
    shape = {"num_heads": HEADS, "head_dim": WIDTH // HEADS, "causal": causal}
    inside = None if encoding is None else build_encoding(encoding, **shape)
    return FairseqMultiheadAttention(
        WIDTH, build_attention(attention, inside, **shape), **options
    ).eval()


def build_pair(**options: Any) -> tuple[FairseqMultiheadAttention, MultiheadAttention]:
    """The adapter around softmax without an encoding, and fairseq's module, with equal weights."""
    cross = "encoder_decoder_attention" in options
    kind = options if cross else {"self_attention": True}
    reference = MultiheadAttention(WIDTH, HEADS, **kind).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    module = build(causal=not cross, **options)
    module.load_state_dict(reference.state_dict())
    return module, reference


def words(length: int = LENGTH, batch: int = BATCH, width: int = WIDTH) -> Tensor:
    return torch.randn(length, batch, width)


def future(length: int = LENGTH) -> Tensor:
    return torch.full((length, length), float("-inf")).triu(1)


def right_padding(length: int) -> Tensor:
    mask = torch.zeros(BATCH, length, dtype=torch.bool)
    mask[1, -2:] = True
    return mask


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_starts_as_fairseq_does() -> None:
    """Names, order and initial values: a checkpoint of one loads into the other."""
    for options in ({}, {"kdim": 16, "vdim": 24}):
        states = []
        for cls in (build, lambda **o: MultiheadAttention(WIDTH, HEADS, **o)):
            torch.manual_seed(1)
            states.append(cls(**options).state_dict())
        assert list(states[0]) == list(states[1])
        for name, value in states[1].items():
            assert torch.equal(states[0][name], value), name


@pytest.mark.parametrize("padded", [False, True])
def test_self_attention_is_fairseq(padded: bool) -> None:
    module, reference = build_pair()
    x, mask = words(), right_padding(LENGTH) if padded else None
    output, weights = module(x, x, x, key_padding_mask=mask)
    expected, expected_weights = reference(x, x, x, key_padding_mask=mask, attn_mask=future())
    close(output, expected)
    close(weights, expected_weights)
    output, weights = module(x, x, x, key_padding_mask=mask, need_weights=False)
    close(output, expected)
    assert weights is None


def test_weights_per_head_are_fairseq() -> None:
    module, reference = build_pair()
    x = words()
    _, weights = module(x, x, x, need_head_weights=True)
    # Without a state fairseq takes PyTorch's path, which has the mean over heads only.
    _, expected = reference(
        x, x, x, need_head_weights=True, attn_mask=future(), incremental_state={}
    )
    assert weights.shape == (HEADS, BATCH, LENGTH, LENGTH)
    close(weights, expected)


@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention_is_fairseq(padded: bool) -> None:
    options = {"encoder_decoder_attention": True, "kdim": 16, "vdim": 16}
    module, reference = build_pair(**options)
    x, memory = words(), words(MEMORY, width=16)
    mask = right_padding(MEMORY) if padded else None
    output, weights = module(x, memory, memory, key_padding_mask=mask)
    expected, expected_weights = reference(x, memory, memory, key_padding_mask=mask)
    close(output, expected)
    close(weights, expected_weights)


@both
def test_weights_are_returned_only_when_asked(attention: str) -> None:
    """Shaw's encoding has them made in any case."""
    x = words()
    encoding = "shaw" if attention == "vanilla" else "rope"
    _, weights = build(attention, encoding)(x, x, x, need_weights=False)
    assert weights is None


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_extra_mask(kind: str) -> None:
    """A caller's mask beside the causal one; its row for a query that sees itself stays."""
    module, reference = build_pair()
    x, hidden = words(), torch.rand(LENGTH, LENGTH) < 0.4
    hidden.fill_diagonal_(False)
    added = torch.zeros(LENGTH, LENGTH).masked_fill(hidden, float("-inf"))
    mask = hidden if kind == "bool" else added
    output, _ = module(x, x, x, attn_mask=mask)
    close(output, reference(x, x, x, attn_mask=added + future())[0])


def decode(
    module: FairseqMultiheadAttention,
    x: Tensor,
    sizes: tuple[int, ...],
    mask: Tensor | None = None,
) -> Tensor:
    state: dict[str, Any] = {}
    outputs = []
    steps = steps_of(Positions.of(mask, len(x)), sizes)
    for now, at in zip(x.split(sizes), steps, strict=True):
        output, weights = module(
            now,
            now,
            now,
            key_padding_mask=at,
            incremental_state=state,
            need_weights=False,
        )
        assert weights is None
        outputs.append(output)
    return torch.cat(outputs)


@both
@pytest.mark.parametrize("sizes", [(1,) * LENGTH, (4, 1, 1, 3), (LENGTH,)])
def test_steps_of_any_size(attention: str, sizes: tuple[int, ...]) -> None:
    module, x = build(attention, "lrpe_type1"), words()
    expected, _ = module(x, x, x, need_weights=False)
    close(decode(module, x, sizes), expected)


@both
@pytest.mark.parametrize("left", [False, True])
def test_steps_after_a_padded_prompt(attention: str, left: bool) -> None:
    """Positions go on from the tokens that were no padding."""
    module, x = build(attention, "rope"), words()
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[1, slice(2) if left else slice(2, 4)] = True
    output = decode(module, x, (4, 1, 1, 3), mask)
    kept = x[:, 1:2][~mask[1]]
    expected, _ = module(kept, kept, kept, need_weights=False)
    close(output[:, 1:2][~mask[1]], expected)


@both
def test_beam_reordering(attention: str) -> None:
    module, x, state = build(attention, "lrpe_type2"), words(), {}
    options = {"incremental_state": state, "need_weights": False}
    steps = steps_of(Positions.of(None, LENGTH), [1] * LENGTH)
    for step, at in zip(x[:4].split(1), steps[:4], strict=True):
        module(step, step, step, at, **options)
    for order in ([2, 2, 0], [1, 0]):
        rows = torch.tensor(order)
        module.reorder_incremental_state(state, rows)
        x = x[:, rows]
    output = torch.cat(
        [
            module(step, step, step, at, **options)[0]
            for step, at in zip(x[4:].split(1), steps[4:], strict=True)
        ]
    )
    close(output, module(x, x, x, need_weights=False)[0][4:])


@both
@pytest.mark.parametrize("inference", [False, True])
def test_an_order_that_is_written_to_again(attention: str, inference: bool) -> None:
    """And one for states of several sizes: only a beam search of fairseq's makes a new one."""
    with torch.inference_mode(inference):
        module, x = build(attention, "lrpe_type2"), words()[:, [0, 1, 2, 0]]
        order = torch.arange(4)
        for rows in ([0, 1, 2, 3], [1, 0, 3, 2]):
            order.copy_(torch.tensor(rows))
            state = _after_four(module, x)
            module.reorder_incremental_state(state, order)
            moved, (_, at) = x[:, rows], steps_of(Positions.of(None, 5), [4, 1])
            options = {"incremental_state": state, "need_weights": False}
            close(
                module(*3 * [moved[4:5]], at, **options)[0],
                module(*3 * [moved[:5]], need_weights=False)[0][4:],
            )
        fewer = _after_four(module, x[:, :2])
        module.reorder_incremental_state(fewer, order[:2])


def _after_four(module, x):
    state: dict = {}
    for step, at in zip(x[:4].split(1), steps_of(Positions.of(None, 4), [1] * 4), strict=True):
        module(step, step, step, at, incremental_state=state, need_weights=False)
    return state


@both
def test_reordering_before_the_first_step(attention: str) -> None:
    state: dict[str, Any] = {}
    assert build(attention).reorder_incremental_state(state, torch.tensor([0])) == {}


@both
@pytest.mark.parametrize("encoding", [None, "rope"])
def test_cross_attention_in_steps(attention: str, encoding: str | None) -> None:
    """The memory is projected in the first step; later the key may be None, as in fairseq."""
    module = build(attention, encoding, causal=False, encoder_decoder_attention=True)
    x, memory, mask = words(), words(MEMORY), right_padding(MEMORY)
    expected, _ = module(x, memory, memory, key_padding_mask=mask, need_weights=False)
    state, outputs, keys = {}, [], Positions.of(mask, MEMORY)
    steps = steps_of(Positions.of(None, LENGTH), [1] * LENGTH)
    for index, (step, at) in enumerate(zip(x.split(1), steps, strict=True)):
        source = memory if index == 0 else None
        output, _ = module(
            step,
            source,
            source,
            key_padding_mask=at.across(keys),
            incremental_state=state,
            static_kv=True,
            need_weights=False,
        )
        outputs.append(output)
    close(torch.cat(outputs), expected)
    rows = torch.tensor([1, 1, 0])
    module.reorder_incremental_state(state, rows)
    at = steps[-1].across(Positions.of(mask[rows], MEMORY))
    again, _ = module(
        x[-1:, rows], None, None, at, incremental_state=state, static_kv=True, need_weights=False
    )
    close(again, expected[-1:, rows])


def test_cross_attention_weights_in_steps() -> None:
    module, reference = build_pair(encoder_decoder_attention=True)
    x, memory, mask = words(1), words(MEMORY), right_padding(MEMORY)
    at = Positions.of(None, 1).across(Positions.of(mask, MEMORY))
    for per_head in (False, True):
        options = {"static_kv": True, "need_head_weights": per_head}
        results = [
            m(x, memory, memory, padding, incremental_state={}, **options)
            for m, padding in ((module, at), (reference, mask))
        ]
        close(results[0][0], results[1][0])
        close(results[0][1], results[1][1])


def test_two_modules_in_one_state() -> None:
    """Layers share fairseq's dictionary of states, each under its own name."""
    first, second, x = build("linear", "rope"), build("linear", "rope"), words()
    state: dict[str, Any] = {}
    steps = steps_of(Positions.of(None, LENGTH), [1] * LENGTH)
    for step, at in zip(x.split(1), steps, strict=True):
        for module in (first, second):
            output, _ = module(step, step, step, at, incremental_state=state, need_weights=False)
    close(output, second(x, x, x, need_weights=False)[0][-1:])
    assert len({key.partition(".")[0] for key in state}) == 2


def test_quantisation_noise() -> None:
    module, x = build(q_noise=0.5, qn_block_size=8).train(), words()
    outputs = [module(x, x, x, need_weights=False)[0] for _ in range(2)]
    assert not torch.equal(*outputs)


@pytest.mark.parametrize(
    ("modules", "drops"), [(None, True), (["FairseqMultiheadAttention"], True), (["Other"], False)]
)
def test_retained_dropout(modules: list[str] | None, drops: bool) -> None:
    """``--retain-dropout`` of fairseq-generate, which fairseq's own module keeps too."""
    attention = build_attention(
        "vanilla", None, num_heads=HEADS, head_dim=WIDTH // HEADS, causal=True, dropout=0.5
    )
    module, x = FairseqMultiheadAttention(WIDTH, attention).eval(), words()
    expected, _ = module(x, x, x)
    module.make_generation_fast_(retain_dropout=True, retain_dropout_modules=modules)
    assert torch.equal(module(x, x, x)[0], expected) != drops
    module.make_generation_fast_()
    assert torch.equal(module(x, x, x)[0], expected)


def test_refusals() -> None:
    x, whole = words(), Positions.of(None, LENGTH)
    with pytest.raises(ValueError, match=r"`embed_dim` must be .* = 16, but is 32"):
        attention = build_attention("vanilla", None, num_heads=2, head_dim=8, causal=True)
        FairseqMultiheadAttention(32, attention)
    with pytest.raises(ValueError, match="`before_softmax` must be False"):
        build()(x, x, x, before_softmax=True)
    with pytest.raises(ValueError, match="`need_weights` must be False for linear"):
        build("linear")(x, x, x)
    with pytest.raises(ValueError, match="`attn_mask` must be None for linear"):
        build("linear")(x, x, x, attn_mask=future(), need_weights=False)
    for attention in ATTENTIONS:
        for options in ({"need_weights": True}, {"need_weights": False, "attn_mask": future()}):
            with pytest.raises(ValueError, match="must be left off in a decoding step"):
                build(attention)(x, x, x, whole, incremental_state={}, **options)
        with pytest.raises(ValueError, match="must be `Positions` in a decoding step"):
            build(attention)(x, x, x, incremental_state={}, need_weights=False)
