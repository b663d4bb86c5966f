"""Hugging Face's BERT and ``pe_roberta`` are the same model in two formats."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoTokenizer, BertForMaskedLM, BertModel

from fairseq_plugins.cli.convert import main
from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.dictionaries import read_dictionary
from fairseq_plugins.data.tokenizers import load_tokenizer
from tests.published import VOCABULARY, write_bert_folder

LONGEST = 64
CLS, PAD, SEP = 0, 1, 2


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert_folder(tmp_path_factory.mktemp("theirs") / "model", max_positions=LONGEST)


@pytest.fixture(scope="module")
def with_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with_head") / "model"
    return write_bert_folder(folder, max_positions=LONGEST, head=True)


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


def our_order(folder: Path) -> Tensor:
    """BERT's tokens (V,) in the order of our dictionary."""
    tokens = (folder / "vocab.txt").read_text().splitlines()
    specials = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    words = [token for token in tokens if token not in specials]
    return torch.tensor([tokens.index(one) for one in [*specials[:4], *words, specials[4]]])


def hidden_error(theirs: Path, ours: Path, longest: int) -> float:
    """The largest difference of hidden states of any layer, relative to the largest state."""
    rows = our_order(theirs)
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
    options = read_checkpoint(ours / "model.pt")["cfg"]["model"]
    assert (options["layer_norm_eps"], options["segments"]) == (1e-12, "pairs")


