"""Windows beyond the training length: each token is scored once, with what it may see."""

import math

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.evaluation.extrapolation import (
    by_position,
    model_losses,
    window_losses,
)

TEXT = torch.arange(48), torch.arange(1, 49)


@pytest.mark.parametrize(("length", "stride"), [(8, 8), (8, 2), (16, 4), (48, 12), (48, 48)])
def test_every_token_is_scored_once_with_at_least_the_window_less_a_stride(length, stride):
    seen: list[tuple[int, int]] = []  # target, tokens that precede it with itself

    def losses(tokens: Tensor, targets: Tensor, last: int) -> Tensor:
        assert torch.equal(tokens + 1, targets) and tokens.size(1) == length
        for window in targets[:, -last:]:
            seen.extend((int(one), length - last + i + 1) for i, one in enumerate(window))
        return targets[:, -last:].double()

    found = torch.cat([part.flatten() for part in window_losses(*TEXT, length, stride, losses, 3)])
    assert found.tolist() == TEXT[1].tolist() == [target for target, _ in seen]
    assert all(context > length - stride for target, context in seen if target > length)
    assert [context for _, context in seen[:length]] == list(range(1, length + 1))


def test_windows_that_do_not_fill_the_text_are_refused():
    for count, length, stride in [(23, 8, 4), (4, 8, 4), (24, 8, 9), (24, 8, 0)]:
        windows = window_losses(*(s[:count] for s in TEXT), length, stride, lambda t, *_: t, 3)
        with pytest.raises(ValueError, match="must be"):
            next(windows)


def test_means_by_position_are_those_of_each_part():
    losses = torch.tensor([[1.0, 3.0, 5.0, 5.0], [1.0, 3.0, 7.0, 7.0]])
    assert by_position(losses, 2).tolist() == [2.0, 6.0]
    assert by_position(losses, 4).mean() == losses.mean()
    with pytest.raises(ValueError, match="divide 4 positions, but is 3"):
        by_position(losses, 3)


class Bigrams(nn.Module):
    """A model of bigrams whose output layer doubles its features."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, words, generator=torch.manual_seed(1)))
        self.decoder = self

    def forward(self, tokens: Tensor, features_only: bool) -> tuple[Tensor, dict]:
        assert features_only
        return self.table[tokens], {}

    def output_layer(self, features: Tensor) -> Tensor:
        return 2 * features

    def get_normalized_probs(self, output, log_probs: bool, sample: dict) -> Tensor:
        assert log_probs and sample["target"].shape == output[0].shape[:2]
        return output[0].log_softmax(-1)


@pytest.mark.parametrize("block", [1, 3, 100])
def test_losses_in_blocks_are_those_of_cross_entropy(block):
    model = Bigrams(7)
    tokens = torch.randint(7, (4, 10), generator=torch.manual_seed(2))
    targets = tokens.flip(1)
    expected = nn.functional.cross_entropy(
        (2 * model.table[tokens]).transpose(1, 2), targets, reduction="none"
    ) / math.log(2)
    for last in (10, 4):
        found = model_losses(model, block)(tokens, targets, last)
        torch.testing.assert_close(found, expected[:, -last:].double(), rtol=1e-5, atol=1e-5)
