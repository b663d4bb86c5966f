"""DeBERTa's two terms against the sum written out pair by pair, and whose projections it uses."""

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import EncodingContext, build_encoding, build_model_encodings
from fairseq_plugins.encodings.deberta import DeBERTa

HEADS, DIM, CLIP = 2, 4, 5
WIDTH = HEADS * DIM
# Gaps, offsets beyond the clip on both sides, and another number of keys than of queries.
Q_AT, K_AT = torch.tensor([[1, 4, 6, 30, 31]]), torch.tensor([[0, 2, 3, 9, 30, 47, 60]])
every_kind = pytest.mark.parametrize("kind", ["bare", "bound", "own"])


def build(kind: str = "bare", name: str = "deberta", **options) -> DeBERTa:
    projections = "own" if kind == "own" else "content"
    encoding = build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        **{"max_distance": CLIP, "projections": projections, **options},
    )
    assert isinstance(encoding, DeBERTa)
    if kind == "bound":
        encoding.bind_projections(*(nn.Linear(WIDTH, WIDTH).double() for _ in range(2)))
    for parameter in encoding.parameters():
        nn.init.normal_(parameter)
    return encoding.double()


def projected(encoding: DeBERTa) -> tuple[Tensor, Tensor]:
    """Q_r and K_r (2k, H, D)."""
    table = encoding.table
    if encoding.projections == "own":
        queries = table @ encoding.query_weight.T + encoding.query_bias
        keys = table @ encoding.key_weight.T
    elif encoding._bound is not None:
        queries, keys = (projection(table) for projection in encoding._bound)
    else:
        queries = keys = table
    return queries.view(-1, HEADS, DIM), keys.view(-1, HEADS, DIM)


def delta(i: int, j: int) -> int:
    """The paper's Eq. 3, case by case."""
    if i - j <= -CLIP:
        return 0
    return 2 * CLIP - 1 if i - j >= CLIP else i - j + CLIP


@torch.no_grad()
def written_out(
    encoding: DeBERTa, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor
) -> tuple[Tensor, Tensor]:
    """q_s.K_r[delta(s, t)] and k_t.Q_r[delta(t, s)], each (B, H, T, S)."""
    queries, keys = projected(encoding)
    c2p, p2c = q.new_zeros(2, q.size(0), HEADS, q.size(2), k.size(2))
    pairs = itertools.product(enumerate(q_at.tolist()), enumerate(k_at.tolist()))
    for (a, s), (c, t) in pairs:
        for b, h in itertools.product(range(q.size(0)), range(HEADS)):
            c2p[b, h, a, c] = q[b, h, a] @ keys[delta(s, t), h]
            p2c[b, h, a, c] = k[b, h, c] @ queries[delta(t, s), h]
    return c2p, p2c


def inputs(queries: int, keys: int) -> tuple[Tensor, Tensor]:
    q, k = (torch.randn(2, HEADS, n, DIM, dtype=torch.float64) for n in (queries, keys))
    return q, k


@every_kind
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_every_pair_of_a_bidirectional_attention(kind, terms):
    encoding, one, (q, k) = build(kind), build(kind, terms=terms), inputs(5, 7)
    one.load_state_dict({n: encoding.state_dict()[n] for n in one.state_dict()})
    if encoding._bound is not None:
        one.bind_projections(*encoding._bound)
    c2p, p2c = written_out(encoding, q, k, Q_AT[0], K_AT[0])
    expected = {"both": c2p + p2c, "c2p": c2p, "p2c": p2c}[terms]
    torch.testing.assert_close(one.relative_logits(q, k, Q_AT, K_AT), expected)


