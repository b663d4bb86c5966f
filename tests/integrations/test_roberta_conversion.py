"""Hugging Face's RoBERTa and ``pe_roberta`` are the same model in two formats."""

import importlib.util
import json
import random
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from transformers import RobertaConfig, RobertaForMaskedLM

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.data.gpt2_bpe import Gpt2Tokenizer, learn_gpt2_bpe
from fairseq_plugins.integrations import roberta
from fairseq_plugins.integrations.roberta import tokens_of
from fairseq_plugins.models.pe_roberta import PERoberta, PERobertaConfig
from fairseq_plugins.modules.identity import ROBERTA
from tests import checkpoints
from tests.hostile import naming_another_model

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "convert_roberta.py"
LONGEST = 20
THEIR_FILES = ("config.json", "model.safetensors", "vocab.json", "merges.txt")
TEXT = ["the cat sat on the mat and the dog sat on the cat", "a dog and a cat"] * 2


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convert_roberta", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    learn_gpt2_bpe(TEXT, 12, folder)
    return folder


@pytest.fixture(scope="module")
def theirs(pieces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose vocabulary is in another order than our dictionary."""
    folder = tmp_path_factory.mktemp("theirs") / "model"
    tokens = tokens_of(Gpt2Tokenizer.load(pieces))
    middle = tokens[4:-1]
    random.Random(3).shuffle(middle)
    vocabulary = [*tokens[:4], *middle, tokens[-1]]
    config = RobertaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LONGEST + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    torch.manual_seed(4)
    model = RobertaForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocabulary)}))
    (folder / "merges.txt").write_bytes((pieces / "vocab.bpe").read_bytes())
    return folder


@pytest.fixture(scope="module")
def ours(script: ModuleType, theirs: Path, pieces: Path, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("ours") / "model"
    assert script.main(["to-fairseq", str(theirs), str(output), "--bpe", str(pieces)]) == 0
    return output


def their_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    model = RobertaForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(tokens, attention_mask=tokens.ne(1)).logits


def our_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    overrides = {"data": str(folder)}
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "model.pt")], arg_overrides=overrides
    )
    with torch.no_grad():
        return models[0].eval()(tokens)[0]


def sentences(size: int) -> torch.Tensor:
    """Random ids (3, LONGEST) from <s> to </s>, two rows padded."""
    tokens = torch.randint(4, size, (3, LONGEST))
    tokens[:, 0], tokens[:, -1] = 0, 2
    for row, length in ((1, 11), (2, 5)):
        tokens[row, length - 1], tokens[row, length:] = 2, 1
    return tokens


def test_outputs_are_equal(theirs: Path, ours: Path, pieces: Path) -> None:
    """For the same words, whose ids differ."""
    tokens = tokens_of(Gpt2Tokenizer.load(pieces))
    vocabulary = json.loads((theirs / "vocab.json").read_text())
    rows = torch.tensor([vocabulary[token] for token in tokens])
    assert not torch.equal(rows, torch.arange(len(rows)))
    words = sentences(len(tokens))
    expected = their_logits(theirs, rows[words])[..., rows]
    actual = our_logits(ours, words)
    real = words.ne(1)
    assert expected[real].abs().max() > 1
    torch.testing.assert_close(actual[real], expected[real], rtol=0, atol=1e-5)


def test_there_and_back(script: ModuleType, theirs: Path, ours: Path, tmp_path: Path) -> None:
    """The folder that comes back is read by transformers and computes the same."""
    back = tmp_path / "back"
    words = ["to-huggingface", str(ours / "model.pt"), str(back), "--bpe", str(ours)]
    assert script.main(words) == 0
    assert {path.name for path in back.iterdir()} == {*THEIR_FILES, "tokenizer_config.json"}
    tokens = sentences(len(tokens_of(Gpt2Tokenizer.load(ours))))
    real = tokens.ne(1)
    expected, actual = our_logits(ours, tokens)[real], their_logits(back, tokens)[real]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    again = tmp_path / "again"
    assert script.main(["to-fairseq", str(back), str(again), "--bpe", str(ours)]) == 0
    assert torch.equal(our_logits(again, tokens), our_logits(ours, tokens))


@pytest.mark.parametrize("options", [{"position_encoding": "learned"}, {}])
def test_a_checkpoint_of_a_training_goes_there_and_back(
    options: dict[str, str], script: ModuleType, tmp_path: Path
) -> None:
    """With the learned and the default embedding, beside the number of fairseq's format."""
    data = checkpoints.write_data(ROBERTA, tmp_path / "data")
    state = checkpoints.make(ROBERTA, data, **options)
    assert "encoder.sentence_encoder.version" in state["model"]
    torch.save(state, path := tmp_path / "trained.pt")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    assert script.main(["to-huggingface", str(path), str(theirs), "--bpe", str(data)]) == 0
    assert script.main(["to-fairseq", str(theirs), str(ours), "--bpe", str(data)]) == 0
    back = read_checkpoint(ours / "model.pt")["model"]
    del state["model"]["encoder.sentence_encoder.version"]
    torch.testing.assert_close(back, state["model"], rtol=0, atol=0)


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def changed_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(script: ModuleType, capsys, words: list[str], tmp_path: Path) -> str:
    """The error of a conversion that writes nothing."""
    assert script.main(words) == 2
    left = [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")]
    assert sorted(left) == ["broken"]
    return capsys.readouterr().err


@pytest.mark.parametrize("name", THEIR_FILES)
def test_missing_files_are_named(script, theirs, pieces, capsys, name, tmp_path) -> None:
    broken = copied(theirs, tmp_path / "broken")
    (broken / name).unlink()
    words = ["to-fairseq", str(broken), str(tmp_path / "out"), "--bpe", str(pieces)]
    assert f"does not hold {name}" in refused(script, capsys, words, tmp_path)


def other_architecture(folder: Path) -> None:
    changed_json(folder / "config.json", model_type="gpt2")


def other_activation(folder: Path) -> None:
    changed_json(folder / "config.json", hidden_act="relu")


def more_layers(folder: Path) -> None:
    changed_json(folder / "config.json", num_hidden_layers=3)


def fewer_layers(folder: Path) -> None:
    changed_json(folder / "config.json", num_hidden_layers=1)


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def a_space_in_front(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"add_prefix_space": true}')


def cut_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def another_token(folder: Path) -> None:
    path = folder / "vocab.json"
    path.write_text(path.read_text().replace('"<mask>"', '"[MASK]"'))


def one_token_twice(folder: Path) -> None:
    changed_json(folder / "vocab.json", **{"<mask>": 3})


def another_merge(folder: Path) -> None:
    path = folder / "merges.txt"
    path.write_text(path.read_text() + "q q\n")


def a_row_less(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.bias"] = weights["lm_head.bias"][:-1].clone()
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_architecture, "model_type must be 'bert' or 'roberta', but is 'gpt2'"),
        (other_activation, "hidden_act must be 'gelu', but is 'relu'"),
        (more_layers, "model.safetensors lacks 16 weights"),
        (fewer_layers, "model.safetensors must not have 16 weights"),
        (cut_weights, "model.safetensors is damaged"),
        (cut_config, "config.json is damaged"),
        (another_token, "lacks 1 tokens, first '<mask>'"),
        (one_token_twice, "vocab.json: ids must be 0 to"),
        (a_space_in_front, "tokenizer_config.json: add_prefix_space must be False, but is True"),
        (another_merge, "is of another tokenizer than"),
        (a_row_less, "lm_head.bias must have the shape"),
    ],
)
def test_what_does_not_fit_is_refused(
    script, theirs, pieces, capsys, damage, message, tmp_path
) -> None:
    broken = copied(theirs, tmp_path / "broken")
    damage(broken)
    words = ["to-fairseq", str(broken), str(tmp_path / "out"), "--bpe", str(pieces)]
    assert message in refused(script, capsys, words, tmp_path)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("position_encoding", "rope", "position_encoding must be learned"),
        ("attention_type", "linear", "attention_type must be 'vanilla'"),
        ("encoder_normalize_before", True, "encoder_normalize_before must be False"),
        ("encoder_layers", 3, "encoder_layers must be 2"),
    ],
)
def test_only_their_model_goes_back(script, ours, capsys, option, value, message, tmp_path) -> None:
    broken = copied(ours, tmp_path / "broken")
    checkpoint = torch.load(broken / "model.pt", weights_only=True)
    checkpoint["cfg"]["model"][option] = value
    torch.save(checkpoint, broken / "model.pt")
    words = ["to-huggingface", str(broken / "model.pt"), str(tmp_path / "out"), "--bpe", str(ours)]
    assert message in refused(script, capsys, words, tmp_path)


