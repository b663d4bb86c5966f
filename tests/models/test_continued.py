"""Continued training: what is taken from a checkpoint with another encoding, what is refused."""

import argparse
import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.vocabulary import digest
from fairseq_plugins.models.pe_roberta import PERoberta, PERobertaConfig
from fairseq_plugins.modules.continued import STACKS, pop_init_from
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.stack import OUR_TABLE
from tests.hostile import naming_another_model
from tests.models.helpers import DICTIONARY, PAD
from tests.models.roberta import TINY, build, build_fairseq, enlarge

STACK = STACKS[ROBERTA]
TABLE = STACK + OUR_TABLE


def save(path: Path, model: PERoberta, **config: Any) -> Path:
    """As fairseq does, as far as it is read here."""
    options = {**vars(PERobertaConfig()), **TINY, **config}
    plain = {name: value for name, value in options.items() if isinstance(value, (int, float, str))}
    plain["_name"] = "pe_roberta"
    checkpoint = {"model": model.state_dict(), "cfg": {"model": plain, "task": {"data": ""}}}
    torch.save(checkpoint, path)
    return path


def saved(path: Path, encoding: str, **options: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    model = enlarge(build(encoding=encoding, **options))
    return save(path / "model.pt", model, position_encoding=encoding, **options), model.state_dict()


def logged(caplog: pytest.LogCaptureFixture, what: str) -> set[str]:
    (message,) = [r.getMessage() for r in caplog.records if f"init_from: {what}" in r.getMessage()]
    names = message.rpartition(": ")[2]
    return set() if names == "none" else set(names.split(", "))


@pytest.mark.parametrize(
    ("before", "after", "new", "left"),
    [
        ("base", "base", [], []),
        ("base", "learned", [], []),
        ("base", "rope", [], []),
        ("base", "none", [], ["position_embedding"]),
        ("none", "base", ["position_embedding"], []),
        ("base", "learnable_sinusoidal", ["position_embedding"], ["position_embedding"]),
        # The same name and shape, another meaning.
        ("base", "product", ["position_embedding"], ["position_embedding"]),
        ("t5", "t5", [], []),
        ("t5", "scalar", ["encoding"], ["encoding"]),
        ("base", "lrpe_type2", ["encoding"], []),
        ("learned+shaw", "base", [], ["encoding"]),
        # The same encoding by another name, and the same parts in another order.
        ("lrpe_type2", "yarn_lrpe", [], []),
        ("tupe_relative", "tupe", [], ["encoding.relative"]),
        ("learned+product", "product+learned", ["position_embedding"], ["position_embedding"]),
        ("kerple_log", "kerple_power", ["r2"], ["r2"]),
    ],
)
def test_encodings_are_replaced(
    before: str, after: str, new: list[str], left: list[str], tmp_path: Path, caplog
) -> None:
    path, theirs = saved(tmp_path, before)
    torch.manual_seed(1)
    fresh = build(encoding=after).state_dict()
    torch.manual_seed(1)
    with caplog.at_level(logging.INFO):
        model = build(encoding=after, init_from=str(path)).state_dict()
    is_new, is_left = logged(caplog, "new"), logged(caplog, "unused")
    for name, value in model.items():
        expected = fresh[name] if name in is_new else theirs[name]
        if name.endswith(".scale"):
            expected = 2**0.5 * theirs[f"{STACK}embed_tokens.weight"].std()
        assert torch.equal(value, expected), name
    assert theirs.keys() - model.keys() <= is_left
    for names, parts in ((is_new, new), (is_left, left)):
        assert {part for part in parts if any(part in name for name in names)} == set(parts)
        assert all(any(part in name for part in parts) for name in names)


@pytest.mark.parametrize("name", ["sinusoidal", "learnable_sinusoidal+rope", "dpe"])
def test_sines_from_before_they_were_scaled_stay_as_they_are(name: str, tmp_path: Path) -> None:
    old = build(encoding=name, position_encoding_options=unscaled(name))
    path = save(tmp_path / "model.pt", old, position_encoding=name)
    tokens = torch.arange(DICTIONARY.nspecial, len(DICTIONARY)).unsqueeze(0)[:, :12]
    with torch.no_grad():
        expected = old(tokens, features_only=True)[0]
        fresh = build(encoding=name)
        assert not torch.allclose(fresh(tokens, features_only=True)[0], expected, atol=1e-2)
        fresh.load_state_dict(old.state_dict())
        for model in (fresh, build(encoding=name, init_from=str(path))):
            assert torch.equal(model(tokens, features_only=True)[0], expected)


def unscaled(name: str) -> str:
    part = name.partition("+")[0]
    return f"{part}.scale=one"


def test_fairseqs_own_roberta(tmp_path: Path) -> None:
    theirs = build_fairseq()
    path = tmp_path / "model.pt"
    # Its options are no dataclass: fairseq saves them as they are.
    config = {
        "model": argparse.Namespace(arch="roberta", encoder_layers=2),
        "task": {"_name": "masked_lm"},
    }
    torch.save({"model": theirs.state_dict(), "cfg": config}, path)
    model = build(encoding="rope", init_from=str(path)).state_dict()
    table = theirs.state_dict()[f"{STACK}embed_positions.weight"]
    assert torch.equal(model[TABLE], table[PAD + 1 :])
    assert torch.equal(model["encoder.lm_head.bias"], theirs.state_dict()["encoder.lm_head.bias"])


def other_width(state: dict[str, Any]) -> None:
    name = f"{STACK}layers.0.fc1.weight"
    state[name] = state[name][:, :-1]


def missing_layer(state: dict[str, Any]) -> None:
    for name in [name for name in state if ".layers.1." in name]:
        del state[name]


def a_head(state: dict[str, Any]) -> None:
    state["classification_heads.cola.dense.weight"] = torch.zeros(3, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_attention_heads", 2),
        ("activation_fn", "relu"),
        ("encoder_normalize_before", True),
        ("no_scale_embedding", False),
        ("encoder_layers", 3),
        ("untie_weights_roberta", True),  # whose head would be loaded into the tokens' table
    ],
)
def test_an_option_that_changes_what_weights_mean_is_refused(
    name: str, value: Any, tmp_path: Path
) -> None:
    path, _ = saved(tmp_path, "base", **{name: value})
    with pytest.raises(ValueError, match=f"{name} is {value}, here "):
        build(encoding="rope", init_from=str(path))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {"attention": "linear"}),
        ({"attention_type": "linear"}, {}),
        ({"attention_type": "linear", "feature_map": "relu"}, {"attention": "linear"}),
    ],
)
def test_the_attention_may_be_exchanged(
    theirs: dict[str, str], ours: dict[str, str], tmp_path: Path
) -> None:
    path, weights = saved(tmp_path, "base")
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["cfg"]["model"].update(theirs)
    torch.save(checkpoint, path)
    found = build(encoding="rope", init_from=str(path), **ours).state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())


