"""Search and sampling on the language modelling task, against whole forward passes."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import tasks
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator

from tests.integration.helpers import (
    TOKENS_PER_SAMPLE,
    fairseq_generate,
    fairseq_interactive,
    fairseq_train,
    load_model,
    saving_to,
    stopping_before_training,
)

PROMPTS = ["w1 w2 w3 w4 w5", "w7", "w3 w3 w9", "w4 w8"]
BOTH = ("base", "rope", "lrpe_type2", "lrpe_type4", "learned")
CASES = [("vanilla", name) for name in (*BOTH, "alibi", "t5", "shaw")]
CASES += [("linear", name) for name in (*BOTH, "lrpe_type8")]
# Each encoding under one attention, and each way to use the past under both.
SLOW = {("vanilla", "lrpe_type2"), ("vanilla", "lrpe_type4"), ("vanilla", "alibi")}
SLOW |= {("linear", "learned"), ("linear", "rope")}

Hypothesis = dict[str, Any]


def _sharp_model(data: Path, tmp_path: Path, attention: str, encoding: str) -> tuple[Any, Any]:
    """An untrained model whose words and positions differ, and its task."""
    options = {"attention_type": attention, "position_encoding": encoding}
    with stopping_before_training() as built:
        fairseq_train(saving_to(tmp_path, data, **options))
    model = built.value.model.eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "encoding" in name or "position_embedding" in name:
                parameter.normal_()
        # Logits far enough apart that rounding cannot change the order of a beam.
        model.decoder.layers[-1].final_layer_norm.weight.mul_(3)
    return model, tasks.setup_task(built.value.config.task)


def _search(task: Any, generator: SequenceGenerator, prompts: list[str]) -> list[list[Hypothesis]]:
    """The beams of the prompts, searched in one batch."""
    dictionary = task.source_dictionary
    encode = partial(dictionary.encode_line, add_if_not_exist=False, append_eos=False)
    start = torch.tensor([dictionary.eos()])
    tokens = [torch.cat((start, encode(prompt).long())) for prompt in prompts]
    padded = data_utils.collate_tokens(tokens, dictionary.pad())
    sample = {"net_input": {"src_tokens": padded}}
    return task.inference_step(generator, None, sample)


def _scores(model: Any, eos: int, tokens: torch.Tensor) -> torch.Tensor:
    """log p of each token after all before it, from one pass over the whole sentence."""
    inputs = torch.cat((torch.tensor([eos]), tokens[:-1]))
    with torch.no_grad():
        logits, _ = model(inputs.unsqueeze(0))
    return logits[0].log_softmax(-1).gather(1, tokens.long().unsqueeze(1)).squeeze(1)


def _assert_same(beams: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [len(beam) for beam in beams] == [len(beam) for beam in expected]
    for beam, other in zip(beams, expected, strict=True):
        for hypothesis, reference in zip(beam, other, strict=True):
            assert hypothesis["tokens"].tolist() == reference["tokens"].tolist()
            torch.testing.assert_close(
                hypothesis["positional_scores"],
                reference["positional_scores"],
                rtol=0,
                atol=1e-4,
            )


@pytest.mark.parametrize(
    ("attention", "encoding"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one in SLOW else []) for one in CASES],
)
def test_beam_search(attention: str, encoding: str, data: Path, tmp_path: Path) -> None:
    model, task = _sharp_model(data, tmp_path, attention, encoding)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=12)
    beams = _search(task, generator, PROMPTS)
    eos = task.source_dictionary.eos()
    for beam in beams:
        assert len(beam) == 4
        for hypothesis in beam:
            expected = _scores(model, eos, hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=0, atol=1e-4)
    singly = [_search(task, generator, [prompt])[0] for prompt in PROMPTS]
    _assert_same(beams, singly)
    assert generator.model.has_incremental_states()
    generator.model.has_incremental = False
    _assert_same(beams, _search(task, generator, PROMPTS))


def test_linear_state_is_constant(data: Path, tmp_path: Path) -> None:
    """What linear decoding keeps does not grow with the context; softmax's keys do."""
    sizes: dict[str, list[int]] = {}
    for attention in ("vanilla", "linear"):
        model, _ = _sharp_model(data, tmp_path, attention, "rope")
        state: dict[str, Any] = {}
        tokens, sizes[attention] = torch.randint(4, 30, (2, 15)), []
        for length in range(1, tokens.size(1) + 1):
            with torch.no_grad():
                model.decoder(tokens[:, :length], incremental_state=state)
            kept = [tensor for part in state.values() for tensor in part.values()]
            sizes[attention].append(sum(tensor.numel() for tensor in kept))
    assert len(set(sizes["linear"])) == 1
    assert len(set(sizes["vanilla"])) == 15


