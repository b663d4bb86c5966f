"""Linear CKA against closed forms, and the figure of several models."""

import math

import pytest
import torch

from fairseq_plugins.analysis.samples import Sample
from fairseq_plugins.analysis.similarity import (
    largest_share,
    layer_states,
    linear_cka,
    similarity_figure,
)
from tests.analysis.test_attention_heads import NOTHING, TEXT, causal, masked
from tests.models.helpers import LAYERS, WIDTH

GENERATOR = torch.Generator().manual_seed(1)
X, Y = torch.randn(2, 40, 6, generator=GENERATOR, dtype=torch.float64)
BASIS = torch.linalg.qr(torch.cat([torch.ones(40, 1), X], 1).double()).Q[:, 1:]  # centred


def test_rotation_scale_and_shift_change_nothing() -> None:
    rotation = torch.linalg.qr(Y[:6]).Q
    assert linear_cka(X, 3 * X @ rotation + 7) == pytest.approx(1)
    assert linear_cka(X, Y) == pytest.approx(linear_cka(Y @ rotation, X))
    assert linear_cka(X, X @ torch.diag(torch.arange(1.0, 7).double())) < 0.99


@pytest.mark.parametrize("shared", range(4))
def test_subspaces_share_what_they_have_in_common(shared: int) -> None:
    """Of orthonormal features, k of 3 in common: |Y^T X|^2 = k, and both norms are sqrt(3)."""
    one, other = BASIS[:, :3], BASIS[:, 3 - shared : 6 - shared]
    assert linear_cka(one, other) == pytest.approx(shared / 3, abs=1e-12)
    assert linear_cka(BASIS[:, :2], BASIS[:, :6]) == pytest.approx(2 / math.sqrt(2 * 6))


def test_it_is_the_alignment_of_centred_kernels() -> None:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of K = X X^T and L = Y Y^T."""
    centring = torch.eye(40).double() - 1 / 40
    k, other = (centring @ z @ z.mT @ centring for z in (X, Y))
    expected = (k * other).sum() / (k.norm() * other.norm())
    assert linear_cka(X, Y) == pytest.approx(float(expected))
    assert math.isnan(linear_cka(X, torch.ones(40, 2).double()))


def test_states_are_those_of_the_words() -> None:
    samples = [TEXT, Sample(TEXT.tokens.flip(0), NOTHING)]
    loaded = causal("base")
    states = layer_states(loaded, samples)
    assert [tuple(state.shape) for state in states] == [(24, WIDTH)] * (LAYERS + 1)
    tokens = TEXT.tokens.unsqueeze(0)
    at = torch.arange(12).unsqueeze(0)
    stack = loaded.stack
    x = stack.position_embedding.embed(stack.embed_scale * stack.embed_tokens(tokens), at)
    torch.testing.assert_close(states[0][:12], x[0])
    last, _ = loaded.model.decoder.extract_features(tokens, None)
    final = stack.layer_norm(states[-1][:12]) if stack.layer_norm else states[-1][:12]
    torch.testing.assert_close(final, last[0])
    start = torch.cat([torch.tensor([0]), TEXT.tokens])
    assert len(layer_states(masked("learned"), [Sample(start, NOTHING)])[0]) == 12


def test_every_two_models_are_compared() -> None:
    samples = [Sample(TEXT.tokens.roll(k), NOTHING) for k in range(4)]
    states = {name: layer_states(causal(name), samples) for name in ("base", "none+alibi")}
    figure = similarity_figure(states)
    cka = figure.numbers["cka"]
    assert figure.numbers["tokens"] == 48
    assert list(cka) == ["base", "base and none+alibi", "none+alibi"]
    torch.testing.assert_close(cka["base"].diagonal(), torch.ones(LAYERS + 1).double())
    between = cka["base and none+alibi"]
    assert float(between[0, 2]) == linear_cka(states["base"][0], states["none+alibi"][2])
    assert len(figure.paragraphs) == 2
    assert len(similarity_figure({"base": states["base"]}).paragraphs) == 1
    few = {"base": layer_states(causal("base"), [TEXT])}
    with pytest.raises(ValueError, match="`tokens` must be above 32, the models' features"):
        similarity_figure(few)


def test_a_token_that_decides_alone_is_reported() -> None:
    assert largest_share(BASIS[:, :1].abs() * 0 + torch.eye(40)[:, :1]) == pytest.approx(39 / 40)
    outlier = X.clone()
    outlier[3] *= 1000
    figure = similarity_figure({"a": [X], "b": [X, outlier]})
    assert (
        "**One token decides**" in figure.paragraphs[1] and "b (1: 97.5%)" in figure.paragraphs[1]
    )
    assert "decides" not in " ".join(similarity_figure({"a": [X], "b": [Y]}).paragraphs)
