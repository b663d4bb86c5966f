"""The canonical form of LRPE, Eq. 6: primitives of every relative encoding, against the modules."""

import pytest
import torch

from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import ENCODINGS, build_encoding
from fairseq_plugins.encodings.canonical import canonical_form
from tests.encodings.lrpe_matrices import matrix

HEADS, DIM = 2, 6
RELATIVE = [name for name, entry in ENCODINGS.items() if entry.facts.is_relative]


def build(name: str, *, causal: bool = False, **options):
    """In float64, and with tables away from their small initial values."""
    generator = torch.Generator().manual_seed(3)
    encoding = build_encoding(
        name, num_heads=HEADS, head_dim=DIM, causal=causal, generator=generator, **options
    ).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return encoding


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", [*RELATIVE, "rope+t5", "shaw+alibi", "lrpe_type2+shaw"])
def test_scores_from_the_primitives_are_the_modules(name, causal):
    """Compared as the attention uses them: scaled, masked, through the softmax."""
    if any(ENCODINGS[part].refusal(causal=causal) for part in name.split("+")):
        return
    encoding = build(name, causal=causal)
    attention = build_attention("vanilla", encoding, num_heads=HEADS, head_dim=DIM, causal=causal)
    q, k, v = torch.randn(3, 2, HEADS, 7, DIM, dtype=torch.float64)
    at = torch.tensor([[0, 1, 2, 3, 7, 8, 90]]) + 5
    _, weights = attention(q, k, v, q_positions=at, k_positions=at, need_weights=True)
    for i in (0, 3, 6):
        seen = slice(0, i + 1 if causal else 7)
        query, key = q[:, :, i : i + 1], k[:, :, seen]
        scores = scores_from_primitives(encoding, query, key, at[:, i : i + 1], at[:, seen])
        expected = (encoding.logit_scale() * scores).softmax(-1)
        # Tables of positions are float32.
        torch.testing.assert_close(weights[:, :, i : i + 1, seen], expected, rtol=1e-5, atol=1e-6)


def kinds(name: str, offset: int = 3, **options) -> set[tuple[str, str]]:
    return {(p.query, p.key) for p in canonical_form(build(name, **options), offset)}


def test_the_kinds_are_those_of_the_paper():
    """Multiplicative: Eq. 10; additive: Eq. 8; Shaw: Eq. 33."""
    content = ("content", "content")
    assert kinds("rope") == kinds("lrpe_type2") == kinds("lrpe_type8") == {content}
    assert kinds("alibi") == kinds("t5") == {content, ("one", "one")}
    assert kinds("shaw") == {content, ("content", "one")}
    assert kinds("none") == {content}


def test_additive_is_equation_8():
    encoding = build("alibi")
    content, constant = canonical_form(encoding, -4)
    torch.testing.assert_close(content.matrix, torch.eye(DIM).double().expand(HEADS, -1, -1))
    slopes = encoding.slopes.on(torch.empty(())).double()
    expected = -4 * slopes / encoding.logit_scale()
    torch.testing.assert_close(constant.matrix.flatten(), expected)


def test_shaw_is_equation_33():
    """W^(2) is the vector of the offset in the one column that the constant has."""
    encoding = build("shaw")
    (vectors,) = [p for p in canonical_form(encoding, 2) if p.key == "one"]
    row = encoding.key_table[encoding.max_distance + 2].double()
    torch.testing.assert_close(vectors.matrix, row.view(1, DIM, 1).expand(HEADS, -1, -1))


@pytest.mark.parametrize("name", [n for n in RELATIVE if n.startswith("lrpe") or n == "rope"])
def test_lrpe_has_one_unitary_primitive(name):
    """W_{t-s} = W_s^H W_t of the definition (Eq. 14), in real form."""
    encoding = build(name)
    (primitive,) = canonical_form(encoding, 5)
    expected = matrix(encoding, 5).real.expand(HEADS, -1, -1)
    torch.testing.assert_close(primitive.matrix, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offset", [-7, 0, 4])
@pytest.mark.parametrize(("name", "options"), [("spe", {}), ("spe_conv", {"kernel_size": 5})])
def test_a_stochastic_encoding_has_the_form_of_its_mean(name, options, offset):
    """The mean over realisations, within what is left of the noise: 4 standard errors."""
    count = 10_000
    encoding = build(name, num_realizations=count, **options)
    (primitive,) = canonical_form(encoding, offset)
    q, k = torch.randn(2, 1, HEADS, 1, DIM, dtype=torch.float64)
    at = torch.tensor([[20]])
    encoded_q = encoding.transform_query(q, at)
    encoded_k = encoding.transform_key(k, at + offset)
    terms = (encoded_q * encoded_k)[0, :, 0] * count
    expected = (q @ primitive.matrix @ k.mT).flatten()
    error = terms.std(-1) / count**0.5
    assert ((terms.mean(-1) - expected).abs() <= 4 * error).all()


@pytest.mark.parametrize("name", ["base", "learned", "sinusoidal"])
def test_what_is_not_relative_is_refused(name):
    with pytest.raises(ValueError, match=f"{name!r} is not relative"):
        canonical_form(build(name), 1)


def scores_from_primitives(encoding, q, k, q_positions, k_positions):
    """Compute scores before scaling from ``canonical_form``: (B, H, T, S) float64.

    q: (B, H, T, D). k: (B, H, S, D). q_positions: (1, T). k_positions: (1, S).
    """
    scores = q.new_zeros(*q.shape[:3], k.size(2), dtype=torch.float64)
    relative = k_positions[0] - q_positions[0].unsqueeze(1)
    for offset in relative.unique().tolist():
        total = torch.zeros_like(scores)
        for primitive in canonical_form(encoding, offset):
            left = argument(primitive.query, q)
            right = argument(primitive.key, k)
            total += left @ primitive.matrix @ right.mT
        scores = torch.where(relative == offset, total, scores)
    return scores


def argument(kind, content):
    """Return the content (B, H, T, D), or ones (B, H, T, 1) for the constant."""
    content = content.double()
    return content if kind == "content" else torch.ones_like(content[..., :1])
