"""``deberta_emd``: which layers of a model know absolute positions."""

import copy

import pytest
import torch
from torch import Tensor

from fairseq_plugins.models.pe_transformer_lm import PETransformerLM
from tests.models.helpers import build_lm, random_tokens

LENGTH, LAYERS = 10, 4


def layer_inputs(model: PETransformerLM, tokens: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What each layer is given, and what the layer before it returned: (T, B, C) each."""
    given: list[Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
        for layer in (model.decoder.layers[i] for i in range(len(model.decoder.layers)))
    ]
    with torch.no_grad():
        _, extra = model(tokens)
    for hook in hooks:
        hook.remove()
    return given, extra["inner_states"][:-1]


def table_of(model: PETransformerLM) -> torch.nn.Parameter:
    """The one table of absolute positions, found once."""
    found = [p for name, p in model.named_parameters() if name.endswith("absolute.weight")]
    assert len(found) == 1
    saved = [v for name, v in model.state_dict().items() if name.endswith("absolute.weight")]
    assert {value.data_ptr() for value in saved} == {found[0].data_ptr()}
    return found[0]


@pytest.mark.parametrize(("layers", "first"), [(LAYERS, LAYERS - 2), (2, 0), (1, 0)])
def test_the_last_two_layers_alone_know_absolute_positions(layers: int, first: int) -> None:
    model = build_lm("vanilla", "deberta_emd", decoder_layers=layers)
    tokens, table = random_tokens(2, LENGTH), table_of(model)
    given, returned = layer_inputs(model, tokens)
    for i in range(max(first, 1), layers):
        expected = table[:LENGTH].unsqueeze(1).expand_as(given[i])
        torch.testing.assert_close(given[i] - returned[i], expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        table.add_(torch.randn_like(table))
    changed, _ = layer_inputs(model, tokens)
    for i in range(layers):
        assert torch.equal(changed[i], given[i]) == (i < first), i


def test_deberta_itself_knows_none() -> None:
    given, returned = layer_inputs(build_lm("vanilla", "deberta"), random_tokens(2, LENGTH))
    for x, before in zip(given, returned, strict=True):
        assert torch.equal(x, before)


@pytest.mark.parametrize("encoding", ["deberta", "deberta_emd"])
def test_a_copy_uses_its_own_projections(encoding: str) -> None:
    """An averaged copy of the model must not read the weights of the one in training."""
    model, tokens = build_lm("vanilla", encoding), random_tokens(2, LENGTH)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for layer in twin.decoder.layers:
            layer.self_attn.q_proj.weight.normal_()
            layer.self_attn.k_proj.weight.normal_()
        fresh = build_lm("vanilla", encoding)
        fresh.load_state_dict(twin.state_dict())
        torch.testing.assert_close(twin(tokens)[0], fresh(tokens)[0])


def test_layers_that_are_dropped_do_not_shift_the_others() -> None:
    """LayerDrop leaves out layers at random; positions still enter layers 2 and 3 alone."""
    model = build_lm("vanilla", "deberta_emd", decoder_layers=LAYERS, decoder_layerdrop=0.5)
    tokens, table, seen = random_tokens(2, LENGTH), table_of(model), set()
    model.train()
    for seed in range(12):
        torch.manual_seed(seed)
        ran: list[int] = []
        layers = [model.decoder.layers[i] for i in range(LAYERS)]
        hooks = [
            layer.register_forward_pre_hook(lambda layer, _, ran=ran: ran.append(layer.layer_index))
            for layer in layers
        ]
        given, returned = layer_inputs(model, tokens)
        for hook in hooks:
            hook.remove()
        seen.add(tuple(ran))
        for index, x, before in zip(ran, given, returned, strict=True):
            added = table[:LENGTH].unsqueeze(1) if index >= LAYERS - 2 else torch.zeros(1)
            torch.testing.assert_close(x - before, added.expand_as(x), rtol=1e-5, atol=1e-5)
    assert len(seen) > 3
