"""Position vectors are as large as the words that they join, and words are not drowned."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fairseq_plugins.encodings import PositionEncoding, build_encoding
from fairseq_plugins.models.pe_roberta import BERT_STD
from tests.models import helpers, roberta, translation
from tests.models.helpers import DICTIONARY, LONGEST, WIDTH

SINES = ["sinusoidal", "learnable_sinusoidal", "rspe", "dpe", "2dspe"]


def added(encoding: PositionEncoding) -> Tensor:
    """What an encoding adds to the tokens of a full sequence: (T, C)."""
    at = torch.arange(LONGEST).unsqueeze(0)
    nothing = torch.zeros(1, LONGEST, WIDTH)
    with torch.no_grad():
        rows: Tensor = encoding.embed(nothing, at, lengths=torch.tensor([LONGEST]))
    return rows[0]


def plain(name: str) -> Tensor:
    encoding = build_encoding(
        name, num_heads=1, head_dim=WIDTH, max_positions=LONGEST, vocab_size=len(DICTIONARY)
    )
    return added(encoding)


def rms(x: Tensor) -> float:
    return x.detach().square().mean().sqrt().item()


@pytest.mark.parametrize("name", SINES)
def test_in_roberta_they_are_as_large_as_the_tokens_at_the_start(name: str) -> None:
    model = roberta.build(encoding=name)
    stack = model.encoder.sentence_encoder
    rows = added(stack.position_embedding)
    assert rms(rows) == pytest.approx(BERT_STD)
    words = stack.embed_tokens.weight[DICTIONARY.nspecial :]
    assert rms(rows) == pytest.approx(rms(words), rel=0.1)
    torch.testing.assert_close(rows, rms(rows) * 2**0.5 * plain(name))


@pytest.mark.parametrize("name", SINES)
def test_the_option_leaves_sines_as_they_are(name: str) -> None:
    model = roberta.build(encoding=name, position_encoding_options="scale=one")
    stack = model.encoder.sentence_encoder
    assert torch.equal(added(stack.position_embedding), plain(name))
    assert not any(key.endswith("scale") for key in model.state_dict())


@pytest.mark.parametrize("name", ["sinusoidal", "learnable_sinusoidal"])
def test_where_embeddings_are_multiplied_by_sqrt_of_the_width_nothing_changes(name: str) -> None:
    scaled = roberta.build(encoding=name, no_scale_embedding=False)
    embeddings = [
        helpers.build_lm(encoding=name).decoder.position_embedding,
        scaled.encoder.sentence_encoder.position_embedding,
        translation.build(position_encoding=name).encoder.position_embedding,
    ]
    if name == "sinusoidal":  # the helpers enlarge what is learned
        for embedding in embeddings:
            assert torch.equal(added(embedding), plain(name))
    assert all("scale" not in embedding.state_dict() for embedding in embeddings)


def test_a_language_model_without_that_factor_has_small_sines_too() -> None:
    model = helpers.build_lm(encoding="sinusoidal", no_scale_embedding=True)
    words = model.decoder.embed_tokens.weight[DICTIONARY.nspecial :]
    rows = added(model.decoder.position_embedding)
    assert rms(rows) == pytest.approx(WIDTH**-0.5)
    assert rms(rows) == pytest.approx(rms(words), rel=0.1)


def loss_of_repeated_words(encoding: str, options: str = "") -> float:
    """Trained for a few updates on texts of one word over and over, of which some are hidden: the
    loss of the hidden ones in the last updates."""
    torch.manual_seed(1)
    model = roberta.build(encoding=encoding, position_encoding_options=options).train()
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []
    mask = len(DICTIONARY) - 1
    for _ in range(160):
        words = torch.randint(DICTIONARY.nspecial, mask, (16, 1)).repeat(1, 16)
        words[:, 0] = DICTIONARY.bos()
        hidden = torch.rand(words.shape) < 0.3
        hidden[:, 0], hidden[:, 1] = False, True
        logits = model(words.masked_fill(hidden, mask))[0]
        loss = functional.cross_entropy(logits[hidden], words[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


@pytest.mark.slow
def test_roberta_learns_words_beside_sines() -> None:
    """A uniform guess has a loss of 3.4; sines as they are leave it there."""
    for name in ("none", "sinusoidal", "learnable_sinusoidal"):
        assert loss_of_repeated_words(name) < 1
    assert loss_of_repeated_words("sinusoidal", "scale=one") > 3


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf")])
def test_a_size_of_tokens_without_meaning_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match="`token_std` must be finite and positive"):
        build_encoding("sinusoidal", num_heads=1, head_dim=4, token_std=std)
