"""Biases computed within the kernel: PyTorch's reference on a CPU against the dense bias."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as of_torch

from fairseq_plugins.attention import PositionalMultiheadAttention, build_attention, flex
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import EncodingContext, build_encoding
from fairseq_plugins.encodings.pairwise import OffsetBias
from fairseq_plugins.kernels.flex import BLOCK, block_mask

BIASES = ("alibi", "fire", "kerple_log", "kerple_power", "sandwich", "scalar", "t5")
POSITIONAL = ("tupe", "tupe_relative")
HEADS, DIM, LENGTH = 2, 16, BLOCK + 70


@pytest.fixture
def switch(monkeypatch):
    """Turns FlexAttention on and off, and counts its calls; PyTorch's reference runs uncompiled."""
    calls = []
    run = flex.flex_softmax

    def counted(*args, **options):
        calls.append(args)
        return run(*args, **options)

    monkeypatch.setattr(flex, "flex_softmax", counted)
    monkeypatch.setattr(of_torch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)

    def turn(on: bool) -> list:
        monkeypatch.setattr(flex, "uses_flex", lambda *_: on)
        return calls

    return turn


@pytest.fixture
def with_gradients(monkeypatch):
    """PyTorch refuses gradients on a CPU, but its reference, which is compiled, has them."""
    monkeypatch.setattr(of_torch, "_validate_device", lambda *_: None)
    monkeypatch.setattr(of_torch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)


def build(name: str, *, causal: bool, **options):
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, causal=causal, max_positions=256)
    for parameter in encoding.parameters():
        if not parameter.any():  # the scalars of [CLS]
            torch.nn.init.normal_(parameter)
    shape = {"num_heads": HEADS, "head_dim": DIM, "causal": causal}
    return build_attention("vanilla", encoding, **shape, **options)


def draw(length: int = LENGTH) -> Tensor:
    return torch.randn(2, HEADS, length, DIM)


def padding(length: int) -> Tensor:
    """The second row is shorter by more than a block."""
    padded = torch.zeros(2, length, dtype=torch.bool)
    padded[1, length - BLOCK - 10 :] = True
    return padded


def both_ways(switch, attend) -> tuple[Tensor, Tensor]:
    calls = switch(False)
    dense = attend()
    assert not calls
    switch(True)
    pairwise = attend()
    assert calls
    return dense, pairwise


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", [*BIASES, *POSITIONAL, "rope+t5", "alibi+scalar"])
def test_a_bias_by_pairs_is_the_dense_one(switch, name, causal):
    attention, (q, k, v) = build(name, causal=causal), (draw(), draw(), draw())
    padded = padding(LENGTH)
    at = Positions.of(padded, LENGTH).index
    dense, pairwise = both_ways(
        switch,
        lambda: attention(q, k, v, q_positions=at, k_positions=at, key_padding_mask=padded)[0],
    )
    torch.testing.assert_close(pairwise, dense, rtol=1e-5, atol=1e-5)


class Distance(OffsetBias):
    """A bias of the user's own, (rows, T, S)."""

    rows = 1

    def bias_at(self, offsets, end):
        return -offsets.abs().float().unsqueeze(-3).expand(*offsets.shape[:-2], self.rows, -1, -1)


@torch.no_grad()
def test_a_bias_has_a_row_for_each_head_or_one_for_all(switch):
    """The kernel does not check its indices."""
    encoding = Distance(EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=HEADS * DIM))
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=False)
    x, at = draw(), Positions.of(None, LENGTH).index
    dense, pairwise = both_ways(
        switch, lambda: attention(x, x, x, q_positions=at, k_positions=at)[0]
    )
    torch.testing.assert_close(pairwise, dense, rtol=1e-5, atol=1e-5)
    encoding.rows = HEADS + 1
    with pytest.raises(
        ValueError, match=rf"`bias_at` .* must be \({HEADS} or 1, 1, .* but is \(3, "
    ):
        attention(x, x, x, q_positions=at, k_positions=at)


@torch.no_grad()
def test_keys_of_another_length_and_padded_on_the_left(switch):
    attention, q, (k, v) = build("t5", causal=False), draw(), (draw(300), draw(300))
    padded = padding(300).flip(1)
    at = Positions.of(None, LENGTH).across(Positions.of(padded, 300))
    positions = {"q_positions": at.index, "k_positions": at.keys.index}
    dense, pairwise = both_ways(
        switch, lambda: attention(q, k, v, key_padding_mask=padded, **positions)[0]
    )
    torch.testing.assert_close(pairwise, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "causal"), [("fire", True), ("tupe_relative", False)])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_gradients_are_those_of_the_dense_bias(switch, with_gradients, name, causal):
    attention = build(name, causal=causal)
    inputs = [draw().requires_grad_() for _ in range(3)]
    at = Positions.of(None, LENGTH).index
    towards = torch.randn(DIM)

    def gradients() -> list[Tensor]:
        output, _ = attention(*inputs, q_positions=at, k_positions=at)
        # Softmax ignores a constant, so that the gradient of FIRE's last bias is 0.
        moved = [p for n, p in attention.named_parameters() if not n.endswith("second_bias")]
        found = torch.autograd.grad((output * towards).square().sum(), [*inputs, *moved])
        # A scalar's gradient may be nearly 0 by cancellation: parameters have one scale together.
        return [*found[:3], torch.cat([one.flatten() for one in found[3:]])]

    for expected, actual in zip(*both_ways(switch, gradients), strict=True):
        error = (actual - expected).abs().max() / expected.abs().max()
        assert error <= 1e-5


