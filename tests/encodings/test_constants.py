"""What follows from sizes alone is no state of a module, and right wherever the module goes."""

import copy
import io

import pytest
import torch
from test_every_encoding import DIM, HEADS, LENGTH, build, call_hooks, every_encoding
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fairseq_plugins.encodings import ENCODINGS, PositionEncoding, build_encoding
from fairseq_plugins.encodings.properties import PositionFacts
from fairseq_plugins.encodings.protocols import RelativeOnAverage
from fairseq_plugins.encodings.tables import Constant, Formula, PositionTable

AT = torch.arange(LENGTH).unsqueeze(0)


def values(encoding: PositionEncoding, at: Tensor = AT) -> dict[str, Tensor]:
    with torch.no_grad():
        return call_hooks(encoding, at, torch.float32)


def assert_same(one: PositionEncoding, other: PositionEncoding, at: Tensor = AT) -> None:
    expected = values(other, at)
    for hook, result in values(one, at).items():
        torch.testing.assert_close(result, expected[hook], msg=hook)


def used(encoding: PositionEncoding) -> PositionEncoding:
    """After a pass with far positions, as far as it has them."""
    if PositionFacts.of(encoding).extrapolates:
        values(encoding, AT + 600)
    return encoding


@every_encoding
def test_a_module_without_its_constants_is_whole(name):
    right = used(build(name))
    assert {key for key, _ in right.named_buffers()} <= set(right.state_dict())

    with torch.device("meta"):
        empty = build(name)
    empty.to_empty(device="cpu")
    for tensor in [*empty.parameters(), *empty.buffers()]:
        tensor.data.zero_()
    empty.load_state_dict(right.state_dict())
    assert_same(empty, right)

    torch.set_default_dtype(torch.bfloat16)
    half = build(name)
    torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in half.parameters()} <= {torch.bfloat16}
    same = build(name)
    same.load_state_dict(half.state_dict())
    assert_same(half, same, AT + 300)

    average = AveragedModel(nn.Sequential(build(name)), use_buffers=True)
    average.update_parameters(nn.Sequential(right))
    assert_same(average.module[0], right)

    file = io.BytesIO()
    torch.save(right, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)  # our own file, of more than tensors
    with torch.device("meta"):  # another default device around a pass in which tables grow
        in_meta = None if drawing(right) else values_on_cpu(saved)
    assert in_meta is None or in_meta
    assert_same(saved, right)
    assert saved.hooks == right.hooks


def drawing(encoding: PositionEncoding) -> bool:
    return any(isinstance(part, RelativeOnAverage) for part in encoding.parts)


def values_on_cpu(encoding: PositionEncoding) -> bool:
    """One hook of a transform far out, whose inputs are on the CPU."""
    at = torch.arange(5, device="cpu").unsqueeze(0) + 5000
    if "transform_query" not in encoding.hooks or not PositionFacts.of(encoding).extrapolates:
        return True
    dim, heads = encoding.context.head_dim, encoding.context.num_heads
    q = torch.ones(1, heads, 5, dim, device="cpu")
    return bool(encoding.transform_query(q, at).isfinite().all())


@every_encoding
def test_positions_below_0_are_other_numbers_for_the_same_or_refused(name):
    encoding = build(name, causal=ENCODINGS[name].refusal(causal=True) is None)
    facts = PositionFacts.of(encoding)
    if not (facts.is_relative or drawing(encoding) or not facts.reads_positions):
        with pytest.raises(
            ValueError, match=r"`positions` must not be negative for .* begin at -5"
        ):
            values(encoding, AT - 5)
        return
    if drawing(encoding):
        assert all(result.isfinite().all() for result in values(encoding, AT - 5).values())
        return
    before, shifted = values(encoding), values(encoding, AT - 5)
    if "transform_query" in encoding.hooks:
        before, shifted = ({"scores": scores(found)} | found for found in (before, shifted))
    for hook in before.keys() - {"transform_query", "transform_key", "transform_value"}:
        if hook != "transform_output":
            torch.testing.assert_close(shifted[hook], before[hook], atol=2e-6, rtol=1e-5)


