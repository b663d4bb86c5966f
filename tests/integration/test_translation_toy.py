"""From raw text to BLEU on the generated language pair, and translating raw text."""

import shutil
from pathlib import Path

import pytest
import torch

from fairseq_plugins.common.errors import CheckpointError, DataError, OptionError
from fairseq_plugins.evaluation import translate
from fairseq_plugins.evaluation.bleu import read_generated, read_references, read_text, score
from fairseq_plugins.evaluation.translator import Translator
from fairseq_plugins.translation.decoding import Decoding
from fairseq_plugins.translation.generated import PAIRS, SOURCE, TARGET
from fairseq_plugins.translation.prepare import Settings, prepare_toy
from tests.hostile import expression, naming_another_model, with_options
from tests.integration.helpers import (
    REPOSITORY,
    USER_DIR,
    fairseq_generate,
    hydra_train_config,
    load_checkpoint,
    overrides,
)
from tests.preprocessing import preprocess_here

RECIPE = REPOSITORY / "configs" / "wmt14_en_de.yaml"
MODELS = {
    "base": {},
    "linear encoder": {"model.encoder_attention_type": "linear"},
    "linear decoder": {
        "model.encoder_attention_type": "linear",
        "model.decoder_attention_type": "linear",
    },
}


def generate(data: Path, checkpoint: Path) -> None:
    """Run fairseq-generate with the translator's settings, on all sentences, joining subwords."""
    settings = Decoding().generation() | {"max_tokens": 4000, "required_batch_size_multiple": 1}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    fairseq_generate(data, checkpoint, "--task", "translation", "--remove-bpe", *flags)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translation") / "toy-mt"
    with preprocess_here():
        prepare_toy(folder, Settings(1000), seed=1, pairs=PAIRS)
    return folder


def train(row: str, toy: Path, folder: Path, **more: object) -> Path:
    settings = {
        "common.user_dir": USER_DIR,
        "task.data": toy,
        "checkpoint.save_dir": folder,
        "checkpoint.save_interval_updates": 0,
        **more,
    }
    hydra_train_config(RECIPE, f"model={row}", "scale/mt=toy", *overrides(settings))
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def base(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for two thirds of the recipe's updates, after which it has learned the pair."""
    return train("base", toy, tmp_path_factory.mktemp("base"), **{"optimization.max_update": 200})


@pytest.fixture(scope="session")
def translator(base: Path, toy: Path) -> Translator:
    return Translator(base, toy, Decoding(), cpu=True)


def bleu(translator: Translator, toy: Path) -> float:
    """Of raw test text against raw references."""
    found = translator.translate(read_text(toy / "raw" / f"test.{SOURCE}"))
    return score(list(found), read_references(toy, "test", TARGET), TARGET)[0]


def test_base_learns_the_toy_pair(translator, toy):
    assert bleu(translator, toy) > 90


@pytest.mark.slow
def test_base_knows_it_at_the_end_of_the_recipe(toy, tmp_path):
    checkpoint = train("base", toy, tmp_path)
    assert bleu(Translator(checkpoint, toy, Decoding(), cpu=True), toy) > 90


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.slow) for m in ("linear encoder", "linear decoder")]
)
def test_a_relative_encoding_learns_it_under_linear_attention(model, toy, tmp_path):
    checkpoint = train("lrpe_type2", toy, tmp_path, **MODELS[model])
    assert bleu(Translator(checkpoint, toy, Decoding(), cpu=True), toy) > 90


@pytest.mark.slow
def test_without_positions_it_cannot_be_learned(toy, tmp_path):
    checkpoint = train("none", toy, tmp_path)
    assert bleu(Translator(checkpoint, toy, Decoding(), cpu=True), toy) < 60


def test_fairseq_generate_says_the_same(base, translator, toy, tmp_path, capsys):
    """Its tokens, detokenised, are what translating the raw text gives."""
    capsys.readouterr()
    generate(toy, base)
    output = tmp_path / "generated.txt"
    output.write_text(capsys.readouterr().out, encoding="utf-8")
    lines = read_text(toy / "raw" / f"test.{SOURCE}")
    assert read_generated(output, TARGET, len(lines)) == list(translator.translate(lines))


# ---- raw text


def test_order_and_empty_lines_are_kept(translator, toy, monkeypatch):
    lines = read_text(toy / "raw" / f"test.{SOURCE}")[:7]
    mixed = ["", *lines[:3], " ", *lines[3:], ""]
    monkeypatch.setattr("fairseq_plugins.evaluation.translator.BUFFER_LINES", 4)
    found = list(translator.translate(mixed))
    assert [bool(line) for line in found] == [bool(line.strip()) for line in mixed]
    alone = [next(translator.translate([line])) for line in lines]
    assert [line for line in found if line] == alone
    assert list(translator.translate([])) == []