def logits(folder: Path, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return loaded(folder)(tokens)[0]


def their_logits(folder: Path, tokens: Tensor, types: Tensor) -> Tensor:
    """In the order of our vocabulary."""
    rows = our_order(folder)
    model = BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(rows[tokens], attention_mask=tokens.ne(PAD).long(), token_type_ids=types)
    return found.logits[..., rows]


def test_the_output_head_gives_the_same_probabilities(with_head: Path, tmp_path: Path) -> None:
    """The vector of segment 0, as part of the tied words, adds one number to all logits."""
    ours = converted(with_head, tmp_path / "ours")
    tokens, types = inputs(len(VOCABULARY), LONGEST)
    real = tokens.ne(PAD)
    expected = their_logits(with_head, tokens, types)[real].log_softmax(-1)
    actual = logits(ours, tokens)[real].log_softmax(-1)
    torch.testing.assert_close(actual, expected, rtol=0, atol=2e-5)


def test_there_and_back(with_head: Path, tmp_path: Path) -> None:
    """The folder that comes back is read by transformers, and its weights come back as they are."""
    ours, back = converted(with_head, tmp_path / "ours"), tmp_path / "back"
    words = ["to-huggingface", str(ours / "model.pt"), str(back), "--tokenizer", str(ours)]
    assert main(words) == 0
    tokens, types = inputs(len(VOCABULARY), LONGEST)
    real = tokens.ne(PAD)
    expected = logits(ours, tokens)[real]
    torch.testing.assert_close(their_logits(back, tokens, types)[real], expected, rtol=0, atol=2e-5)
    pair = ("The dog's mat", "a cat sat")
    one, other = (AutoTokenizer.from_pretrained(folder) for folder in (with_head, back))
    assert one(*pair).input_ids == other(*pair).input_ids
    again = converted(back, tmp_path / "again")
    first, second = (read_checkpoint(one / "model.pt") for one in (ours, again))
    assert first["model"].keys() == second["model"].keys()
    for name, weight in first["model"].items():
        assert torch.equal(weight, second["model"][name]), name
    assert first["cfg"]["model"] == second["cfg"]["model"]


@pytest.mark.parametrize("normalizer", ["cased", "accents", "lower case alone"])
def test_the_tokenizer_that_comes_back_splits_as_before(
    normalizer: str, theirs: Path, tmp_path: Path
) -> None:
    """transformers' BertTokenizer lower-cases unless tokenizer_config.json says otherwise."""
    source = shutil.copytree(theirs, tmp_path / "theirs")
    path = source / "tokenizer.json"
    content = json.loads(path.read_text())
    if normalizer == "lower case alone":
        content["normalizer"] = {"type": "Lowercase"}
    else:
        content["normalizer"] |= {"lowercase": normalizer != "cased", "strip_accents": False}
    path.write_text(json.dumps(content))
    ours, back = converted(source, tmp_path / "ours"), tmp_path / "back"
    words = ["to-huggingface", str(ours / "model.pt"), str(back), "--tokenizer", str(ours)]
    assert main(words) == 0
    text, tokenizer = "The cat's É é A [MASK]", AutoTokenizer.from_pretrained(back)
    expected = [{"<unk>": "[UNK]"}.get(t, t) for t in load_tokenizer(ours).tokenize(text[:-7])]
    assert tokenizer(text).tokens() == ["[CLS]", *expected, "[MASK]", "[SEP]"]
    assert tokenizer.mask_token == "[MASK]" and tokenizer.pad_token == "[PAD]"
    longest = json.loads((source / "config.json").read_text())["max_position_embeddings"]
    assert len(tokenizer("cat " * 2 * longest, truncation=True).input_ids) == longest


def test_a_trained_checkpoint_goes_back(theirs: Path, tmp_path: Path) -> None:
    """fairseq writes a number of its format, and fine-tuning its heads, among the weights."""
    ours = converted(theirs, tmp_path / "ours")
    path = ours / "model.pt"
    checkpoint = torch.load(path, weights_only=True)
    model = loaded(ours)
    model.register_span_head("answer")
    checkpoint["model"] = model.state_dict()
    assert "encoder.sentence_encoder.version" in checkpoint["model"]
    torch.save(checkpoint, path)
    back = tmp_path / "back"
    assert main(["to-huggingface", str(path), str(back), "--tokenizer", str(ours)]) == 0
    assert (back / "model.safetensors").is_file()


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def as_bin(folder: Path, weights: Any = None, **options: Any) -> Path:
    path = folder / "model.safetensors"
    torch.save(weights or load_file(path), folder / "pytorch_model.bin", **options)
    path.unlink()
    return folder


@pytest.mark.parametrize("kind", ["bin", "old bin", "vocab.txt", "tokenizer.json", "old names"])
def test_other_files_of_the_same_model(theirs: Path, kind: str, tmp_path: Path) -> None:
    other, ours = copied(theirs, tmp_path / "other"), converted(theirs, tmp_path / "ours")
    weights = load_file(other / "model.safetensors")
    if "bin" in kind:
        as_bin(other, _use_new_zipfile_serialization=kind == "bin")
    elif kind == "old names":  # as in the first published BERT
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for name in [*weights]:
            last = ".".join(name.split(".")[-2:])
            weights[f"bert.{name.removesuffix(last)}{old.get(last, last)}"] = weights.pop(name)
        save_file(weights, other / "model.safetensors")
    else:
        (other / {"vocab.txt": "tokenizer.json"}.get(kind, "vocab.txt")).unlink()
    again = converted(other, tmp_path / "again")
    first, second = (read_checkpoint(one / "model.pt") for one in (ours, again))
    assert all(torch.equal(w, second["model"][n]) for n, w in first["model"].items())
    assert (again / "dict.txt").read_bytes() == (ours / "dict.txt").read_bytes()
    one, other = (Tokenizer.from_file(str(at / "tokenizer.json")) for at in (ours, again))
    assert one.encode("The Dog's mat").ids == other.encode("The Dog's mat").ids


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(theirs: Path, dtype: torch.dtype, tmp_path: Path) -> None:
    half = copied(theirs, tmp_path / "half")
    weights = {n: w.to(dtype) for n, w in load_file(half / "model.safetensors").items()}
    save_file(weights, half / "model.safetensors")
    state = read_checkpoint(converted(half, tmp_path / "ours") / "model.pt")["model"]
    assert {weight.dtype for weight in state.values()} == {torch.float32}


def config(**values: Any) -> Callable[[Path], None]:
    """Change config.json; None takes an option out."""

    def damage(folder: Path) -> None:
        path = folder / "config.json"
        content = {**json.loads(path.read_text()), **values}
        path.write_text(json.dumps({n: v for n, v in content.items() if v is not None}))

    return damage


def cut(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        if name.endswith(".bin"):
            as_bin(folder)
        path = folder / name
        path.write_bytes(path.read_bytes()[:-200])

    return damage


def weight(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights[name] = change(weights.get(name, torch.zeros(1))).contiguous()
        save_file(weights, folder / "model.safetensors")

    return damage


class Code:
    """Runs when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def code(folder: Path) -> None:
    as_bin(folder, {"weight": Code(folder / "ran")})


def in_parts(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}")


def without_mask(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    path = folder / "vocab.txt"
    path.write_text(path.read_text().replace("[MASK]", "[unused2]"))


def other_tokenizer(folder: Path) -> None:
    path = folder / "vocab.txt"
    path.write_text(path.read_text().replace("cat\n", "cow\n"))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (config(model_type="gpt2"), "model_type"),
        (config(model_type="distilbert"), "model_type"),
        (config(hidden_act="relu"), "hidden_act"),
        (config(position_embedding_type="relative_key"), "position_embedding_type"),
        (config(is_decoder=True), "is_decoder"),
        (config(add_cross_attention=True), "add_cross_attention"),
        (config(layer_norm_eps=None), "layer_norm_eps"),
        (config(layer_norm_eps=float("nan")), "layer_norm_eps"),
        (config(num_attention_heads=0), "num_attention_heads"),
        (config(num_hidden_layers=10**9), "num_hidden_layers"),
        (config(num_hidden_layers=3), "lacks 16 weights"),
        (config(num_hidden_layers=1), "must not have 16 weights"),
        (config(intermediate_size=65), "encoder.layer.0.intermediate.dense.weight"),
        (config(vocab_size=98), "vocab_size"),
        (cut("config.json"), "config.json is damaged"),
        (cut("model.safetensors"), "model.safetensors is damaged"),
        (cut("pytorch_model.bin"), "pytorch_model.bin: it is truncated"),
        (cut("tokenizer.json"), "tokenizer.json is damaged"),
        (weight("embeddings.word_embeddings.weight", lambda w: w * float("nan")), "finite"),
        (weight("encoder.layer.0.crossattention.x", lambda w: w), "must not have 1"),
        (weight("cls.predictions.bias", lambda w: w), "lacks 4 weights: cls.predictions"),
        (code, "it holds code (getattr)"),
        (in_parts, "model.safetensors.index.json is of several files, which have to be saved as"),
        (without_mask, "lacks [MASK]"),
        (other_tokenizer, "vocab.txt must have the tokens of"),
    ],
)
def test_what_does_not_fit_is_refused(
    theirs: Path, capsys, damage: Callable[[Path], None], named: str, tmp_path: Path
) -> None:
    """By name, with nothing written."""
    broken = copied(theirs, tmp_path / "broken")
    damage(broken)
    assert main(["to-fairseq", str(broken), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert named in error and str(broken) in error and "weights_only" not in error
    left = [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")]
    assert left == ["broken"] and not (broken / "ran").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"position_encoding": "rope"}, "position_encoding"),
        ({"attention_type": "linear"}, "attention_type"),
        ({"segments": "none"}, "segment_embedding"),
    ],
)
def test_only_their_model_goes_back(
    theirs: Path, capsys, options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    broken = converted(theirs, tmp_path / "broken")
    checkpoint = torch.load(broken / "model.pt", weights_only=True)
    checkpoint["cfg"]["model"] |= options
    torch.save(checkpoint, broken / "model.pt")
    words = ["to-huggingface", str(broken / "model.pt"), str(tmp_path / "out")]
    assert main([*words, "--tokenizer", str(broken)]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_another_vocabulary_does_not_go_back(theirs: Path, capsys, tmp_path: Path) -> None:
    ours = converted(theirs, tmp_path / "ours")
    words = tuple("cow" if word == "cat" else word for word in VOCABULARY)
    other = write_bert_folder(tmp_path / "other", vocabulary=words)
    command = ["to-huggingface", str(ours / "model.pt"), str(tmp_path / "out")]
    assert main([*command, "--tokenizer", str(other)]) == 2
    error = capsys.readouterr().err
    assert str(other) in error and "'cow' instead of 'cat'" in error