@torch.no_grad()
def test_packed_documents_are_attended_in_one_row(switch):
    layer = PositionalMultiheadAttention(
        HEADS * DIM, HEADS, position_encoding="kerple_log", causal=True
    )
    x, ends = torch.randn(1, 400, HEADS * DIM), torch.tensor([0, 7, 190, 190, 400])
    dense, pairwise = both_ways(
        switch,
        lambda: layer(x, x, x, cu_seqlens=ends, need_weights=False)[0],
    )
    torch.testing.assert_close(pairwise, dense, rtol=1e-5, atol=1e-5)


def test_what_it_does_not_compute_goes_the_dense_way(switch):
    """Weights, dropout, masks, few tokens, decoding, and positions without a table."""
    calls = switch(True)
    x, short = draw(), draw(BLOCK - 1)
    at = Positions.of(None, LENGTH).index
    few = Positions.of(None, BLOCK - 1).index
    attention = build("alibi", causal=True, dropout=0.1)
    attention(x, x, x, q_positions=at, k_positions=at)
    attention.eval()
    attention(x, x, x, q_positions=at, k_positions=at, need_weights=True)
    hidden = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    attention(x, x, x, q_positions=at, k_positions=at, attn_mask=hidden)
    attention(short, short, short, q_positions=few, k_positions=few)
    attention.step(x, x, x, positions=at)
    attention(x, x, x, q_positions=at - 1, k_positions=at - 1)
    build("shaw", causal=True)(x, x, x, q_positions=at, k_positions=at)
    assert not calls
    attention(x, x, x, q_positions=at, k_positions=at)
    assert calls


def test_queries_are_encoded_once_where_it_does_not_compute(switch, monkeypatch):
    calls, x, at = switch(True), draw(), Positions.of(None, LENGTH).index - 1
    attention, encoded = build("alibi+rope", causal=True), []
    rope = attention.parts[1]
    encode = rope.transform_query
    monkeypatch.setattr(rope, "transform_query", lambda *a: encoded.append(a) or encode(*a))
    monkeypatch.setattr(rope, "transform_key", lambda k, _: k)
    attention(x, x, x, q_positions=at, k_positions=at)
    assert len(encoded) == 1 and not calls


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "documents"),
    [(300, 300, True, True), (256, 256, True, False), (200, 512, False, False)],
)
def test_blocks_cover_the_visible_pairs(queries, keys, causal, documents):
    """A block that is left out has no visible pair, and one that is whole has no hidden pair."""
    padded = padding(keys)
    document = torch.arange(queries) // 100 if documents else None
    mask = block_mask(queries, keys, padded.device, causal=causal, padded=padded, document=document)
    assert mask is not None
    i, j = torch.arange(queries)[:, None], torch.arange(keys)
    visible = ~padded[:, None].expand(2, queries, keys)
    if causal:
        visible = visible & (j <= i)
    if document is not None:
        visible = visible & (document[:, None] == document)
    some, whole = (
        _listed(mask.kv_num_blocks, mask.kv_indices),
        _listed(mask.full_kv_num_blocks, mask.full_kv_indices),
    )
    assert not (some & whole).any()
    by_pair = [
        x.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)[:, :queries, :keys]
        for x in (some, whole)
    ]
    assert not (visible & ~(by_pair[0] | by_pair[1])).any()
    assert not (~visible & by_pair[1]).any()
    if document is None:  # None that could be skipped is computed.
        assert (some | whole).sum() == _blocks_with(visible).sum()


def _listed(numbers: Tensor, indices: Tensor) -> Tensor:
    """The blocks of a list, (B, rows, columns) bool."""
    counted = torch.arange(indices.size(-1)) < numbers.unsqueeze(-1)
    return torch.zeros_like(counted).scatter(-1, indices.long(), counted)[:, 0]


def _blocks_with(visible: Tensor) -> Tensor:
    rows, columns = (-(-n // BLOCK) for n in visible.shape[1:])
    grown = torch.zeros(len(visible), rows * BLOCK, columns * BLOCK, dtype=torch.bool)
    grown[:, : visible.size(1), : visible.size(2)] = visible
    return grown.unflatten(2, (columns, BLOCK)).unflatten(1, (rows, BLOCK)).any(-1).any(2)