def test_a_file_in_and_a_file_out(base, toy, tmp_path, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = read_text(toy / "raw" / f"test.{SOURCE}")[:2]
    source.write_text("\n".join(lines), encoding="utf-8")  # the last line not ended
    words = ["--checkpoint", str(base), "--data", str(toy), "--cpu", str(source)]
    assert translate.main(words) == 0
    printed = capsys.readouterr().out
    assert translate.main([*words, "--output", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == printed
    assert printed.splitlines() == read_references(toy, "test", TARGET)[:2]


def test_languages_that_training_inferred_are_inferred_again(base, translator, toy, tmp_path):
    """fairseq does not save them."""
    state = load_checkpoint(base)
    state["cfg"]["task"]["source_lang"] = state["cfg"]["task"]["target_lang"] = None
    torch.save(state, tmp_path / "inferred.pt")
    lines = read_text(toy / "raw" / f"test.{SOURCE}")[:3]
    again = Translator(tmp_path / "inferred.pt", toy, Decoding(), cpu=True)
    assert again.languages == (SOURCE, TARGET)
    assert list(again.translate(lines)) == list(translator.translate(lines))
    folder = damaged(toy, tmp_path / "data", "codes", "")
    with pytest.raises(DataError, match=r"inferred\.pt nor .* gives the source"):
        Translator(tmp_path / "inferred.pt", folder, Decoding(), cpu=True)


def test_a_line_that_is_too_long_is_named(translator, base, toy, tmp_path, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("boral tair.\n" + "boral " * 1100 + "\n", encoding="utf-8")
    words = ["--checkpoint", str(base), "--data", str(toy), "--cpu", str(source)]
    assert translate.main([*words, "--output", str(target)]) == 2
    error = capsys.readouterr().err
    assert "in.txt, line 2: " in error
    assert "must have at most 1024 subwords, but has" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def damaged(toy: Path, folder: Path, name: str, text: str) -> Path:
    """The data folder as far as translating needs it, with another file."""
    folder.mkdir()
    for file in ("codes", f"dict.{SOURCE}.txt", f"dict.{TARGET}.txt"):
        shutil.copy(toy / file, folder / file)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("codes", "#version: 0.2\nx y</w>\n", r"dict\.qaa\.txt, line \d+: no merge of .*codes"),
        ("codes", "#version: 0.2\nx\n", r"codes, line 2: must be two"),
        (f"dict.{TARGET}.txt", ". 3\n", r"has \d+ tokens, but .*dict\.qab\.txt has 5"),
        (f"dict.{SOURCE}.txt", "cat 1\n", r"dict\.qaa\.txt, line 1: no merge of .* makes 'cat'"),
    ],
)
def test_another_vocabulary_is_refused(name, text, message, base, toy, tmp_path):
    folder = damaged(toy, tmp_path / "data", name, text)
    with pytest.raises((DataError, CheckpointError), match=message):
        Translator(base, folder, Decoding(), cpu=True)


def test_another_dictionary_of_the_same_size_is_refused(base, toy, tmp_path):
    """By translating and by fairseq's own command, where the training's data is gone."""
    checkpoint, folder = tmp_path / "model.pt", tmp_path / "data"
    state = load_checkpoint(base)
    state["cfg"]["task"]["data"] = "gone"
    torch.save(state, checkpoint)
    shutil.copytree(toy, folder)
    path = folder / f"dict.{TARGET}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:9], lines[10], lines[9], *lines[11:]]) + "\n")
    with pytest.raises(CheckpointError, match=r"dict\.qab\.txt must have"):
        Translator(checkpoint, folder, Decoding(), cpu=True)
    with pytest.raises(CheckpointError, match=r"dict\.qab\.txt must have"):
        generate(folder, checkpoint)


def test_folders_and_models_of_something_else_are_refused(base, checkpoints, tmp_path):
    with pytest.raises(DataError, match="does not hold codes"):
        Translator(base, tmp_path, Decoding(), cpu=True)
    with pytest.raises(CheckpointError, match="but is a pe_transformer_lm"):
        Translator(checkpoints["vanilla"], tmp_path, Decoding(), cpu=True)
    with pytest.raises(OptionError, match="--beam must be at least 1, but is 0"):
        Decoding(beam=0)


def test_options_of_a_checkpoint_are_not_evaluated(base, toy, tmp_path, capsys):
    path, marker, text = tmp_path / "x.pt", tmp_path / "ran", tmp_path / "in.txt"
    text.write_text("boral\n")
    words = ["--checkpoint", str(path), "--data", str(toy), "--cpu", str(text)]
    naming_another_model(base, path, marker)
    assert translate.main(words) == 2
    assert "must be a pe_transformer, but is a fconv_lm" in capsys.readouterr().err
    with_options(base, path, adaptive_softmax_cutoff=expression(marker))
    assert translate.main(words) == 2
    assert "`adaptive_softmax_cutoff` must be numbers joined by" in capsys.readouterr().err
    assert not marker.exists()
