"""fairseq's Adam in one kernel: the same updates and states."""

import copy

import pytest
import torch
from fairseq import utils
from fairseq.optim import adam

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.modules import fused_adam

OPTIONS = {"lr": 0.003, "betas": (0.9, 0.98), "eps": 1e-4, "weight_decay": 0.1}


@pytest.fixture
def on_cpu(monkeypatch):
    """PyTorch's kernel runs on a CPU too: take it there as on a GPU."""
    monkeypatch.setattr(fused_adam, "_fits", lambda group: True)


def _train(kind, updates, state=None, rest=3):
    torch.manual_seed(1)
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in ((5, 3), (7,), ())]
    optimizer = kind(parameters, **OPTIONS)
    if state:
        optimizer.load_state_dict(copy.deepcopy(state))
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = OPTIONS["lr"] * (update + 1) / updates
        for number, one in enumerate(parameters):
            # The last one has no gradient at first, and so a step count of its own.
            one.grad = None if number == 2 and update < rest else torch.randn_like(one) * 0.01
        optimizer.step()
    return parameters, optimizer


def test_updates_and_states_are_fairseqs(on_cpu):
    ours, ours_optimizer = _train(fused_adam.FusedAdam, 20)
    theirs, their_optimizer = _train(adam.Adam, 20)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    states = ours_optimizer.state_dict()["state"], their_optimizer.state_dict()["state"]
    assert [one["step"] for one in states[0].values()] == [20, 20, 17]
    for key, state in states[1].items():
        torch.testing.assert_close(states[0][key], state, rtol=1e-5, atol=1e-9)


def test_epsilon_is_added_before_the_bias_is_corrected(on_cpu):
    def first_update(kind):
        one = torch.nn.Parameter(torch.zeros(1))
        one.grad = torch.full_like(one, 1e-4)
        kind([one], lr=1.0, betas=(0.9, 0.98), eps=1e-4, weight_decay=0.0).step()
        return one.item()

    # m / (1 - b1) = g; sqrt(v) = g sqrt(1 - b2): -g sqrt(1 - b2) / (g sqrt(1 - b2) + eps)
    root = 1e-4 * 0.02**0.5
    assert first_update(fused_adam.FusedAdam) == pytest.approx(-root / (root + 1e-4), rel=1e-5)
    assert first_update(adam.Adam) == pytest.approx(-root / (root + 1e-4), rel=1e-5)


def test_strides_of_gradients_do_not_matter(on_cpu):
    def update(kind, gradient):
        one = torch.nn.Parameter(torch.ones(1, 4))
        one.grad = gradient
        kind([one], **OPTIONS).step()
        return one

    odd = torch.arange(4.0)[:, None].t()
    assert odd.stride() != torch.ones(1, 4).stride()
    torch.testing.assert_close(update(fused_adam.FusedAdam, odd), update(adam.Adam, odd.clone()))


def test_a_training_goes_on_with_the_other_class(on_cpu):
    _, before = _train(adam.Adam, 5, rest=0)
    ours, _ = _train(fused_adam.FusedAdam, 5, before.state_dict(), rest=0)
    theirs, _ = _train(adam.Adam, 5, before.state_dict(), rest=0)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_on_a_cpu_updates_are_fairseqs_to_the_bit():
    ours, _ = _train(fused_adam.FusedAdam, 5)
    theirs, _ = _train(adam.Adam, 5)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_clipping_on_a_cpu_is_fairseqs_to_the_bit(monkeypatch):
    def clip():
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(torch.randn(size)) for size in ((5, 3), (7,), ())]
        for one in parameters:
            one.grad = torch.randn_like(one)
        return [utils.clip_grad_norm_(parameters, 1.0), *(one.grad for one in parameters)]

    ours = clip()
    monkeypatch.setattr(utils, "multi_tensor_l2norm_available", False)
    assert all(torch.equal(one, other) for one, other in zip(ours, clip(), strict=True))


def test_gradient_norm_is_that_of_one_vector_and_does_not_overflow():
    gradients = [torch.randn(3, 4), torch.randn(5), torch.tensor(2.0)]
    whole = torch.cat([one.flatten() for one in gradients]).norm()
    torch.testing.assert_close(fused_adam.gradient_norm(gradients), whole)
    half = torch.full((100,), 1e4, dtype=torch.float16)
    assert fused_adam.gradient_norm([half]).item() == pytest.approx(1e5)


def test_half_precision_statistics_need_apex():
    with pytest.raises(NotImplementedError, match="fp16_adam_stats"):
        fused_adam.FusedAdam([torch.nn.Parameter(torch.zeros(1))], use_fp16_stats=True)
