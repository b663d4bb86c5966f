"""PermuteFormer: powers of one permutation per head, and its decay rates."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import LinearFacts, build_encoding
from fairseq_plugins.encodings.permutations import PermutationPowers, power_table, powers_at
from fairseq_plugins.encodings.permuteformer import decay_rates

HEADS, DIM = 3, 8


def build(**options):
    generator = torch.Generator().manual_seed(6)
    return build_encoding(
        "per", num_heads=HEADS, head_dim=DIM, causal=True, generator=generator, **options
    )


def matrices(permutation: Tensor, power: int) -> Tensor:
    """Pi_h^power (H, D, D) float64 from the definition, by multiplying matrices."""
    rows = torch.eye(DIM, dtype=torch.float64)[permutation]
    return torch.linalg.matrix_power(rows, power)


def test_scores_are_those_of_the_difference_of_positions():
    """(Pi^s q).(Pi^t k) = q.(Pi_h^(t - s) k), each head with its own Pi."""
    encoding = build()
    q, k = torch.randn(2, 2, HEADS, 6, DIM, dtype=torch.float64)
    q_at, k_at = torch.tensor([[0, 1, 2, 7, 40, 300]]), torch.tensor([[0, 5, 2, 3, 90, 299]])
    scores = encoding.transform_query(q, q_at) @ encoding.transform_key(k, k_at).mT
    for i, s in enumerate(q_at[0].tolist()):
        for j, t in enumerate(k_at[0].tolist()):
            turned = torch.einsum("hij,bhj->bhi", matrices(encoding.permutation, t - s), k[:, :, j])
            expected = (q[:, :, i] * turned).sum(-1)
            torch.testing.assert_close(scores[:, :, i, j], expected)


@given(st.integers(0, 3000))
def test_powers_are_orthogonal_and_keep_positive_features_positive(position):
    encoding, at = build(), torch.tensor([[position]])
    eye = torch.eye(DIM).expand(1, HEADS, -1, -1)
    turned = torch.stack(
        [encoding.transform_key(eye[:, :, i : i + 1], at)[0, :, 0] for i in range(DIM)], dim=-1
    )
    torch.testing.assert_close(turned @ turned.mT, eye[0])
    torch.testing.assert_close(turned.double(), matrices(encoding.permutation, position))
    assert turned.min() == 0
    assert LinearFacts.of(encoding).keeps_positive


def test_heads_have_permutations_of_their_own():
    encoding = build()
    assert encoding.permutation.shape == (HEADS, DIM)
    assert encoding.permutation.sort(-1).values.tolist() == [list(range(DIM))] * HEADS
    assert len({tuple(row) for row in encoding.permutation.tolist()}) == HEADS


@given(st.integers(1, 70), st.integers(0, 1000))
def test_a_table_of_powers_is_repeated_gathers(size, seed):
    generator = torch.Generator().manual_seed(seed)
    permutation = torch.stack([torch.randperm(5, generator=generator) for _ in range(2)])
    table, row = power_table(permutation, size), torch.arange(5).expand(2, -1)
    assert table.shape == (size, 2, 5)
    for s in range(size):
        assert torch.equal(table[s], row)
        row = row.gather(-1, permutation)


def test_powers_grow_on_demand_and_follow_rows_of_positions():
    permutation = torch.stack([torch.randperm(5) for _ in range(2)])
    powers, x = PermutationPowers(), torch.randn(2, 2, 2, 5)
    assert powers(x[:, :, :0], permutation, torch.zeros(1, 0, dtype=torch.int64)).numel() == 0
    for longest in (3, 3, 4, 5, 100, 150):
        at = torch.tensor([[0, longest], [longest, 1]])
        index = power_table(permutation, 200)[at].transpose(1, 2)
        assert torch.equal(powers(x, permutation, at), x.gather(-1, index))


def test_powers_without_a_table_are_those_of_the_table_and_of_its_inverse():
    """As in a compiled graph, at positions of any sign."""
    permutation = torch.stack([torch.randperm(9) for _ in range(3)])
    there, back = power_table(permutation, 50), power_table(permutation.argsort(-1), 50)
    at = torch.arange(50).view(2, 25)
    assert torch.equal(powers_at(permutation, at), there[at])
    assert torch.equal(powers_at(permutation, -at), back[at])


def test_far_positions_make_no_table_of_all_before_them():
    permutation, x = torch.tensor([[1, 2, 3, 4, 0]]), torch.randn(1, 1, 2, 5)
    powers, far = PermutationPowers(), 10**12 + 1
    found = powers(x, permutation, torch.tensor([[far, far + 2]]))
    assert torch.equal(found, powers(x, permutation, torch.tensor([[1, 3]])))


def test_gradients_are_those_of_the_permutation():
    permutation = torch.stack([torch.randperm(5) for _ in range(2)])
    powers, at = PermutationPowers(), torch.tensor([[0, 2, 7]])
    x = torch.randn(2, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: powers(t, permutation, at), x)


def test_another_permutation_is_followed_once_it_is_loaded():
    at, x = torch.arange(9).unsqueeze(0), torch.randn(1, HEADS, 9, DIM)
    trained, fresh = (build_encoding("per", num_heads=HEADS, head_dim=DIM) for _ in range(2))
    before = fresh.transform_query(x, at)
    torch.nn.Sequential(fresh).load_state_dict(torch.nn.Sequential(trained).state_dict())
    assert torch.equal(fresh.transform_query(x, at), trained.transform_query(x, at))
    assert not torch.equal(fresh.transform_query(x, at), before)


def test_the_decay_is_an_option_with_the_papers_rates():
    assert "log_decay" not in build().hooks
    assert build().bidirectional_refusal is None
    encoding = build(decay=True)
    assert encoding.hooks == {"transform_query", "transform_key", "log_decay"}
    expected = [1 / (1 + 2.718281828459045 ** -(2 + 3 * h / HEADS)) for h in range(HEADS)]
    torch.testing.assert_close(encoding.log_decay().exp(), torch.tensor(expected))
    assert encoding.log_decay().dtype == torch.float32
    assert encoding.bfloat16().log_decay().dtype == torch.float32
    assert set(encoding.state_dict()) == {"permutation"}


@pytest.mark.parametrize("heads", [1, 8, 16])
def test_rates_grow_from_head_to_head_and_stay_below_one(heads):
    rates = decay_rates(heads)
    assert rates.shape == (heads,)
    assert (rates < 0).all()
    assert (rates.diff() > 0).all()
    torch.testing.assert_close(rates[0].exp(), torch.tensor(2.0).sigmoid())


@pytest.mark.parametrize(
    ("name", "positive"),
    [("base+per", True), ("per+cosformer", True), ("rope+per", False), ("base+rope", False)],
)
def test_a_composition_keeps_features_positive_where_each_transform_does(name, positive):
    encoding = build_encoding(name, num_heads=HEADS, head_dim=DIM)
    assert LinearFacts.of(encoding).keeps_positive == positive


@pytest.mark.parametrize("name", ["per", "lrpe_type7"])
def test_linear_attention_with_permuted_features_has_no_floor(name):
    """One key counts alone, however different it is from the query."""
    encoding = build_encoding(name, num_heads=1, head_dim=16)
    attention = build_attention("linear", encoding, num_heads=1, head_dim=16, causal=False)
    q = torch.full((1, 1, 1, 16), -9.0)
    k = q.clone()
    q[..., 0], k[..., 1] = 3.0, 3.0
    at = torch.zeros(1, 1, dtype=torch.long)
    output, _ = attention(q, k, torch.ones_like(q), q_positions=at, k_positions=at)
    assert torch.allclose(output, torch.ones_like(output))
