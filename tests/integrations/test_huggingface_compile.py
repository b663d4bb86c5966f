"""torch.compile of a swapped model: given positions and packed documents count as without it."""

from collections.abc import Iterator

import pytest
import torch
from hub_models import logits, make, padded, swap, words
from torch._dynamo.exc import Unsupported


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("name", "attention"), [("learned", "vanilla"), ("rope", "linear")])
def test_a_compiled_model_has_the_same_positions(name: str, attention: str) -> None:
    model, tokens = swap(make("llama"), name, attention), words(1)
    compiled = torch.compile(model, backend="eager")
    spread = torch.arange(9).unsqueeze(0) * 2
    documents = torch.cat([torch.arange(4), torch.arange(5)]).unsqueeze(0)
    plain = logits(model, input_ids=tokens)
    for positions in (spread, documents):
        given = {"input_ids": tokens, "position_ids": positions, "use_cache": False}
        expected = logits(model, **given)
        assert not torch.allclose(expected, plain)
        torch.testing.assert_close(logits(compiled, **given), expected)
    given = padded(tokens, 3, "left")
    counts = given["attention_mask"].bool()
    torch.testing.assert_close(logits(compiled, **given)[counts], logits(model, **given)[counts])


def test_one_graph_has_counted_positions() -> None:
    """A graph cannot look at given ones, and says so."""
    model, tokens = swap(make("llama"), "rope"), words()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}
    torch.testing.assert_close(logits(compiled, **given), logits(model, **given))
    with pytest.raises(Unsupported, match=r"`position_ids`.* leave them out for one graph"):
        logits(compiled, **given, position_ids=torch.arange(9).unsqueeze(0))


def test_a_compiled_model_reads_packed_documents_with_a_mask_of_ones() -> None:
    model, tokens = swap(make("llama"), "rope"), words(1)
    documents = torch.cat([torch.arange(4), torch.arange(5)]).unsqueeze(0)
    given = {"input_ids": tokens, "position_ids": documents, "use_cache": False}
    compiled, mask = torch.compile(model, backend="eager"), torch.ones_like(tokens)
    found = logits(compiled, **given, attention_mask=mask)
    torch.testing.assert_close(found, logits(model, **given))


def test_an_exported_model_asserts_that_positions_count_the_tokens() -> None:
    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = swap(make("llama"), "rope", "linear")

        def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens, position_ids=positions, use_cache=False).logits

    tokens, counted, model = words(1), torch.arange(9).unsqueeze(0), Logits()
    with torch.no_grad():
        program = torch.export.export(model, (tokens, counted)).module()
        torch.testing.assert_close(program(tokens, counted), model(tokens, counted))
        with pytest.raises(RuntimeError, match="must count the tokens"):
            program(tokens, counted * 2)