def _printed(output: str) -> dict[str, list[tuple[str, list[float]]]]:
    """The hypotheses of each sentence as fairseq prints them: words and scores in bits."""
    result: dict[str, list[tuple[str, list[float]]]] = {}
    words = ""
    for line in output.splitlines():
        kind, _, rest = line.partition("-")
        number, *fields = rest.split("\t")
        if kind == "H":
            words = fields[1]
        elif kind == "P":
            result.setdefault(number, []).append((words, list(map(float, fields[0].split()))))
    return result


def _assert_scored(model: Any, task: Any, printed: dict[str, Any]) -> None:
    dictionary = task.source_dictionary
    for hypotheses in printed.values():
        for words, scores in hypotheses:
            tokens = dictionary.encode_line(words, add_if_not_exist=False)
            bits = _scores(model, dictionary.eos(), tokens) / math.log(2)
            assert scores == pytest.approx(bits.tolist(), abs=1e-4)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_interactive(
    attention: str,
    data: Path,
    checkpoints: dict[str, Path],
    prompts: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--input", str(prompts), "--beam", "4", "--nbest", "2", "--max-len-b", "12"]
    results = []
    for batch in ("1", "4"):
        size = ["--max-len-a", "0", "--batch-size", batch, "--buffer-size", "4"]
        fairseq_interactive(data, checkpoints[attention], *words, *size)
        results.append(_printed(capsys.readouterr().out))
    assert list(results[0]) == ["0", "1", "2", "3"]
    for number, hypotheses in results[0].items():
        assert len(hypotheses) == 2
        for (said, scores), (other, others) in zip(hypotheses, results[1][number], strict=True):
            assert said.startswith(PROMPTS[int(number)])
            assert said == other
            assert scores == pytest.approx(others, abs=2e-4)
    _assert_scored(*load_model(checkpoints[attention]), results[0])


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_sampling(
    attention: str,
    data: Path,
    checkpoints: dict[str, Path],
    prompts: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--input", str(prompts), "--sampling", "--beam", "2", "--nbest", "2"]
    results = []
    for seed in ("3", "3", "4"):
        more = ["--sampling-topk", "9", "--seed", seed, "--max-len-b", "12"]
        fairseq_interactive(data, checkpoints[attention], *words, *more)
        results.append(_printed(capsys.readouterr().out))
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_generate(attention: str, data: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    fairseq_generate(
        data,
        checkpoints[attention],
        *("--gen-subset", "test", "--sample-break-mode", "eos", "--batch-size", "3"),
        # With its default of 8, fairseq leaves out a last batch that is no multiple of 8.
        *("--required-batch-size-multiple", "1"),
        *("--tokens-per-sample", str(TOKENS_PER_SAMPLE), "--beam", "3", "--nbest", "2"),
        *("--prefix-size", "2", "--max-len-b", "12", "--results-path", str(tmp_path)),
    )
    printed = _printed((tmp_path / "generate-test.txt").read_text(encoding="utf-8"))
    assert len(printed) == 8
    _assert_scored(*load_model(checkpoints[attention]), printed)
