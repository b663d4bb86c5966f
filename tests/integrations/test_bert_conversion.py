"""Hugging Face's BERT and ``pe_roberta`` are the same model in two formats."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from torch import Tensor
from transformers import BertModel

from fairseq_plugins.cli.convert import main
from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.dictionaries import read_dictionary
from fairseq_plugins.integrations.wordpiece_files import read_vocabulary, tokens_in_our_order
from tests.published import VOCABULARY, write_bert_folder

LONGEST = 64
CLS, PAD, SEP = 0, 1, 2


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert_folder(tmp_path_factory.mktemp("theirs") / "model", max_positions=LONGEST)


def converted(source: Path, target: Path, *words: str) -> Path:
    assert main(["to-fairseq", str(source), str(target), *words]) == 0
    return target


def loaded(folder: Path) -> Any:
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "model.pt")], arg_overrides={"data": str(folder)}
    )
    return models[0].eval()


def inputs(size: int, longest: int) -> tuple[Tensor, Tensor]:
    """Our tokens (4, T) and BERT's types: a text of all positions, a short one, and pairs."""
    tokens = torch.full((4, longest), PAD)
    types = torch.zeros_like(tokens)
    generator = torch.Generator().manual_seed(1)
    for row, lengths in enumerate([(longest - 2,), (5,), (longest // 2, longest // 4), (3, 4)]):
        words = [torch.randint(4, size - 1, (n,), generator=generator) for n in lengths]
        line = [CLS]
        for segment, part in enumerate(words):
            line += [*part.tolist(), SEP]
            types[row, len(line) - len(part) - 1 : len(line)] = segment
        tokens[row, : len(line)] = torch.tensor(line)
    return tokens, types


def hidden_error(theirs: Path, ours: Path, longest: int) -> float:
    """The largest difference of hidden states of any layer, relative to the largest state."""
    vocabulary = read_vocabulary(theirs)
    rows = torch.tensor([vocabulary[token] for token in tokens_in_our_order(vocabulary)])
    tokens, types = inputs(len(rows), longest)
    real = tokens.ne(PAD)
    with torch.no_grad():
        expected = BertModel.from_pretrained(theirs, add_pooling_layer=False).eval()(
            rows[tokens],
            attention_mask=real.long(),
            token_type_ids=types,
            output_hidden_states=True,
        )
        _, extra = loaded(ours)(tokens, features_only=True, return_all_hiddens=True)
    states = [state.transpose(0, 1) for state in extra["inner_states"]]
    assert len(states) == len(expected.hidden_states)
    return max(
        float((ours[real] - other[real]).abs().max() / other[real].abs().max())
        for ours, other in zip(states, expected.hidden_states, strict=True)
    )


def test_hidden_states_are_equal(theirs: Path, tmp_path: Path) -> None:
    ours = converted(theirs, tmp_path / "ours")
    assert hidden_error(theirs, ours, LONGEST) < 1e-5
    words = [*VOCABULARY[1:3], *VOCABULARY[7:]]  # without the special tokens
    assert read_dictionary(ours / "dict.txt") == words
    for name in ("tokenizer.json", "vocab.txt"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    options = read_checkpoint(ours / "model.pt")["cfg"]["model"]
    assert (options["layer_norm_eps"], options["segments"]) == (1e-12, "pairs")
