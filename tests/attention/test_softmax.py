"""Softmax attention: the formula, masks, weights, dropout, and which path of PyTorch it takes."""

import pytest
import torch
from attention_cases import (
    CAUSAL,
    DIM,
    DIRECTED,
    HEADS,
    VOCAB,
    Layer,
    count,
    error,
    hooks_of,
    redraw,
    refusal,
    tokens,
)
from torch import Tensor
from torch.nn import functional

from fairseq_plugins.attention import base, build_attention, softmax
from fairseq_plugins.encodings import Compose, PositionEncoding, build_encoding
from fairseq_plugins.encodings.base import LOGIT_HOOKS

NAMES = [name for name, attention in CAUSAL if attention == "vanilla"]
every_name = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(
    ("name", "causal"), [(name, c) for name, attention, c in DIRECTED if attention == "vanilla"]
)


def build(name: str | None, *, causal: bool, **options):
    encoding = None
    if name is not None:
        encoding = build_encoding(
            name, num_heads=HEADS, head_dim=DIM, causal=causal, vocab_size=VOCAB
        ).double()
    return build_attention(
        "vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
    )


def by_the_formula(
    encoding: PositionEncoding, qkv: Tensor, at: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """softmax(scale (q~ k~ + r) + b) v~ + the values' part, decoded, hook by hook."""
    q, k, v = qkv
    redraw(encoding, int(base.draw_seed()))
    logits = encoding.transform_query(q, at) @ encoding.transform_key(k, at).mT
    if "relative_logits" in encoding.hooks:
        logits = logits + encoding.relative_logits(q, k, at, at)
    logits = logits * encoding.logit_scale()
    if "attn_bias" in encoding.hooks:
        logits = logits + encoding.attn_bias(at, at)
    weights = logits.masked_fill(hidden, float("-inf")).softmax(-1)
    output = weights @ encoding.transform_value(v, at)
    if "relative_values" in encoding.hooks:
        output = output + encoding.relative_values(weights, at, at)
    return encoding.transform_output(output, at), weights


@every_case
def test_it_is_the_formula(name, causal):
    attention = build(name, causal=causal)
    qkv, at = torch.randn(3, 2, HEADS, 7, DIM, dtype=torch.float64), count(7)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    hidden = padding[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected, weights = by_the_formula(attention.encoding, qkv, at, hidden)
    more = {"q_positions": at, "k_positions": at, "key_padding_mask": padding}
    output, returned = attention(*qkv, **more, need_weights=True)
    assert error(output, expected) <= 1e-9
    assert error(returned, weights) <= 1e-9
    torch.testing.assert_close(returned.sum(-1), torch.ones(2, HEADS, 7, dtype=torch.float64))
    assert not returned[hidden.expand_as(returned)].any()
    output, returned = attention(*qkv, **more, need_weights=False)
    assert error(output, expected) <= 1e-9
    assert returned is None


class KeyContent(PositionEncoding):
    """A term that reads the keys, as in Transformer-XL or DeBERTa."""

    def relative_logits(self, q, k, q_positions, k_positions):
        return q.sum(-1, keepdim=True) * k.sum(-1).unsqueeze(-2)


def test_content_terms_read_the_keys_before_their_transform():
    """Whole, and from the state of a decoder."""
    rope = build_encoding("rope", num_heads=HEADS, head_dim=DIM, causal=True)
    encoding = Compose([rope, KeyContent(rope.context)])
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=True)
    qkv, at = torch.randn(3, 2, HEADS, 6, DIM, dtype=torch.float64), count(6)
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected, _ = by_the_formula(encoding, qkv, at, future)
    whole, _ = attention(*qkv, q_positions=at, k_positions=at)
    assert error(whole, expected) <= 1e-12
    state = None
    for s in range(6):
        now = qkv[:, :, :, s : s + 1]
        step, state = attention.step(*now, positions=count(1, s), state=state)
        assert error(step, expected[:, :, s : s + 1]) <= 1e-12


@every_case
def test_masks_of_either_kind_hide_the_same(name, causal):
    attention = build(name, causal=causal)
    qkv, at = torch.randn(3, 2, HEADS, 6, DIM, dtype=torch.float64), count(6)
    hidden = torch.rand(2, HEADS, 6, 6) < 0.3
    hidden |= torch.eye(6, dtype=torch.bool).roll(1, dims=0)
    hidden[..., 0] = False
    whole = hidden | torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else hidden
    expected, _ = by_the_formula(attention.encoding, qkv, at, whole)
    minus_infinity = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
    for mask in (hidden, minus_infinity, minus_infinity.double(), hidden * -1e8):
        for need_weights in (True, False):
            output, _ = attention(
                *qkv, q_positions=at, k_positions=at, attn_mask=mask, need_weights=need_weights
            )
            assert error(output, expected) <= 1e-9


@pytest.mark.parametrize("name", [None, "t5", "shaw"])
def test_masks_of_every_shape(name):
    attention = build(name, causal=False)
    qkv, at = torch.randn(3, 2, HEADS, 6, DIM, dtype=torch.float64), count(6)
    hidden = torch.rand(2, 6, 6) < 0.4
    hidden[..., 0] = False
    by_batch = hidden.unsqueeze(1).expand(-1, HEADS, -1, -1)
    shared = hidden[:1].unsqueeze(1).expand(2, HEADS, -1, -1)

    def run(mask: Tensor) -> Tensor:
        return attention(*qkv, q_positions=at, k_positions=at, attn_mask=mask)[0]

    torch.testing.assert_close(run(hidden), run(by_batch))
    torch.testing.assert_close(run(hidden[0]), run(shared))


@pytest.mark.parametrize("name", [None, "rope", "alibi", "shaw", "sinusoidal_rpe"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("remembered", [True, False])
def test_a_row_of_padding_alone_gets_zeros(name, need_weights, remembered):
    """As under linear attention, and as with a mask that hides nothing."""
    attention = build(name, causal=False)
    q, k, v = torch.randn(3, 2, HEADS, 4, DIM, dtype=torch.float64)
    at, padding = count(4), torch.tensor([[False, False, True, True], [True] * 4])
    if remembered:
        state = attention.remember(k, v, k_positions=at, key_padding_mask=padding)
        found = attention.attend(q, state, q_positions=at, need_weights=need_weights)
    else:
        found = attention(
            q, k, v, q_positions=at, k_positions=at, key_padding_mask=padding,
            need_weights=need_weights,
        )  # fmt: skip
    for x in filter(lambda x: x is not None, found):
        assert x[1].count_nonzero() == 0 and x[0].abs().sum() > 0


@pytest.mark.parametrize("name", [None, "rope", "alibi", "shaw"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("as_float", [True, False])
def test_a_query_that_may_see_nothing_gets_zeros(name, need_weights, as_float):
    """As in PyTorch; the values that are hidden from it would leak, and a NaN would spread."""
    attention = build(name, causal=False)
    qkv, at = torch.randn(3, 1, HEADS, 4, DIM, dtype=torch.float64), count(4)
    qkv.requires_grad_()
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[2] = True
    if as_float:
        mask = torch.zeros(4, 4).masked_fill(mask, float("-inf"))
    output, weights = attention(
        *qkv, q_positions=at, k_positions=at, attn_mask=mask, need_weights=need_weights
    )
    assert output.isfinite().all()
    assert not output[:, :, 2].any()
    assert weights is None or not weights[:, :, 2].any()
    output.sum().backward()
    assert qkv.grad is not None
    assert qkv.grad.isfinite().all()


@pytest.mark.parametrize("name", [None, "rope", "alibi", "shaw", "cope"])
def test_a_causal_query_that_may_not_see_itself_sees_no_later_token(name):
    attention = build(name, causal=True)
    qkv, at = torch.randn(3, 1, HEADS, 4, DIM, dtype=torch.float64), count(4)
    qkv.requires_grad_()
    mask = torch.eye(4, dtype=torch.bool)
    output, _ = attention(*qkv, q_positions=at, k_positions=at, attn_mask=mask)
    assert not output[:, :, 0].any()
    (gradient,) = torch.autograd.grad(output[:, :, :2].sum(), qkv)
    assert not gradient[:, :, :, 2:].any()


@every_name
def test_weights_come_from_the_same_attention(name):
    """The path that returns weights against the one that does not, in float32."""
    layer = Layer(name, "vanilla", causal=True, dtype=torch.float32)
    x = tokens(2, 8, torch.float32)
    assert error(layer(x, count(8), need_weights=True), layer(x, count(8))) <= 1e-5


class Calls:
    """Stands in for scaled_dot_product_attention and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, object]] = []
        self.real = functional.scaled_dot_product_attention
        monkeypatch.setattr(functional, "scaled_dot_product_attention", self)

    def __call__(self, q, k, v, attn_mask=None, **options):
        self.calls.append({"attn_mask": attn_mask, **options})
        return self.real(q, k, v, attn_mask, **options)


@every_name
def test_no_mask_is_made_where_none_is_needed(name, monkeypatch):
    calls = Calls(monkeypatch)
    x = tokens(2, 8)
    directions = [causal for causal in (True, False) if refusal(name, causal) is None]
    for causal in directions:
        with torch.no_grad():
            Layer(name, "vanilla", causal=causal)(x, count(8))
    if hooks_of(name) & {"relative_values"}:
        assert not calls.calls, "the weights are needed, so this path is explicit"
        return
    biased = bool(hooks_of(name) & LOGIT_HOOKS)
    for call, causal in zip(calls.calls, directions, strict=True):
        assert call["is_causal"] == (causal and not biased)
        assert (call["attn_mask"] is not None) == biased


def learns_logits(name):
    """Whether what joins q.k has a gradient."""
    hooks = hooks_of(name)
    encoding = Layer(name, "vanilla", causal=refusal(name, True) is None).attention.encoding
    has_parameters = encoding is not None and any(True for _ in encoding.parameters())
    return "relative_logits" in hooks or ("attn_bias" in hooks and has_parameters)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if learns_logits(n) or n in ("lrpe_type8", "cosformer")]
)
@pytest.mark.parametrize("padded", [False, True])
def test_what_goes_by_head_in_training_is_the_same_without_gradients(name, padded, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.kernels.softmax.FEWEST_PAIRS", 0)
    causal = refusal(name, True) is None
    layer, x = Layer(name, "vanilla", causal=causal), tokens(2, 8)
    padding = torch.arange(8).expand(2, 8) >= torch.tensor([[8], [6]]) if padded else None
    torch.manual_seed(1)  # of noise, where there is any
    with torch.no_grad():
        expected = layer(x, count(8), padding=padding)
    calls = Calls(monkeypatch)
    torch.manual_seed(1)
    output = layer(x, count(8), padding=padding)
    assert not calls.calls, "PyTorch's plain formula is slower than ours"
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["none", "rope", "lrpe_type8"])
def test_a_step_and_a_padded_batch_make_only_what_they_must(name, monkeypatch):
    calls = Calls(monkeypatch)
    layer, state = Layer(name, "vanilla", causal=True), None
    for s in range(3):
        _, state = layer.step(tokens(2, 1), count(1, s), state)
    assert [call["attn_mask"] for call in calls.calls] == [None] * 3
    padding = torch.zeros(2, 8, dtype=torch.bool)
    padding[1, 6:] = True
    with torch.no_grad():
        Layer(name, "vanilla", causal=False)(tokens(2, 8), count(8), padding=padding)
    mask = calls.calls[-1]["attn_mask"]
    assert isinstance(mask, Tensor)
    assert mask.dtype == torch.bool
    assert mask.shape == (2, 1, 1, 8), "no T x S mask for padding alone"


@pytest.mark.parametrize(
    ("name", "need_weights"), [("rope", False), ("rope", True), ("t5", False), ("shaw", False)]
)
def test_dropout_acts_in_training_only(name, need_weights):
    layer = Layer(name, "vanilla", causal=True, dropout=0.5)
    plain = Layer(name, "vanilla", causal=True)
    plain.load_state_dict(layer.state_dict())
    x, at = tokens(1, 12), count(12)

    def run(module: Layer, rows: int = 1) -> Tensor:
        return module(x.expand(rows, -1, -1), at, need_weights=need_weights)

    assert error(run(layer), run(layer)) > 1e-3
    with torch.no_grad():
        mean = run(layer, rows=800).mean(0, keepdim=True)
    layer.eval()
    assert torch.equal(run(layer), run(layer))
    assert error(run(layer), run(plain)) <= 1e-12
    assert error(mean, run(plain)) <= 0.25, "kept weights are scaled up"


@pytest.mark.parametrize("dropout", [-0.1, 1.5])
def test_a_dropout_without_meaning_is_refused(dropout):
    with pytest.raises(ValueError, match=f"`dropout` must be between 0 and 1, but is {dropout}"):
        build("rope", causal=True, dropout=dropout)


def test_biases_are_made_once_where_the_whole_batch_has_the_same_positions(monkeypatch):
    attention = build("t5", causal=False)
    shapes = []
    real = attention.encoding.attn_bias

    def watched(q_positions, k_positions):
        bias = real(q_positions, k_positions)
        shapes.append(tuple(bias.shape))
        return bias

    monkeypatch.setattr(attention.encoding, "attn_bias", watched)
    qkv = torch.randn(3, 5, HEADS, 6, DIM, dtype=torch.float64)
    attention(*qkv, q_positions=count(6), k_positions=count(6))
    assert shapes == [(1, HEADS, 6, 6)]


@pytest.mark.parametrize(
    ("name", "causal"),
    [(name, True) for name in ("alibi", "fire", "shaw_keys", "tupe")]
    + [("t5", False), ("xl", False)],
)
def test_blocks_of_queries_give_what_all_give_at_once(name, causal, monkeypatch):
    layer = Layer(name, "vanilla", causal=causal)
    x, padding = tokens(2, 21), torch.zeros(2, 21, dtype=torch.bool)
    padding[1, -4:] = True
    results = []
    for block in (21, 4):
        monkeypatch.setattr(softmax, "BLOCK", block)
        monkeypatch.setattr(softmax, "MANY_ADDED", 0)
        monkeypatch.setattr(softmax, "MANY_ADDED_IN_TRAINING", 0)
        leaf = x.detach().requires_grad_()
        output = layer(leaf, count(21), padding=padding)
        leaves = [leaf, *layer.parameters()]
        grads = torch.autograd.grad(output[~padding].square().sum(), leaves)
        with torch.no_grad():
            results.append((output, layer(leaf, count(21), padding=padding), *grads))
    for one, other in zip(*results, strict=True):
        assert error(one, other) <= 1e-10


def test_gradients_are_of_the_noise_of_their_own_pass(monkeypatch):
    """Two passes may come before one backward."""
    layer, x, found = Layer("spe+alibi", "vanilla", causal=True), tokens(2, 21), []
    monkeypatch.setattr(softmax, "MANY_ADDED_IN_TRAINING", 0)
    for block in (21, 4):
        monkeypatch.setattr(softmax, "BLOCK", block)
        torch.manual_seed(3)
        leaf = x.detach().requires_grad_()
        output = layer(leaf, count(21))
        layer(leaf, count(21))
        found.append(*torch.autograd.grad(output.square().sum(), leaf))
    assert error(*found) <= 1e-10


@torch.no_grad()
def test_blocks_of_queries_attend_to_remembered_keys_of_one_seed(monkeypatch):
    layer, found = Layer("spe+t5", "vanilla", causal=False), []
    q, k, v = torch.randn(3, 2, HEADS, 21, DIM, dtype=torch.float64)
    state = layer.attention.remember(k, v, k_positions=count(21))
    monkeypatch.setattr(softmax, "MANY_ADDED", 0)
    for block in (21, 4):
        monkeypatch.setattr(softmax, "BLOCK", block)
        found.append(layer.attention.attend(q, state, q_positions=count(21))[0])
    assert error(*found) <= 1e-10