def test_another_model_is_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, "base")
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["cfg"]["model"]["_name"] = "pe_transformer"
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match="model is a pe_transformer, here a pe_roberta"):
        build(encoding="rope", init_from=str(path))


def test_weights_of_the_same_encoding_are_drawn_anew(tmp_path: Path) -> None:
    path, weights = saved(tmp_path, "base")
    found = build(encoding="base", init_from=str(path), init_encoding="new").state_dict()
    changed = {name for name, weight in weights.items() if not torch.equal(found[name], weight)}
    assert changed == {TABLE}


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (other_width, ["layers.0.fc1.weight is (32, 31), here (32, 32)"]),
        (missing_layer, ["layers.1.self_attn.k_proj.weight is absent, here", "and 4 more"]),
        (a_head, ["classification_heads.cola.dense.weight is (3, 3), here absent"]),
    ],
)
def test_anything_else_is_refused(damage: Any, parts: list[str], tmp_path: Path) -> None:
    path, _ = saved(tmp_path, "base")
    checkpoint = torch.load(path, weights_only=True)
    damage(checkpoint["model"])
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=r"^`init_from` must .* must differ only") as error:
        build(encoding="rope", init_from=str(path))
    assert all(part in str(error.value) for part in parts)


def test_another_dictionary_is_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, "base")
    lines = [f"{word} 1" for word in DICTIONARY.symbols[4:]]
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
    build(init_from=str(path))
    lines[2] = "elsewhere 1"
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
    wrong = rf"must hold the tokens of .*dict\.txt.* token 6 is {DICTIONARY.symbols[6]!r} instead"
    with pytest.raises(ValueError, match=wrong):
        build(init_from=str(path))
    (tmp_path / "dict.txt").write_text("no number\n")
    with pytest.raises(ValueError, match=r"dict\.txt, line 1: must be a word and its count"):
        build(init_from=str(path))
    (tmp_path / "dict.txt").unlink()
    checkpoint = torch.load(path, weights_only=True)
    # What training writes tells it without the file, though the size is the same.
    checkpoint["cfg"]["model"]["dictionary_digest"] = digest(DICTIONARY.symbols)
    torch.save(checkpoint, path)
    build(init_from=str(path))
    checkpoint["cfg"]["model"]["dictionary_digest"] = other = digest(DICTIONARY.symbols[::-1])
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=f"must have .*digest {other}"):
        build(init_from=str(path))
    name = f"{STACK}embed_tokens.weight"
    checkpoint["model"][name] = checkpoint["model"][name][:-1]
    torch.save(checkpoint, path)
    size = len(DICTIONARY)
    with pytest.raises(ValueError, match=rf"has {size - 1} tokens, but .*dict\.txt has {size}"):
        build(init_from=str(path))


