"""The fairseq adapter against fairseq's own module, and its incremental state."""

import pytest
import torch
from attention_cases import COMPATIBLE, DIM, HEADS, WIDTH, count, error
from torch import Tensor

from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.encodings import build_encoding

multihead = pytest.importorskip(
    "fairseq_plugins.attention.multihead", reason="the adapter needs fairseq"
)
every_pair = pytest.mark.parametrize(("name", "attention"), COMPATIBLE)


def build(name: str | None, attention: str = "vanilla", *, causal: bool, **options):
    encoding = None
    if name is not None:
        encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM, causal=causal)
    inner = build_attention(attention, encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    return multihead.PositionalMultiheadAttention(WIDTH, inner, **options).double()


def theirs_like(ours, **options):
    """fairseq's module with the same weights."""
    from fairseq.modules import MultiheadAttention

    # In its constructor fairseq may read the dictionary of options; an empty one will do.
    theirs = MultiheadAttention(WIDTH, HEADS, dictionary={}, **options).double()
    theirs.load_state_dict(ours.state_dict())
    return theirs.eval()


def future_mask(length: int) -> Tensor:
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64)
    return mask.triu(1)


def padded_on(side: str | None, batch: int, length: int) -> Tensor | None:
    if side is None:
        return None
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[-1, slice(0, 2) if side == "left" else slice(length - 2, length)] = True
    return mask


def test_parameters_have_fairseqs_names_and_initial_values():
    from fairseq.modules import MultiheadAttention

    torch.manual_seed(3)
    ours = build(None, causal=True).state_dict()
    torch.manual_seed(3)
    theirs = MultiheadAttention(WIDTH, HEADS, self_attention=True, dictionary={}).double()
    assert list(ours) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        assert ours[key].shape == value.shape
        assert ours[key].std().item() == pytest.approx(value.std().item(), rel=0.3, abs=1e-9)