def scores(found: dict[str, Tensor]) -> Tensor:
    return found["transform_query"] @ found["transform_key"].mT


def test_a_replica_has_its_own_parameters():
    """As ``DataParallel`` makes it: shallow copies of modules, whose tensors are others."""
    from fairseq_plugins.attention import PositionalMultiheadAttention

    for name in ("t5", "cope", "deberta", "spe", "lrpe_type4", "t5+rope"):
        layer = PositionalMultiheadAttention(32, 4, causal=True, position_encoding=name)
        other = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.normal_(std=0.3)
        x = torch.randn(2, 6, 32)
        expected = other(x, x, x)[0]
        torch.testing.assert_close(replica(layer, other)(x, x, x)[0], expected, msg=name)


def replica(module: nn.Module, tensors_of: nn.Module) -> nn.Module:
    """Of a module, with the tensors of another."""
    made = module._replicate_for_data_parallel()
    made._parameters = dict(tensors_of._parameters)
    made._buffers = dict(tensors_of._buffers)
    for key, tensor in made._parameters.items():
        if tensor is not None:
            setattr(made, key, nn.Parameter(tensor))
    children = dict(tensors_of.named_children())
    made._modules = {
        key: replica(child, children[key]) if child is not None else None
        for key, child in module._modules.items()
    }
    return made


def _doubled(positions: Tensor, factor: float) -> Tensor:
    return positions.unsqueeze(-1) * factor


def _ones(count: int, device: torch.device | str | None = None) -> Tensor:
    return torch.ones(count, dtype=torch.float64, device=device)


def test_what_is_kept_serves_callers_without_the_modes_it_was_made_in():
    table, constant = PositionTable(Formula(_doubled, (2.0,))), Constant(Formula(_ones, (3,)))
    x = torch.ones((), requires_grad=True)

    def loss(factor: Tensor) -> Tensor:
        return (table(AT) * factor).sum() + (constant.on(AT) * factor).sum()

    with torch.inference_mode():
        torch.func.grad(loss)(torch.ones(()))
        table(AT)
    loss(x).backward()
    assert x.grad == loss(torch.ones(()))
    assert table(AT).dtype == constant.on(AT).dtype == torch.float32
    far = torch.tensor([[-3, 10**9]])
    assert table(far).flatten().tolist() == [-6.0, 2e9], "no table of a billion rows"


@pytest.mark.parametrize("name", ["rope", "lrpe_type2", "yarn"])
def test_what_layers_share_follows_a_change_of_positions(name):
    encoding, at = build(name), AT.clone()
    before = encoding.transform_query(torch.ones(1, HEADS, LENGTH, DIM), at)
    at += 3
    after = encoding.transform_query(torch.ones(1, HEADS, LENGTH, DIM), at)
    torch.testing.assert_close(after[:, :, :-3], before[:, :, 3:])


def test_inference_leaves_nothing_that_training_cannot_use():
    encoding, at = build("rope"), AT.clone()
    with torch.inference_mode():
        encoding.transform_query(torch.ones(1, HEADS, LENGTH, DIM), at)
    q = torch.ones(1, HEADS, LENGTH, DIM, requires_grad=True)
    encoding.transform_query(q, at).sum().backward()
    assert q.grad is not None


def test_a_checkpoint_with_the_scalars_of_fire_is_loaded():
    encoding = build_encoding("fire", num_heads=2, head_dim=8)
    old = {key: value.squeeze(0) if value.shape == (1,) else value + 1
           for key, value in encoding.state_dict().items()}  # fmt: skip
    encoding.load_state_dict(old)
    assert {parameter.dim() for parameter in encoding.parameters()} == {1, 2}
