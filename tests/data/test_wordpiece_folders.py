"""Data folders in WordPiece, from each command to the task that reads it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.data import prepare_mlm
from fairseq_plugins.data.tokenizers import load_tokenizer
from fairseq_plugins.data.whole_words import word_start_mask
from fairseq_plugins.glue import prepare as prepare_glue
from fairseq_plugins.squad.dataset import load_windows
from fairseq_plugins.squad.examples import read_squad
from fairseq_plugins.squad.features import WindowSizes
from fairseq_plugins.squad.folder import raw_path
from fairseq_plugins.squad.prepare import count_recovered
from fairseq_plugins.squad.prepare import prepare as prepare_squad
from fairseq_plugins.tasks.pe_masked_lm import PEMaskedLMConfig, PEMaskedLMTask
from fairseq_plugins.tasks.pe_sentence_prediction import (
    PESentencePredictionConfig,
    PESentencePredictionTask,
)
from tests.preprocessing import preprocess_here
from tests.published import VOCABULARY

LINES = [
    "The cat sat.",
    "",
    "the\rcat and\r\rdog",
    "not\x00a\x0bmat\x85or\u2028a\u3000dog\x1c",
    "\r",
    "[MASK] </s> <mask>",
    "café sitting on the mats\r",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return folder


@pytest.fixture(scope="module")
def masked(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text prepared for masked words by the command itself, with fairseq-preprocess."""
    source = tmp_path_factory.mktemp("texts")
    for split in ("train", "valid", "test"):
        (source / f"{split}.txt").write_bytes("".join(f"{line}\n" for line in LINES).encode())
    output = source / "data"
    words = ["text", "--from", str(source), "--tokenizer", str(folder), "--output", str(output)]
    with preprocess_here():
        assert prepare_mlm.main(words) == 0
    return output


