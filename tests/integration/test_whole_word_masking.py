"""Task ``pe_masked_lm`` on the generated language: whole words are masked, and it trains."""

import bisect
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import tasks
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.tasks.masked_lm import MaskedLMConfig
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.data import prepare_mlm
from fairseq_plugins.data.gpt2_bpe import load_encoder
from fairseq_plugins.evaluation.samples import configure
from fairseq_plugins.tasks.pe_masked_lm import PEMaskedLMConfig
from tests.integration.helpers import fairseq_validate, losses
from tests.integration.test_evaluate import bits, evaluate
from tests.integration.test_roberta import model_of, pretrain

WHOLE = {"task._name": "pe_masked_lm", "task.mask_whole_words": True}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "toy-mlm"
    few = ["--train-sentences", "300", "--valid-sentences", "60", "--test-sentences", "10"]
    assert prepare_mlm.main(["toy", "--output", str(folder), "--merges", "40", *few]) == 0
    return folder


def load(data: Path, name: str, **options: Any) -> Any:
    """A task with its training samples, in the order of a first epoch."""
    config = {"pe_masked_lm": PEMaskedLMConfig, "masked_lm": MaskedLMConfig}[name]
    own = {"_name": name, "data": str(data), "tokens_per_sample": 24, **options}
    section = OmegaConf.merge(OmegaConf.structured(config), own)
    task = tasks.setup_task(configure(1, task=section).task)
    task.load_dataset("train")
    return task


def samples(task: Any, epoch: int = 1) -> list[dict[str, torch.Tensor]]:
    """Of the training split: what is read (T,), what is to be predicted (T,)."""
    dataset = task.dataset("train")
    dataset.set_epoch(epoch)
    return [{"read": dataset[i]["net_input.src_tokens"], "target": dataset[i]["target"]}
            for i in range(len(dataset))]  # fmt: skip


def words(task: Any, encoder: Any, original: torch.Tensor) -> list[list[int]]:
    """The places of each word of a sample, by its text; special symbols are words."""
    symbols = [task.source_dictionary[index] for index in original.tolist()]
    pieces = [encoder.decode([int(s)]) if s.isdecimal() else "\n" for s in symbols]
    begins = [0, *itertools.accumulate(map(len, pieces))]
    ends = [found.end() for found in re.finditer(r"\n|[^\S\n]*(\w+|[^\w\s])", "".join(pieces))]
    places: dict[int, list[int]] = {}
    for place in range(len(pieces)):
        places.setdefault(bisect.bisect_right(ends, begins[place]), []).append(place)
    return [*places.values()]


def test_words_are_masked_as_a_whole(toy: Path) -> None:
    task = load(toy, "pe_masked_lm", mask_whole_words=True, mask_prob=0.3)
    encoder = load_encoder(toy / "bpe")
    pad, mask = task.source_dictionary.pad(), task.mask_idx
    counted = masked = longer = whole_masks = 0
    for one in samples(task):
        chosen = one["target"] != pad
        original = torch.where(chosen, one["target"], one["read"])
        for places in words(task, encoder, original):
            share = chosen[places].float().mean().item()
            assert share in (0.0, 1.0), (original, places)
            hidden = (one["read"][places] == mask).float().mean().item()
            assert hidden in (0.0, 1.0)
            counted, masked = counted + 1, masked + share
            longer += share * (len(places) > 1)
            whole_masks += hidden
    assert longer > 50  # words of several pieces
    assert masked / counted == pytest.approx(0.3, abs=0.03)
    assert whole_masks / masked == pytest.approx(0.8, abs=0.06)  # 10% are others, 10% stay


def test_the_text_is_that_of_fairseqs_task_and_masks_are_new_in_every_epoch(toy: Path) -> None:
    whole = load(toy, "pe_masked_lm", mask_whole_words=True, random_token_prob=0.0)
    pieces = load(toy, "masked_lm", random_token_prob=0.0)
    for ours, theirs in zip(samples(whole), samples(pieces), strict=True):
        pad = whole.source_dictionary.pad()
        texts = [torch.where(one["target"] != pad, one["target"], one["read"])
                 for one in (ours, theirs)]  # fmt: skip
        assert torch.equal(*texts)
    first, again, second = (samples(whole, epoch) for epoch in (1, 1, 2))

    def are_equal(one: list[Any], other: list[Any]) -> list[bool]:
        return [torch.equal(a["read"], b["read"]) for a, b in zip(one, other, strict=True)]

    assert all(are_equal(first, again))
    assert not all(are_equal(first, second))


def test_without_the_option_it_is_fairseqs_own(toy: Path) -> None:
    found = [samples(load(toy, name)) for name in ("pe_masked_lm", "masked_lm")]
    for ours, theirs in zip(*found, strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in ("read", "target"))


def test_pieces_may_lie_elsewhere(toy: Path, tmp_path: Path) -> None:
    """And are missed where they are not."""
    with pytest.raises(DataError, match=r"does not hold encoder\.json"):
        load(toy, "pe_masked_lm", mask_whole_words=True, pieces=str(tmp_path))
    elsewhere = tmp_path / "pieces"
    elsewhere.symlink_to(toy / "bpe")
    task = load(toy, "pe_masked_lm", mask_whole_words=True, pieces=str(elsewhere))
    default = load(toy, "pe_masked_lm", mask_whole_words=True)
    for one, other in itertools.islice(zip(samples(task), samples(default), strict=True), 20):
        assert torch.equal(one["target"], other["target"])


def test_it_trains_and_is_evaluated_with_whole_words(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pretrain(tmp_path, toy, {**model_of("vanilla", "rope"), **WHOLE})
    assert list(losses(tmp_path)) == [1, 2, 3]
    found = evaluate(path, toy, tmp_path / "x.json", "--batch-size", "4", "--allow-skipped")
    assert found["masking"]["mask_whole_words"] is True
    logs: list[dict[str, Any]] = []
    monkeypatch.setattr(MaskedLmLoss, "reduce_metrics", staticmethod(logs.extend))
    words = ["--skip-invalid-size-inputs-valid-test", "--required-batch-size-multiple", "1"]
    fairseq_validate(toy, path, "--task", "pe_masked_lm", "--mask-whole-words", *words)
    loss, predicted = (float(sum(log[name] for log in logs)) for name in ("loss", "sample_size"))
    assert bits(found) == pytest.approx(loss / predicted / math.log(2), abs=1e-6)