@every_kind
def test_the_released_order_of_the_second_term(kind):
    """k_t.Q_r[delta(s, t)]; a whole encoding lends the keys' weights that ``p2c`` has not."""
    encoding, (q, k) = build(kind, terms="p2c", p2c_offset="query_minus_key"), inputs(5, 7)
    paper = build(kind)
    paper.load_state_dict({**paper.state_dict(), **encoding.state_dict()})
    if encoding._bound is not None:
        paper.bind_projections(*encoding._bound)
    expected = torch.zeros(2, HEADS, 5, 7, dtype=torch.float64)
    queries, _ = projected(paper)
    for (a, s), (c, t) in itertools.product(
        enumerate(Q_AT[0].tolist()), enumerate(K_AT[0].tolist())
    ):
        expected[:, :, a, c] = (k[:, :, c] * queries[delta(s, t)]).sum(-1).detach()
    torch.testing.assert_close(encoding.relative_logits(q, k, Q_AT, K_AT), expected)


@every_kind
def test_an_order_of_a_term_that_is_left_out_is_refused(kind):
    with pytest.raises(ValueError, match=r"`p2c_offset=query_minus_key` needs .*p2c, not 'c2p'"):
        build(kind, terms="c2p", p2c_offset="query_minus_key")


@every_kind
def test_a_causal_attention_differs_in_what_it_hides_alone(kind):
    encoding, (q, k) = build(kind, causal=True), inputs(5, 7)
    actual = encoding.relative_logits(q, k, Q_AT, K_AT)
    seen = (K_AT[0] <= Q_AT[0].unsqueeze(1)).expand_as(actual)
    assert 0 < seen.float().mean() < 1
    expected = sum(written_out(encoding, q, k, Q_AT[0], K_AT[0]))
    torch.testing.assert_close(actual[seen], expected[seen])


def test_rows_of_a_batch_with_their_own_positions():
    encoding, (q, k) = build("own"), inputs(5, 7)
    q_at, k_at = torch.cat((Q_AT, 2 * Q_AT + 3)), torch.cat((K_AT, K_AT + 9))
    actual = encoding.relative_logits(q, k, q_at, k_at)
    for b in range(2):
        row = slice(b, b + 1)
        expected = sum(written_out(encoding, q[row], k[row], q_at[b], k_at[b]))
        torch.testing.assert_close(actual[row], expected)


@pytest.mark.parametrize("shift", [-1000, 1000])
def test_keys_that_are_all_beyond_the_clip(shift):
    encoding, (q, k) = build(), inputs(3, 4)
    q_at = torch.tensor([[2000, 2001, 2007]])
    k_at = torch.tensor([[0, 1, 5, 9]]) + 2000 + shift
    expected = sum(written_out(encoding, q, k, q_at[0], k_at[0]))
    torch.testing.assert_close(encoding.relative_logits(q, k, q_at, k_at), expected)


@pytest.mark.parametrize(("terms", "parts"), [("both", 3), ("c2p", 2), ("p2c", 2)])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_scaled_by_the_number_of_terms(terms, parts, causal):
    encoding, (q, k), at = build(terms=terms, causal=causal), inputs(6, 6), torch.arange(6)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    v = torch.randn_like(k)
    c2p, p2c = written_out(encoding, q, k, at, at)
    added = {"both": c2p + p2c, "c2p": c2p, "p2c": p2c}[terms]
    logits = (q @ k.mT + added) / (parts * DIM) ** 0.5
    if causal:
        logits = logits.masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    output, _ = attention(q, k, v, q_positions=at[None], k_positions=at[None])
    torch.testing.assert_close(output, logits.softmax(-1) @ v)


def test_gradients_reach_everything_learned():
    """Against finite differences."""
    encoding, (q, k) = build("own"), inputs(3, 4)
    names, learned = zip(*encoding.named_parameters(), strict=True)
    assert set(names) == {"table", "query_weight", "query_bias", "key_weight"}

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = encoding

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return self.encoding.relative_logits(q, k, Q_AT[:, :3], K_AT[:, 1:5])

    def logits(q: Tensor, k: Tensor, *values: Tensor) -> Tensor:
        given = {f"encoding.{n}": value for n, value in zip(names, values, strict=True)}
        return functional_call(Logits(), given, (q, k))

    inputs_ = (q.requires_grad_(), k.requires_grad_(), *learned)
    torch.autograd.gradcheck(logits, inputs_)