def test_lines_of_masked_text_stay_lines(masked: Path, folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    task = PEMaskedLMTask.setup_task(PEMaskedLMConfig(data=str(masked), sample_break_mode="none"))
    assert len(task.source_dictionary) == len(VOCABULARY)
    tokens = task._load_dataset_split("train", 1, False)[0].tolist()
    expected = [task.source_dictionary.bos()]
    for line in LINES:
        expected += [*tokenizer.encode_with_offsets(line).ids, task.source_dictionary.eos()]
    assert tokens == expected
    about = json.loads((masked / "data.json").read_text())
    assert about["request"]["pieces"] == tokenizer.sums()
    assert load_tokenizer(masked / "bpe").sums() == tokenizer.sums()


@pytest.mark.parametrize("text", ["the cat 日本 sat", "the cat sat"])
def test_unknown_words_are_told(text: str, folder: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["--from", str(tmp_path), "--tokenizer", str(folder), "--output"]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{text}\n")
    with preprocess_here():
        assert prepare_mlm.main(["text", *words, str(tmp_path / "mlm")]) == 0
    masked = capsys.readouterr().out
    (tmp_path / "WNLI").mkdir()
    for name in ("train", "dev"):
        rows = "".join(f"{text}\t{text}\t{i % 2}\n" for i in range(4))
        (tmp_path / "WNLI" / f"{name}.tsv").write_text(f"sentence1\tsentence2\tlabel\n{rows}")
    assert prepare_glue.main([*words, str(tmp_path / "glue"), "--tasks", "WNLI"]) == 0
    pairs = capsys.readouterr().out
    answer = {"text": "the", "answer_start": 0}
    questions = [{"id": "1", "question": "what", "answers": [answer]}]
    paragraphs = [{"context": text, "qas": questions}]
    for name in ("train", "dev"):
        content = json.dumps({"data": [{"paragraphs": paragraphs}]})
        (tmp_path / f"{name}-v1.1.json").write_text(content)
    prepare_squad(tmp_path / "squad", version="1.1", bpe=folder, source=tmp_path)
    answers = capsys.readouterr().out
    told = ": 40% of the tokens are <unk>, words that the tokenizer cannot spell\n"
    for found, names in (
        (masked, ("train", "valid", "test")),
        (pairs, ("WNLI train", "WNLI valid")),
        (answers, ("train", "valid")),
    ):
        expected = [f"prepare: {name}{told}" for name in names] if "日" in text else []
        assert [f"{line}\n" for line in found.splitlines() if "<unk>" in line] == expected


def test_whole_words_are_masked(masked: Path) -> None:
    config = PEMaskedLMConfig(
        data=str(masked), mask_whole_words=True, leave_unmasked_prob=0.0, random_token_prob=0.0
    )
    task = PEMaskedLMTask.setup_task(config)
    begins_masked = set()
    for seed in range(1, 9):
        config.seed = seed
        task.load_dataset("train")
        batch = task.datasets["train"].collater([task.datasets["train"][0]])
        source, target = batch["net_input"]["src_tokens"][0], batch["target"][0]
        pad, symbols = task.source_dictionary.pad(), task.source_dictionary.symbols
        whole = torch.where(target != pad, target, source)
        begins = word_start_mask(task.source_dictionary, masked / "bpe").gather(0, whole)
        assert begins.tolist() == [not symbols[i].startswith("##") for i in whole]
        for i in range(1, len(whole)):
            if symbols[whole[i]].startswith("##"):
                assert (source[i] == task.mask_idx) == (source[i - 1] == task.mask_idx)
                begins_masked.add(bool(source[i] == task.mask_idx))
    assert begins_masked == {True, False}


def test_a_pair_of_sentences_has_berts_form(folder: Path, tmp_path: Path) -> None:
    rows = [("the cat sat", "is it the dog ?"), ("not a dog", "a cat"), ("on the mat", "what")]
    lines = ["index\tsentence1\tsentence2\tlabel"]
    labels = ("entailment", "not_entailment", "entailment")
    lines += [f"{i}\t{a}\t{b}\t{labels[i]}" for i, (a, b) in enumerate(rows)]
    for name in ("train", "dev"):
        (tmp_path / "raw" / "RTE").mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / "RTE" / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    words = ["--from", str(tmp_path / "raw"), "--tasks", "RTE", "--tokenizer", str(folder)]
    assert prepare_glue.main([*words, "--output", str(tmp_path / "glue")]) == 0
    data = str(tmp_path / "glue" / "RTE")
    config = PESentencePredictionConfig(
        data=data, num_classes=2, init_token=0, no_shuffle=True, seed=1
    )
    task = PESentencePredictionTask.setup_task(config)
    found = task.load_dataset("train")[0]["net_input.src_tokens"].tolist()
    encode = load_tokenizer(folder).encode_with_offsets
    first, second = (encode(text).ids for text in rows[0])
    assert found == [0, *first, 2, *second, 2]
    config.separator_token = 2
    with pytest.raises(OptionError, match=r"separator_token must be null .*, but is 2"):
        task.load_dataset("train")


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_answers_are_those_of_the_original_text(version: str, folder: Path, tmp_path: Path) -> None:
    context = "É The  CAT\u00a0sat\x00on \u1e9e a\u0301e\u0301 Mat, " * 6 + "who'd the Dogs?"
    answers = ["É", "CAT", "a\u0301e\u0301", "Mat", "Dogs", "The  CAT\u00a0sat\x00on"]
    questions = [
        {
            "id": str(i),
            "question": "  What\r is it?",
            "answers": [{"text": text, "answer_start": context.rindex(text)}],
            **({"is_impossible": False} if version == "2.0" else {}),
        }
        for i, text in enumerate(answers)
    ]
    content = {
        "version": version,
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}],
    }
    for split in ("train", "dev"):
        path = tmp_path / f"{split}-v{version}.json"
        path.write_text(json.dumps(content))
    sizes = WindowSizes(max_length=48, stride=16, max_query_length=5)
    data = tmp_path / "data"
    prepare_squad(data, version=version, bpe=folder, source=tmp_path, sizes=sizes)
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol("<mask>")
    windows, features = load_windows(data, "train", dictionary)
    count = len(answers)
    counts = {"questions": count, "in_a_window": count, "exact": count, "normalised": count}
    assert count_recovered(read_squad(raw_path(data, "train"), version), features) == counts
    asked = load_tokenizer(folder).encode_with_offsets("What is it?").ids
    head = [0, *asked[:5], 2]
    first = windows[0]["net_input.src_tokens"].tolist()
    assert first[: len(head)] == head and first[len(head)] != 2
    assert json.loads((data / "data.json").read_text())["separators"] == 1
