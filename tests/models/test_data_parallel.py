"""Every kind of model under PyTorch's data parallelism, which `run=node8` asks for.

It waits for the gradient of every parameter, and stops a training where one had none. That every
encoding gives each parameter one is tested beside each model; here each mechanism runs once.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from tests.models import roberta, translation
from tests.models.helpers import PAIRS, build_lm, mechanism, random_tokens

CAUSAL, BIDIRECTIONAL = (
    list({mechanism(pair): pair for pair in reversed(pairs)}.values())
    for pairs in (PAIRS, roberta.PAIRS)
)


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process alone."""
    path: Path = tmp_path_factory.mktemp("group") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{path}", world_size=1, rank=0)
    yield
    distributed.destroy_process_group()


def _train_twice(model: torch.nn.Module, forward: Callable[[Any], Tensor]) -> None:
    """The second forward pass raises where the first pass back left a parameter out."""
    parallel = DistributedDataParallel(model.train())
    for _ in range(2):
        forward(parallel).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(("attention", "encoding"), CAUSAL)
def test_language_model(attention: str, encoding: str) -> None:
    tokens = random_tokens(2, 12)
    _train_twice(build_lm(attention, encoding), lambda model: model(tokens)[0])


@pytest.mark.parametrize(("attention", "encoding"), BIDIRECTIONAL)
def test_masked_language_model(attention: str, encoding: str) -> None:
    tokens = roberta.random_tokens(2, 12)
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, ::3] = True
    model = roberta.build(attention, encoding)
    _train_twice(model, lambda model: model(tokens, masked_tokens=hidden)[0])


@pytest.mark.parametrize(("attention", "encoding"), BIDIRECTIONAL)
def test_translation_model(attention: str, encoding: str) -> None:
    """With the encoding where a row of Table 4 has it: the encoder under this attention, and under
    softmax attention the decoder too, if a causal model can have it."""
    both = attention == "vanilla" and (attention, encoding) in PAIRS
    model = translation.build(
        encoder_attention_type=attention,
        encoder_position_encoding=encoding,
        decoder_position_encoding=encoding if both else "base",
    )
    source = translation.batch(translation.sources([9, 6]), left=True)
    lengths, target = translation.lengths_of(source), translation.targets(2, 8)
    _train_twice(model, lambda model: model(source, lengths, target)[0])


def test_a_parameter_left_out_is_refused() -> None:
    model = build_lm()
    model.register_parameter("unused", torch.nn.Parameter(torch.zeros(1)))
    tokens = random_tokens(2, 12)
    with pytest.raises(RuntimeError, match="finished reduction"):
        _train_twice(model, lambda model: model(tokens)[0])