def test_another_dictionary_of_the_same_size_does_not_go_back(
    script, ours, capsys, tmp_path
) -> None:
    """The converted checkpoint knows its own, wherever its folder is."""
    broken = copied(ours, tmp_path / "broken")
    lines = (broken / "dict.txt").read_text().splitlines()
    (broken / "dict.txt").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    words = ["to-huggingface", str(broken / "model.pt"), str(tmp_path / "out")]
    error = refused(script, capsys, [*words, "--bpe", str(broken)], tmp_path)
    assert "dict.txt must have" in error


def test_a_checkpoint_that_names_another_model_is_refused(script, ours, capsys, tmp_path) -> None:
    broken, marker = copied(ours, tmp_path / "broken"), tmp_path / "ran"
    path = naming_another_model(broken / "model.pt", broken / "model.pt", marker)
    words = ["to-huggingface", str(path), str(tmp_path / "out"), "--bpe", str(ours)]
    assert "must be a pe_roberta, but is a fconv_lm" in refused(script, capsys, words, tmp_path)
    assert not marker.exists()


def test_rows_of_a_real_vocabulary_are_found_at_once(tmp_path: Path) -> None:
    """The time must not grow with the square of the vocabulary: that took a minute."""
    tokens = [f"token{number}" for number in range(50_265)]
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps({token: number for number, token in enumerate(reversed(tokens))}))
    begun = time.process_time()
    rows = roberta._rows(path, json.loads(path.read_text()), tokens)
    assert time.process_time() - begun < 10
    assert rows.tolist() == list(reversed(range(50_265)))


