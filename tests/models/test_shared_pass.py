"""A bias that all layers share is computed once per forward pass, with the same gradients."""

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest
import torch

from fairseq_plugins.attention.shared import SharedPass
from fairseq_plugins.encodings import PositionEncoding
from tests.models import translation
from tests.models.helpers import PAD, build_lm, each_step, pad_rows, random_tokens

SHARED = ["t5", "alibi", "tupe", "scalar", "t5+rope", "shaw+t5"]


def count_biases(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the encodings whose ``attn_bias`` is asked for, as it happens."""
    asked: list[str] = []
    for cls in {type(m) for m in model.modules() if isinstance(m, PositionEncoding)}:
        original = cls.attn_bias

        def spy(self, *args, _original=original):
            asked.append(self.label)
            return _original(self, *args)

        monkeypatch.setattr(cls, "attn_bias", spy)
    return asked


@pytest.mark.parametrize("encoding", SHARED)
@pytest.mark.parametrize("padded", [False, True])
def test_once_per_pass(encoding: str, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_lm("vanilla", encoding, decoder_layers=3)
    asked = count_biases(model, monkeypatch)
    tokens = random_tokens(2, 9)
    if padded:
        tokens = pad_rows(tokens, [9, 5], left=True)
    biases = [name for name in encoding.split("+") if name in ("t5", "alibi", "tupe", "scalar")]
    for passes in (1, 2):
        model(tokens)
        assert asked == biases * passes
    del asked[:]
    each_step(model, tokens[:, :4], {})
    assert asked == biases * 4


@contextmanager
def nothing_shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedPass, "once", lambda self, key, make: make())
        yield


@pytest.mark.parametrize("encoding", [*SHARED, "rope", "lrpe_type2"])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_results_and_gradients_are_those_of_separate_layers(
    encoding: str, checkpoints: bool
) -> None:
    """Also where layers are computed again in backward, which is after the pass."""
    torch.manual_seed(5)
    model = build_lm("vanilla", encoding, decoder_layers=3, checkpoint_activations=checkpoints)
    tokens = pad_rows(random_tokens(3, 9), [9, 5, 7], left=False)
    results = []
    for context in (nullcontext(), nothing_shared()):
        model.train().zero_grad()
        with context:
            output = model(tokens)[0]
            output[tokens != PAD].square().mean().backward()
        grads = {name: p.grad.clone() for name, p in model.named_parameters()}
        results.append((output, grads))
    (one, first), (other, second) = results
    torch.testing.assert_close(one, other)
    for name, grad in first.items():
        torch.testing.assert_close(grad, second[name], msg=name)


def test_a_value_is_made_once_and_in_a_mode_of_gradients_alone() -> None:
    """What a checkpointed layer made without gradients is not what it is given in backward."""
    shared = SharedPass()
    with torch.no_grad():
        assert shared.once("key", lambda: 1) == 1
        assert shared.once("key", lambda: 2) == 1
    assert shared.once("key", lambda: 3) == 3
    assert shared.once("key", lambda: 4) == 4
    with torch.no_grad():
        assert shared.once("key", lambda: 5) == 1
    assert SharedPass().once("key", lambda: 6) == 6


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["none", "rope", "t5"])
def test_threads_that_share_a_model_have_passes_of_their_own(encoding: str) -> None:
    """Batches of one shape whose padding differs."""
    model = build_lm("vanilla", encoding)
    batches = [
        pad_rows(random_tokens(3, 24), lengths, left=True)
        for lengths in ([24, 20, 9], [24, 7, 16], [24, 13, 3])
    ]
    expected = [model(tokens)[0] for tokens in batches]

    def run(number: int) -> bool:
        with torch.no_grad():
            return all(
                torch.allclose(model(batches[number])[0], expected[number], atol=1e-5)
                for _ in range(40)
            )

    with ThreadPoolExecutor(len(batches)) as pool:
        assert all(pool.map(run, range(len(batches))))


@torch.no_grad()
@pytest.mark.parametrize("cross", ["none", "t5", "rope"])
def test_threads_that_share_a_translation_model(cross: str) -> None:
    """Sources and targets of one shape whose padding differs, on either side of the attention."""
    model = translation.build(
        decoder_position_encoding="t5",
        cross_position_encoding=cross,
        encoder_position_encoding="alibi",
    )
    batches = []
    for lengths in ([12, 9, 4], [12, 5, 7], [12, 3, 11]):
        source = translation.batch(translation.sources(lengths), left=True)
        target = pad_rows(translation.targets(3, 12), lengths, left=True)
        batches.append((source, translation.lengths_of(source), target))
    expected = [model(*batch)[0] for batch in batches]

    def run(number: int) -> bool:
        with torch.no_grad():
            return all(
                torch.allclose(model(*batches[number])[0], expected[number], atol=1e-5)
                for _ in range(40)
            )

    with ThreadPoolExecutor(len(batches)) as pool:
        assert all(pool.map(run, range(len(batches))))


def test_a_model_keeps_nothing_of_a_pass() -> None:
    """Neither a failed one nor one that is over; so that a copy has nothing to leave out."""
    model, tokens = build_lm("vanilla", "t5"), random_tokens(2, 9)
    before = {name: sorted(vars(module)) for name, module in model.named_modules()}
    model(tokens)
    each_step(model, tokens, {})
    with pytest.raises(IndexError):
        model(tokens + len(model.decoder.dictionary))
    assert {name: sorted(vars(module)) for name, module in model.named_modules()} == before
    torch.testing.assert_close(copy.deepcopy(model)(tokens)[0], model(tokens)[0])
