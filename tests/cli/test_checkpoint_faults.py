"""Errors about a checkpoint: they name the option that gave it and the file, in every command."""

import io
import math
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.cli import analyse, convert, evaluate, finetune, train_table
from fairseq_plugins.evaluation import average, translate
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION
from tests import checkpoints
from tests.hostile import expression

State = dict[str, Any]
SECRET = "a-secret-of-the-environment"


class Code:
    """What runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def _options(state: State, **values: Any) -> None:
    state["cfg"]["model"].update(values)


def _side(state: State, name: str) -> str:
    side = "encoder" if "encoder_layers" in state["cfg"]["model"] else "decoder"
    return f"{side}_{name}"


def _side_option(name: str, value: Any) -> Callable[[State], None]:
    return lambda state: _options(state, **{_side(state, name): value})


def _weight(state: State) -> str:
    return next(name for name in state["model"] if name.endswith("layers.0.fc1.weight"))


def _change(change: Callable[[torch.Tensor], Any]) -> Callable[[State], None]:
    def apply(state: State) -> None:
        state["model"][_weight(state)] = change(state["model"][_weight(state)])

    return apply


def _without(state: State, *keys: str) -> None:
    inner = state
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]


# What is changed in a sound one.
CHANGES: dict[str, Callable[[State], Any]] = {
    "code": lambda s: s.update(extra_state=Code()),
    "no weights": lambda s: s["model"].clear(),
    "no table of weights": lambda s: s.update(model=[1, 2]),
    "no options": lambda s: _without(s, "cfg"),
    "options are a list": lambda s: s.update(cfg=[1]),
    "no options of the model": lambda s: _without(s, "cfg", "model"),
    "options of the model are a word": lambda s: s["cfg"].update(model="pe_transformer_lm"),
    "another model": lambda s: s["cfg"].update(
        model={"_name": "fconv_lm", "decoder_layers": expression(Path("ran"))}
    ),
    "no such model": lambda s: _options(s, _name="x"),
    "a resolver": lambda s: _options(s, activation_fn="${oc.env:SECRET}"),
    "a resolver in the data": lambda s: s["cfg"]["task"].update(data="${oc.env:SECRET}"),
    "an interpolation": lambda s: _options(s, dropout="${model.attention_dropout}"),
    "another encoding": lambda s: _options(s, position_encoding="t5"),
    "no such encoding": lambda s: _options(s, position_encoding="rop"),
    "no such option of the encoding": lambda s: _options(s, position_encoding_options="x=1"),
    "no such attention": lambda s: _options(s, attention_type="soft"),
    "no such activation": lambda s: _options(s, activation_fn="x"),
    "heads 0": _side_option("attention_heads", 0),
    "heads 3": _side_option("attention_heads", 3),
    "heads -2": _side_option("attention_heads", -2),
    "heads a word": _side_option("attention_heads", "two"),
    "layers 10^9": _side_option("layers", 10**9),
    "layers 10^30": _side_option("layers", 10**30),
    "layers 1": _side_option("layers", 1),
    "layers -1": _side_option("layers", -1),
    "width 0": _side_option("embed_dim", 0),
    "width 10^9": _side_option("embed_dim", 10**9),
    "another inner width": _side_option("ffn_embed_dim", 7),
    "dropout nan": lambda s: _options(s, dropout=math.nan),
    "dropout -1": lambda s: _options(s, dropout=-1.0),
    "a weight is missing": lambda s: _without(s, "model", _weight(s)),
    "a weight too many": lambda s: s["model"].update(more=torch.zeros(2)),
    "another shape": _change(lambda w: torch.zeros(3, 5)),
    "nan": _change(lambda w: w.clone().fill_(math.nan)),
    "inf": _change(lambda w: w.clone().fill_(math.inf)),
    "no tensor": _change(lambda w: "x"),
}
# What is changed in a sound file.
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "cut off": lambda content: content[:-1],
    "text": lambda content: b"no checkpoint\n",
    "random": lambda content: bytes(range(256)) * 8,
    "a list": lambda content: b"\x80\x02]q\x00.",
}
OF_TRAINING: dict[str, Callable[[State], Any]] = {
    "no updates": lambda s: s.update(optimizer_history=[]),
    "updates are a word": lambda s: s["optimizer_history"][-1].update(num_updates="x"),
    "updates -1": lambda s: s["optimizer_history"][-1].update(num_updates=-1),
    "no place in the data": lambda s: _without(s, "extra_state", "train_iterator"),
    "an optimizer is a word": lambda s: s.update(last_optimizer_state="x"),
}


@dataclass(frozen=True)
class Reader:
    """What reads a checkpoint of a model, and the option that gives the file."""

    model: str
    option: str
    read: Callable[[Path, Path], Any]  # a file and its data; raises what is printed


class Refused(ValueError):
    """The last line that a command has printed, without its name."""


def _run(main: Callable[[list[str]], int], *words: str | Path) -> None:
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
    if status:
        raise Refused(said.getvalue().strip().splitlines()[-1].partition(" error: ")[2])


def _average(path: Path, data: Path) -> None:
    folder = path.with_name("training")
    folder.mkdir(exist_ok=True)
    for file, updates in ((data / "s.pt", 4), (path, 5)):
        if file.exists():
            shutil.copyfile(file, folder / f"checkpoint_1_{updates}.pt")
    _run(average.main, folder, "--last", "2", "--output", path.with_name("average"))


def _translate(path: Path, data: Path) -> None:
    (text := path.with_name("text")).write_text("a b\n")
    _run(translate.main, text, "--checkpoint", path, "--data", data, "--cpu")


def _convert(path: Path, data: Path) -> None:
    target = path.with_name("converted")
    _run(convert.main, "to-huggingface", path, target, "--bpe", data)


def _analyse(command: str, *more: str) -> Callable[[Path, Path], None]:
    return lambda path, data: _run(
        analyse.main, *command.split(), path, "--data", data, "--cpu", *more
    )


def _picture(path: Path, data: Path) -> None:
    words = ["--path", path, "--data", data, "--output", path.with_name("pictures")]
    _run(analyse.main, "picture", *words)


def _evaluate(path: Path, data: Path) -> None:
    _run(evaluate.main, "--path", path, "--data", data, "--device", "cpu")


def _train(option: str) -> Callable[[Path, Path], None]:
    """Return a function that builds a model for a training that starts from the file."""

    def build(path: Path, data: Path) -> None:
        options = {"init_from": str(path)} if option == "init_from" else {}
        config = checkpoints.configure(LM, data, position_encoding="rope", **options)
        config.checkpoint.save_dir = str(path.with_name("trained"))
        if not options:
            path.is_file() or path.write_bytes(b"")  # else training starts anew, as it should
            config.checkpoint[option] = str(path)
        checkpoints.build(LM, config)

    return build


READERS = {
    "evaluate": Reader(LM, "--path", _evaluate),
    "average": Reader(TRANSLATION, "FOLDER", _average),
    "translate": Reader(TRANSLATION, "--checkpoint", _translate),
    "convert": Reader(ROBERTA, "SOURCE", _convert),
    "figure": Reader(ROBERTA, "--checkpoint", _analyse("figure 2 --output x --checkpoint")),
    "resume": Reader(LM, "`restore_file`", _train("restore_file")),
    "init_from": Reader(LM, "`init_from`", _train("init_from")),
}
# These read them as those above do.
ALSO = {
    "identical-words": Reader(LM, "--path", _analyse("identical-words --path")),
    "picture": Reader(LM, "--path", _picture),
    "attention": Reader(
        LM,
        "--path",
        _analyse("attention --split valid --length 5 --samples 1 --output x --path"),
    ),
    "similarity": Reader(
        LM,
        "--checkpoint",
        _analyse("similarity --split valid --length 5 --output x --checkpoint"),
    ),
    "extrapolation": Reader(
        LM, "--path", _analyse("extrapolation --path", "--lengths", "1x", "--split", "valid")
    ),
    "finetune_from_model": Reader(LM, "`finetune_from_model`", _train("finetune_from_model")),
    "fairseq": Reader(
        LM,
        "`path` or `restore_file`",
        lambda path, _: checkpoint_utils.load_model_ensemble_and_task([str(path)]),
    ),
}
ENCODINGS = {LM: "rope", ROBERTA: "learned", TRANSLATION: "rope"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Data for each model, with a sound checkpoint."""
    found = {}
    for model in checkpoints.SIZES:
        data = checkpoints.write_data(model, tmp_path_factory.mktemp(model))
        torch.save(checkpoints.make(model, data, position_encoding=ENCODINGS[model]), data / "s.pt")
        found[model] = data
    return found


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", SECRET)