@pytest.mark.parametrize("encoding", ["learned", "none+shaw", "learnable_sinusoidal"])
def test_a_converted_model_is_what_continued_training_starts_from(
    encoding: str, theirs: Path, ours: Path
) -> None:
    """As the BERT paper's rows do: all but the position encoding is the published model's."""
    published = read_checkpoint(ours / "model.pt")
    options = {
        **published["cfg"]["model"],
        "position_encoding": encoding,
        "init_from": str(ours / "model.pt"),
    }
    config = OmegaConf.merge(OmegaConf.structured(PERobertaConfig), options)
    task = MaskedLMTask.setup_task(MaskedLMConfig(data=str(ours), tokens_per_sample=LONGEST))
    model = PERoberta.build_model(config, task).eval()
    weights = model.state_dict()
    for name, weight in published["model"].items():
        if "position_embedding" not in name or encoding == "learned":
            assert torch.equal(weights[name], weight), name
    tokens = sentences(len(task.source_dictionary))
    with torch.no_grad():
        same = torch.allclose(model(tokens)[0], our_logits(ours, tokens), atol=1e-5)
    assert same == (encoding == "learned")


def test_one_file_of_tokens_and_weights_of_torch(script, theirs, ours, pieces, tmp_path) -> None:
    """tokenizer.json stands for vocab.json and merges.txt, pytorch_model.bin for safetensors."""
    other = copied(theirs, tmp_path / "other")
    vocabulary = json.loads((other / "vocab.json").read_text())
    lines = (other / "merges.txt").read_text().splitlines()[1:]
    model = {"type": "BPE", "vocab": vocabulary, "merges": [line.split(" ") for line in lines]}
    (other / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}))
    torch.save(load_file(other / "model.safetensors"), other / "pytorch_model.bin")
    for name in ("vocab.json", "merges.txt", "model.safetensors"):
        (other / name).unlink()
    again = tmp_path / "again"
    assert script.main(["to-fairseq", str(other), str(again), "--bpe", str(pieces)]) == 0
    first, second = (read_checkpoint(one / "model.pt")["model"] for one in (ours, again))
    assert first.keys() == second.keys()
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