@pytest.mark.parametrize("content", [None, b"no checkpoint", b""])
def test_a_file_that_is_no_checkpoint(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"^`init_from` must .*model\.pt"):
        build(init_from=str(path))


def composed(folder: Path, **checkpoint: Any) -> Any:
    defaults = {
        "save_dir": str(folder),
        "restore_file": "checkpoint_last.pt",
        "finetune_from_model": None,
        "checkpoint_suffix": "",
    }
    model = {"init_from": "start.pt"}
    return OmegaConf.create({"model": model, "checkpoint": {**defaults, **checkpoint}})


def test_it_does_nothing_where_training_goes_on(tmp_path: Path) -> None:
    """And is emptied in the config, which fairseq writes into the checkpoints."""
    first = composed(tmp_path)
    assert pop_init_from(first.model) == Path("start.pt")
    assert first.model.init_from is None
    (tmp_path / "checkpoint_last.pt").touch()
    assert pop_init_from(composed(tmp_path).model) is None
    elsewhere = tmp_path / "elsewhere"
    assert pop_init_from(composed(elsewhere).model) == Path("start.pt")
    restored = str(tmp_path / "checkpoint_last.pt")
    assert pop_init_from(composed(elsewhere, restore_file=restored).model) is None
    assert pop_init_from(Namespace(init_from="start.pt")) == Path("start.pt")


def test_two_places_to_start_from_are_refused(tmp_path: Path) -> None:
    config = composed(tmp_path, finetune_from_model="other.pt")
    with pytest.raises(ValueError, match=r"together with finetune_from_model=other\.pt"):
        pop_init_from(config.model)


def test_a_checkpoint_that_names_another_model_is_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, "base")
    naming_another_model(path, path, tmp_path / "ran")
    with pytest.raises(ValueError, match="model is a fconv_lm, here a pe_roberta"):
        build(encoding="rope", init_from=str(path))
    assert not (tmp_path / "ran").exists()