class Owner(nn.Module):
    """What has projections and an encoding that is bound to them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoding = build()
        self.q_proj, self.k_proj = (nn.Linear(WIDTH, WIDTH).double() for _ in range(2))
        self.encoding.bind_projections(self.q_proj, self.k_proj)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.encoding.relative_logits(q, k, Q_AT, K_AT)


def test_bound_projections_stay_their_owners():
    """Found once, trained through the position terms, and followed by a copy of the owner."""
    owner, (q, k) = Owner(), inputs(5, 7)
    names = {f"{p}_proj.{kind}" for p in "qk" for kind in ("weight", "bias")}
    assert set(owner.state_dict()) == {"encoding.table"} | names
    assert {n for n, _ in owner.named_parameters(remove_duplicate=False)} == set(owner.state_dict())
    owner(q, k).sum().backward()
    for name, parameter in owner.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name

    twin = copy.deepcopy(owner)
    before = owner(q, k)
    torch.testing.assert_close(twin(q, k), before)
    with torch.no_grad():
        for projection in (twin.q_proj, twin.k_proj):
            projection.weight.normal_()
    torch.testing.assert_close(owner(q, k), before)
    fresh = Owner()
    fresh.load_state_dict(twin.state_dict())
    torch.testing.assert_close(twin(q, k), fresh(q, k))
    assert not torch.allclose(twin(q, k), before)


def test_own_projections_are_not_replaced():
    encoding, (q, k) = build("own"), inputs(5, 7)
    before = encoding.relative_logits(q, k, Q_AT, K_AT)
    encoding.bind_projections(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    torch.testing.assert_close(encoding.relative_logits(q, k, Q_AT, K_AT), before)


@pytest.mark.parametrize("name", ["deberta", "deberta_emd"])
def test_layers_share_their_tables_and_have_their_own_projections(name):
    context = EncodingContext(num_heads=HEADS, head_dim=DIM, embed_dim=WIDTH, max_positions=20)
    options = {"max_distance": CLIP, "projections": "own"}
    encodings = build_model_encodings(name, 3, context, options)
    stack = nn.ModuleList(layer for layer in encodings.layers if layer is not None)
    own = [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,)]
    tables = [(2 * CLIP, WIDTH)] + [(20, WIDTH)] * (name == "deberta_emd")
    assert sorted(tuple(p.shape) for p in stack.parameters()) == sorted(tables + 3 * own)
    assert not torch.equal(stack[0].key_weight, stack[1].key_weight)
    inputs = [False, True, True] if name == "deberta_emd" else [False] * 3
    assert [part is not None for part in encodings.inputs] == inputs


@pytest.mark.parametrize(("layers", "expected"), [(1, {0}), (2, {0, 1}), (6, {4, 5})])
def test_absolute_positions_enter_the_last_two_layers(layers, expected):
    encoding = build(name="deberta_emd")
    assert encoding.embed_layers(layers) == expected
    x, at = torch.randn(1, 3, WIDTH, dtype=torch.float64), torch.tensor([[4, 0, 7]])
    added = encoding.embed(x, at) - x
    torch.testing.assert_close(added, encoding.absolute.weight[at])
    with pytest.raises(ValueError, match="`positions` must be below max_positions=1024"):
        encoding.embed(x, at + 1024)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="`max_distance` must be at least 1, but is 0"):
        build(max_distance=0)
    with pytest.raises(ValueError, match=r"`projections` must be `own` .* with 9 and 8"):
        build(embed_dim=9)
    assert build("own", embed_dim=9).table.shape == (2 * CLIP, 9)
    with pytest.raises(ValueError, match="`projections` must be `own` where keys have 6 features"):
        build().bind_projections(nn.Linear(WIDTH, WIDTH), nn.Linear(6, WIDTH))
