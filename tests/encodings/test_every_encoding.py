"""Properties of every name in the table; a new file of encodings is covered as it stands."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.encodings import (
    ALL_HOOKS,
    ENCODINGS,
    Compose,
    PositionEncoding,
    build_encoding,
)

HEADS, DIM, WIDTH, LENGTH = 4, 8, 32, 6
HALVES = (torch.bfloat16, torch.float16)
every_encoding = pytest.mark.parametrize("name", sorted(ENCODINGS))


def build(name: str, seed: int = 1, **options) -> PositionEncoding:
    generator = torch.Generator().manual_seed(seed)
    return build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        embed_dim=WIDTH,
        max_positions=400,
        vocab_size=20,
        generator=generator,
        **options,
    )


def call_hooks(encoding: PositionEncoding, at: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """What each hook that the encoding overrides returns, on fixed inputs."""
    torch.manual_seed(4)
    x = torch.randn(2, LENGTH, WIDTH).to(dtype)
    q, k = torch.randn(2, 2, HEADS, LENGTH, DIM).to(dtype)
    weights = torch.rand(2, HEADS, LENGTH, LENGTH).softmax(-1).to(dtype)
    calls = {
        "embed": lambda: encoding.embed(
            x,
            at,
            lengths=torch.full((2,), LENGTH),
            tokens=torch.arange(2 * LENGTH).view(2, LENGTH),
        ),
        "transform_query": lambda: encoding.transform_query(q, at),
        "transform_key": lambda: encoding.transform_key(k, at),
        "transform_value": lambda: encoding.transform_value(k, at),
        "transform_output": lambda: encoding.transform_output(q, at),
        "log_decay": encoding.log_decay,
        "attn_bias": lambda: encoding.attn_bias(at, at),
        "relative_logits": lambda: encoding.relative_logits(q, k, at, at),
        "relative_values": lambda: encoding.relative_values(weights, at, at),
    }
    return {hook: calls[hook]() for hook in sorted(encoding.hooks)}


@every_encoding
def test_the_table_says_what_it_is_and_where_it_comes_from(name):
    entry = ENCODINGS[name]
    assert entry.name == name
    assert entry.summary
    assert entry.source
    assert entry.hooks <= ALL_HOOKS
    assert set(entry.presets) <= set(entry.options)
    assert build(name).label == name


@every_encoding
def test_hooks_return_the_shapes_of_the_contract(name):
    encoding = build(name)
    pairs, encoded = (HEADS, LENGTH, LENGTH), (2, HEADS, LENGTH, encoding.encoded_dim)
    shapes = {
        "embed": {(2, LENGTH, WIDTH)},
        "transform_query": {encoded},
        "transform_key": {encoded},
        "transform_value": {(2, HEADS, LENGTH, DIM)},
        "transform_output": {(2, HEADS, LENGTH, DIM)},
        "log_decay": {(HEADS,)},
        "attn_bias": {(1, *pairs), (2, *pairs)},
        "relative_logits": {(2, *pairs)},
        "relative_values": {(2, HEADS, LENGTH, DIM)},
    }
    for hook, result in call_hooks(encoding, torch.arange(LENGTH)[None], torch.float32).items():
        assert tuple(result.shape) in shapes[hook], hook


@every_encoding
def test_one_row_of_positions_stands_for_the_batch(name):
    encoding, at = build(name), torch.arange(LENGTH).unsqueeze(0)
    shared = call_hooks(encoding, at, torch.float32)
    for hook, result in call_hooks(encoding, at.expand(2, -1), torch.float32).items():
        torch.testing.assert_close(result, shared[hook].expand_as(result), msg=hook)


@every_encoding
def test_rows_of_a_batch_have_their_own_positions(name):
    encoding = build(name)
    rows = torch.stack((torch.arange(LENGTH), torch.arange(LENGTH) * 3 + 2))
    both = call_hooks(encoding, rows, torch.float32)
    for b in range(2):
        alone = call_hooks(encoding, rows[b : b + 1], torch.float32)
        for hook, result in both.items():
            row = alone[hook][b if alone[hook].size(0) == 2 else 0]
            torch.testing.assert_close(result[b], row, msg=hook)


@every_encoding
@pytest.mark.parametrize("dtype", HALVES)
def test_parameters_have_one_dtype_and_what_was_drawn_once_stays_float32(name, dtype):
    """FSDP wants the one; a fixed draw that is rounded would be another."""
    for encoding in (build(name), Compose([build(name)])):
        before = {key: buffer.clone() for key, buffer in encoding.named_buffers()}
        nn.Sequential(encoding).to(dtype)
        assert {parameter.dtype for parameter in encoding.parameters()} <= {dtype}
        for key, buffer in encoding.named_buffers():
            assert torch.equal(buffer, before[key]), key
            assert key in encoding.state_dict(), "what follows from sizes is no part of a module"


@every_encoding
@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_only_rounds(name, dtype):
    """What parameters are once they are rounded, they are computed with in float32."""
    encoding, at = build(name).to(dtype), torch.arange(LENGTH).unsqueeze(0) + 300
    wide = call_hooks(copy.deepcopy(encoding).float(), at, torch.float32)
    for hook, result in call_hooks(encoding, at, dtype).items():
        assert result.isfinite().all()
        if hook != "attn_bias":
            assert result.dtype == dtype, hook
        torch.testing.assert_close(
            result.float(), wide[hook], atol=8 * torch.finfo(dtype).eps, rtol=0.02, msg=hook
        )


@every_encoding
def test_double_precision_is_kept(name):
    encoding, at = build(name).double(), torch.arange(LENGTH).unsqueeze(0)
    for hook, result in call_hooks(encoding, at, torch.float64).items():
        assert result.dtype == torch.float64 or hook == "attn_bias", hook


@every_encoding
def test_draws_come_from_the_generator_alone(name):
    at = torch.arange(LENGTH).unsqueeze(0)
    first = build(name)
    torch.manual_seed(99)
    second = build(name)
    state = torch.get_rng_state()
    build(name)
    assert torch.equal(torch.get_rng_state(), state), "the global generator was used"
    for hook, result in call_hooks(second, at, torch.float32).items():
        assert torch.equal(result, call_hooks(first, at, torch.float32)[hook]), hook


@every_encoding
def test_a_checkpoint_carries_everything_that_was_drawn(name):
    at = torch.arange(LENGTH).unsqueeze(0)
    saved, other = build(name, seed=1), build(name, seed=2)
    for encoding in (saved, other):
        call_hooks(encoding, at, torch.float32)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for hook, result in call_hooks(other, at, torch.float32).items():
        assert torch.equal(result, call_hooks(saved, at, torch.float32)[hook]), hook


@every_encoding
def test_a_copy_is_independent(name):
    at = torch.arange(LENGTH).unsqueeze(0)
    encoding = build(name)
    before = call_hooks(encoding, at, torch.float32)
    twin = copy.deepcopy(encoding)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    for hook, result in call_hooks(encoding, at, torch.float32).items():
        assert torch.equal(result, before[hook]), hook


@every_encoding
def test_a_table_grown_in_inference_serves_training(name):
    encoding = build(name)
    at = torch.arange(LENGTH).unsqueeze(0) + 1000
    try:
        with torch.inference_mode():
            call_hooks(encoding, at, torch.float32)
    except ValueError:
        return  # A learned table does not grow: it has an end, and says so.
    results = call_hooks(encoding, at, torch.float32).values()
    total = sum(r.sum() for r in results if r.requires_grad)
    if isinstance(total, Tensor):
        total.backward()