def refusal(reader: Reader, path: Path, data: Path) -> str:
    """What a reader says of a file, without having run anything in it."""
    with pytest.raises((ValueError, OSError)) as error:
        reader.read(path, data)
    said = str(error.value)
    assert not Path("ran").exists()
    assert said.startswith(reader.option) and path.name in said, said
    assert len(said) < 2000 and SECRET not in said and "weights_only" not in said
    return said


@pytest.mark.parametrize("name", [*READERS, *ALSO])
def test_a_sound_one_is_read(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    reader = (READERS | ALSO)[name]
    data, path = folders[reader.model], tmp_path / "checkpoint_1_5.pt"
    shutil.copyfile(data / "s.pt", path)
    reader.read(path, data)


def test_a_checkpoint_without_a_folder_is_named_by_its_file(folders: dict[str, Path]) -> None:
    shutil.copyfile(folders[LM] / "s.pt", path := Path("checkpoint_1_5.pt"))
    ALSO["attention"].read(path, folders[LM])
    assert f"- {path.stem}: `" in Path("x.md").read_text()


# Each fault by two readers is enough where time is short: each reader then finds many of them.
FAULTS = [
    pytest.param(fault, name, marks=[] if (i - j) % len(READERS) < 2 else [pytest.mark.slow])
    for i, fault in enumerate([*CHANGES, *DAMAGES])
    for j, name in enumerate(READERS)
]


@pytest.mark.parametrize(("fault", "name"), FAULTS)
def test_a_fault_is_named(fault: str, name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    if (fault, name) in (("another encoding", "init_from"), ("missing", "average")):
        return  # which is what it is for; there are fewer then
    _refuses(READERS[name], fault, folders, tmp_path)


@pytest.mark.parametrize("name", ALSO)
@pytest.mark.parametrize("fault", ["code", "a resolver", "a resolver in the data", "half", "empty"])
def test_other_commands_read_no_more(
    fault: str, name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    _refuses(ALSO[name], fault, folders, tmp_path)


@pytest.mark.parametrize("fault", ["code", "half", "empty", "no options"])
@pytest.mark.parametrize("command", ["finetune", "table", "table of a published scale"])
def test_a_start_is_refused_before_any_work(
    fault: str, command: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    (examples := tmp_path / "own.tsv").write_text("label\tsentence\n" + "a\tb c\nb\tc\n" * 10)
    table = [train_table.main, "bert_table4", "--rows", "shaw_only", "--dry-run", "--scale"]
    words = {
        "finetune": [finetune.main, examples, "--output", tmp_path / "tuned"],
        "table": [*table, "toy"],
        "table of a published scale": [*table, "published"],
    }[command]
    if (fault, command) == ("no options", "table"):
        return  # as a published one may be
    reader = Reader(ROBERTA, "`--start`", lambda path, _: _run(*words, "--start", path))
    _refuses(reader, fault, folders, tmp_path)


def _refuses(reader: Reader, fault: str, folders: dict[str, Path], tmp_path: Path) -> None:
    data, path = folders[reader.model], tmp_path / "checkpoint_1_5.pt"
    _write_faulty(fault, data / "s.pt", path)
    refusal(reader, path, data)


def _write_faulty(fault: str, sound: Path, path: Path) -> None:
    """Write a copy of a sound checkpoint with a fault; nothing where the fault is its absence."""
    if fault in CHANGES:
        state = torch.load(sound, weights_only=True)
        CHANGES[fault](state)
        torch.save(state, path)
    elif (content := DAMAGES[fault](sound.read_bytes())) is not None:
        path.write_bytes(content)


@pytest.mark.parametrize("fault", OF_TRAINING)
def test_a_training_does_not_go_on_without_its_state(
    fault: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    state = torch.load(folders[LM] / "s.pt", weights_only=True)
    OF_TRAINING[fault](state)
    torch.save(state, tmp_path / "checkpoint.pt")
    refusal(READERS["resume"], tmp_path / "checkpoint.pt", folders[LM])
