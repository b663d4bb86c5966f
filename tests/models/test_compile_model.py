"""torch.compile of ``pe_transformer_lm``: a graph per layer, one break per batch in the whole."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import LAYERS, build_lm, pad_rows, random_tokens
from torch import Tensor

from fairseq_plugins.models.pe_transformer_lm import PETransformerLM

# One of each kind of hook, table and kernel; tests/attention/test_compile.py has every name.
CASES = [
    ("vanilla", "base"),
    ("vanilla", "rope"),
    ("vanilla", "shaw"),
    ("vanilla", "xl"),
    ("vanilla", "deberta_emd"),
    ("vanilla", "learned_shaw"),
    ("linear", "lrpe_type3"),
    ("linear", "per"),
    ("linear", "spe"),
]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def passes(
    model: PETransformerLM, call: Callable[[Tensor], Any], tokens: Tensor
) -> dict[str, Tensor]:
    """Logits (B, T, V), and a gradient by name for every parameter that has one."""
    logits, _ = call(tokens)
    (logits * torch.linspace(-1, 1, logits.size(-1))).sum().backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach(), **found}


def assert_agree(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        scale = values.abs().max().clamp(min=1)
        torch.testing.assert_close(
            actual[name] / scale, values / scale, atol=1e-5, rtol=0, msg=name
        )


def twins(attention: str, name: str) -> list[PETransformerLM]:
    """Two models in training with the same parameters."""
    models = [build_lm(attention, name).train() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    return models


@pytest.mark.parametrize(
    ("attention", "name", "padded"),
    [
        pytest.param(
            *case, i % 4 == 0, marks=[pytest.mark.slow] * (case != ("linear", "lrpe_type3"))
        )
        for i, case in enumerate(CASES)
    ],
)
def test_each_layer_is_one_graph(attention, name, padded):
    plain, compiled = twins(attention, name)
    for layer in compiled.decoder.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    tokens = random_tokens(2, 8)
    if padded:
        tokens = pad_rows(tokens, [8, 5], left=False)
    assert_agree(passes(compiled, compiled, tokens), passes(plain, plain, tokens))


@pytest.mark.parametrize(
    ("attention", "name"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_all_layers_of_a_model_are_in_one_graph(attention, name):
    """Its only break is at the question for padding, where fairseq's nested calls end theirs."""
    model = build_lm(attention, name, dropout=0.1, activation_dropout=0.1).train()
    explained = torch._dynamo.explain(model)(random_tokens(2, 8))
    (reason,) = explained.break_reasons
    assert reason.user_stack[-1].name == "_embed"
    assert "torch.compiler.disable" in reason.reason
    products = [
        len(graph.graph.find_nodes(op="call_function", target=torch._C._nn.linear))
        for graph in explained.graphs
    ]
    # At least an attention's four projections and the two layers of its feed-forward part.
    assert max(products) >= 6 * LAYERS
    assert max(products) >= sum(products) - 1, "all but the output layer's"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "name"),
    [pytest.param("linear", "rope", marks=pytest.mark.slow), ("vanilla", "floater")],
)
def test_a_compiled_model_agrees_whether_its_encoding_breaks_or_not(attention, name):
    plain, compiled = twins(attention, name)
    call = torch.compile(compiled, backend="aot_eager")
    for tokens in (random_tokens(2, 8), pad_rows(random_tokens(2, 8), [5, 8], left=True)):
        for model in (plain, compiled):
            model.zero_grad()
        assert_agree(passes(compiled, call, tokens), passes(plain, plain, tokens))


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "name"), [("vanilla", "xl"), ("linear", "lrpe_type3")])
def test_a_model_trains_with_the_default_backend(attention, name):
    plain, compiled = twins(attention, name)
    tokens = random_tokens(2, 8)
    assert_agree(passes(compiled, torch.compile(compiled), tokens), passes(plain, plain, tokens))
