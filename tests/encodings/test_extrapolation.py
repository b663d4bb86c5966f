"""Positions beyond ``max_positions``: a meaning where the encoding claims one, else a refusal."""

import pytest
import torch
from test_every_encoding import DIM, HEADS, LENGTH, WIDTH, call_hooks
from torch import Tensor

from fairseq_plugins.encodings import ENCODINGS, PositionEncoding, Stochastic, build_encoding

LONGEST = 16


def extrapolates(name: str) -> bool:
    return ENCODINGS[name].facts.extrapolates


GROWING = [name for name in sorted(ENCODINGS) if extrapolates(name)]
ENDING = [name for name in sorted(ENCODINGS) if not extrapolates(name)]


def build(name: str) -> PositionEncoding:
    return build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        embed_dim=WIDTH,
        max_positions=LONGEST,
        vocab_size=20,
        generator=torch.Generator().manual_seed(1),
    )


def values(encoding: PositionEncoding, at: Tensor) -> dict[str, Tensor]:
    """What every hook returns, with the same noise each time."""
    for part in encoding.parts:
        if isinstance(part, Stochastic):
            part.redraw(3)
    with torch.no_grad():
        return call_hooks(encoding, at, torch.float32)


def test_both_kinds_exist():
    assert {"base", "rope", "alibi", "floater"} <= set(GROWING)
    assert {"learned", "product"} <= set(ENDING)


@pytest.mark.parametrize("name", GROWING)
def test_every_hook_is_finite_far_beyond(name):
    encoding = build(name)
    for times in (2, 8):
        # From the first position to the last: near ones, and distances of the whole length.
        at = torch.linspace(0, times * LONGEST - 1, LENGTH).long().unsqueeze(0)
        for hook, result in values(encoding, at).items():
            assert result.isfinite().all(), hook


@pytest.mark.parametrize("name", GROWING)
def test_trained_positions_keep_their_values(name):
    encoding = build(name)
    at = torch.arange(LONGEST - LENGTH, LONGEST).unsqueeze(0)
    before = values(encoding, at)
    values(encoding, at + 7 * LONGEST)
    for hook, result in values(encoding, at).items():
        torch.testing.assert_close(result, before[hook], atol=1e-6, rtol=1e-6, msg=hook)


@pytest.mark.parametrize("name", GROWING)
def test_a_trained_position_does_not_depend_on_its_company(name):
    """Its value is the same beside a far one, for which a table or recursion had to go on."""
    encoding = build(name)
    at = torch.arange(LENGTH).unsqueeze(0)
    far = at.clone()
    far[0, -1] = 8 * LONGEST - 1
    before, after = values(encoding, at), values(encoding, far)
    for hook, result in after.items():
        if hook in ("embed", "transform_query", "transform_key", "transform_value"):
            # A convolution's neighbour, too, is then another one.
            kept = slice(0, LENGTH - 2)
            along = result[..., kept, :], before[hook][..., kept, :]
            torch.testing.assert_close(*along, atol=1e-6, rtol=1e-6, msg=hook)


@pytest.mark.parametrize("name", ENDING)
def test_the_end_of_a_table_is_named(name):
    encoding = build(name)
    values(encoding, torch.arange(LONGEST - LENGTH, LONGEST).unsqueeze(0))
    # Where positions are drawn in training, the others are built for more of them.
    end = max(part.context.max_positions for part in encoding.parts)
    beyond = torch.arange(2 * end - LENGTH, 2 * end).unsqueeze(0)
    with pytest.raises(ValueError, match=f"max_positions={end}.*{2 * end - 1}"):
        values(encoding.eval(), beyond)
