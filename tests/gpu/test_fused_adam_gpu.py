"""fairseq's Adam on a GPU without apex."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import utils
from fairseq.optim.adam import Adam, FairseqAdam
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401
from fairseq_plugins.modules.fused_adam import FusedAdam

pytestmark = pytest.mark.gpu


def _parameters():
    torch.manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(size, device="cuda")) for size in ((50, 30), (7,), (1, 4))
    ]


def _train(optimizer, parameters):
    for _ in range(10):
        for one in parameters:
            one.grad = torch.ones_like(one) * 0.01
        # A gradient may have other strides where a dimension is 1.
        parameters[2].grad = torch.full((4, 1), 0.01, device="cuda").t()
        optimizer.step()


@pytest.mark.skipif(
    FusedAdam.__module__ not in str(utils.multi_tensor_total_norm.__module__),
    reason="apex is installed",
)
def test_fairseq_takes_it_and_updates_the_same():
    betas = OmegaConf.create([0.9, 0.98])
    cfg = SimpleNamespace(
        lr=[0.003], adam_betas=betas, adam_eps=1e-6, weight_decay=0.01, fp16_adam_stats=False
    )
    ours, theirs = _parameters(), _parameters()
    optimizer = FairseqAdam(cfg, ours).optimizer
    assert isinstance(optimizer, FusedAdam)
    _train(optimizer, ours)
    _train(Adam(theirs, lr=0.003, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01), theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_clipping_divides_by_the_norm_of_all_gradients():
    parameters = _parameters()
    for one in parameters:
        one.grad = torch.full_like(one, 2.0)
    norm = utils.clip_grad_norm_(parameters, 1.0)
    assert norm.item() == pytest.approx(2 * 1511**0.5, rel=1e-5)
    clipped = torch.cat([one.grad.flatten() for one in parameters]).norm()
    assert clipped.item() == pytest.approx(1.0, rel=1e-4)