@pytest.mark.parametrize("padded", [None, "right"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", [True, False])
def test_without_encoding_it_is_fairseqs_self_attention(padded, causal, heads):
    ours = build(None, causal=causal)
    theirs = theirs_like(ours, self_attention=True)
    x, padding = torch.randn(6, 3, WIDTH, dtype=torch.float64), padded_on(padded, 3, 6)
    options = {"key_padding_mask": padding, "need_head_weights": heads}
    expected, expected_weights = theirs(
        x, x, x, attn_mask=future_mask(6) if causal else None, **options
    )
    output, weights = ours(x, x, x, **options)
    assert error(output, expected) <= 1e-9
    # fairseq computes its softmax in float32.
    assert error(weights, expected_weights) <= 1e-6
    assert ours(x, x, x, key_padding_mask=padding, need_weights=False)[1] is None


@pytest.mark.parametrize("padded", [None, "left", "right"])
def test_without_encoding_it_is_fairseqs_cross_attention(padded):
    ours = build(None, causal=False, encoder_decoder_attention=True)
    theirs = theirs_like(ours, encoder_decoder_attention=True)
    x = torch.randn(5, 3, WIDTH, dtype=torch.float64)
    memory = torch.randn(7, 3, WIDTH, dtype=torch.float64)
    padding = padded_on(padded, 3, 7)
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=padding)
    output, weights = ours(x, memory, memory, key_padding_mask=padding)
    assert error(output, expected) <= 1e-9
    assert error(weights, expected_weights) <= 1e-6


@every_pair
@pytest.mark.parametrize("padded", [None, "left"])
def test_incremental_is_full_through_a_beam(name, attention, padded):
    module = build(name, attention, causal=True)
    x = torch.randn(8, 3, WIDTH, dtype=torch.float64)
    padding = padded_on(padded, 3, 8)
    order = torch.tensor([2, 0, 2])
    state: dict = {}
    for s in range(4):
        now = x[s : s + 1]
        mask = None if padding is None else padding[:, s : s + 1]
        module(now, now, now, mask, incremental_state=state, need_weights=False)
    module.reorder_incremental_state(state, order)
    later = [
        module(x[s : s + 1], x[s : s + 1], x[s : s + 1], None, state, need_weights=False)[0]
        for s in range(4, 8)
    ]
    both = torch.cat((x[:4, order], x[4:]))
    mask = None if padding is None else padding[order]
    whole, _ = module(both, both, both, mask, need_weights=False)
    assert error(torch.cat(later), whole[4:]) <= 1e-9


@every_pair
@pytest.mark.parametrize("padded", [None, "left", "right"])
def test_cross_attention_keeps_its_keys_while_decoding(name, attention, padded):
    module = build(name, attention, causal=False, encoder_decoder_attention=True)
    x = torch.randn(6, 3, WIDTH, dtype=torch.float64)
    memory = torch.randn(7, 3, WIDTH, dtype=torch.float64)
    padding, order, state = padded_on(padded, 3, 7), torch.tensor([1, 2, 2]), {}
    for s in range(3):
        # fairseq gives the keys at every step; they are read at the first.
        module(x[s : s + 1], memory, memory, padding, state, need_weights=False, static_kv=True)
    module.reorder_incremental_state(state, order)
    later = [
        module(x[s : s + 1], None, None, padding, state, need_weights=False, static_kv=True)[0]
        for s in range(3, 6)
    ]
    mask = None if padding is None else padding[order]
    both, keys = torch.cat((x[:3, order], x[3:])), memory[:, order]
    whole, _ = module(both, keys, keys, mask, need_weights=False)
    assert error(torch.cat(later), whole[3:]) <= 1e-9


@pytest.mark.parametrize("name", ["rope", "t5", "shaw"])
@pytest.mark.parametrize("cross", [True, False])
def test_positions_are_those_of_the_padding_mask(name, cross):
    """The adapter against the inner attention with positions made by hand."""
    module = build(name, causal=False, encoder_decoder_attention=cross)
    x = torch.randn(6, 2, WIDTH, dtype=torch.float64)
    padding = padded_on("left", 2, 6)
    output, _ = module(x, x, x, padding, need_weights=False)
    q, k, v = (
        p(x).unflatten(-1, (HEADS, DIM)).permute(1, 2, 0, 3)
        for p in (module.q_proj, module.k_proj, module.v_proj)
    )
    at = make_positions(padding, 6)
    inner, _ = module.attention(
        q, k, v,
        q_positions=count(6) if cross else at,
        k_positions=at,
        key_padding_mask=padding,
    )  # fmt: skip
    expected = module.out_proj(inner.permute(2, 0, 1, 3).flatten(2))
    assert error(output, expected) <= 1e-12


def test_reordering_nothing_is_fine():
    module = build("rope", causal=True)
    assert module.reorder_incremental_state({}, torch.tensor([0])) == {}


def test_two_layers_keep_their_states_apart():
    first, second = build("rope", causal=True), build("rope", causal=True)
    x, state = torch.randn(1, 2, WIDTH, dtype=torch.float64), {}
    first(x, x, x, incremental_state=state, need_weights=False)
    second(x, x, x, incremental_state=state, need_weights=False)
    assert len(state) == 2


def test_what_a_step_cannot_honour_is_refused():
    module = build("rope", causal=True)
    x = torch.randn(1, 2, WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match="`need_weights` and `attn_mask` must be left off"):
        module(x, x, x, incremental_state={}, need_weights=True)
    with pytest.raises(ValueError, match="`need_weights` and `attn_mask` must be left off"):
        module(x, x, x, incremental_state={}, need_weights=False, attn_mask=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="`before_softmax` must be False"):
        module(x, x, x, before_softmax=True)
    linear = build("rope", "linear", causal=True)
    with pytest.raises(ValueError, match="`need_weights` must be False for linear"):
        linear(x, x, x, need_weights=True)
    with pytest.raises(ValueError, match="`attn_mask` must be None for linear"):
        linear(x, x, x, need_weights=False, attn_mask=torch.zeros(1, 1))


def test_a_width_that_is_no_multiple_is_refused():
    inner = build_attention("vanilla", None, num_heads=2, head_dim=8, causal=True)
    with pytest.raises(ValueError, match="`embed_dim` must be num_heads .* = 16, but is 24"):
        multihead.PositionalMultiheadAttention(24, inner)
