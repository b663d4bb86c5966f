"""Bad input of every command: one line that names it, exit status 2, and nothing is written."""

import argparse
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from fairseq_plugins.__main__ import COMMANDS, main
from fairseq_plugins.cli import analyse
from fairseq_plugins.cli.table_options import SCRIPTS
from fairseq_plugins.cli.train_table import EXTRA_WORDS
from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS
from fairseq_plugins.common.errors import DataError, OptionError, WorkError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.option_types import new_file
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import FOLDER_VARIABLES

PREPARED = [typed.removeprefix("prepare ") for typed in PROGRAM_COMMANDS.values()]
OF_ANALYSIS = [
    name
    for action in analyse.get_parser()._actions
    if isinstance(action, argparse._SubParsersAction)
    for name in action.choices
]
# Every command that has options of its own.
LEAVES = [
    *(name for name in COMMANDS if name not in ("prepare", "table", "analyse", "convert")),
    *(f"prepare {words}" for words in PREPARED),
    *(f"table {name}" for name in [*SCRIPTS, *EXTRA_WORDS]),
    *(f"analyse {name}" for name in OF_ANALYSIS),
    *(f"convert {name}" for name in ("to-fairseq", "to-huggingface")),
]
# What each leaf needs before it looks at the next option.
NEEDED = {
    "prepare mlm text": "--from .",
    "prepare mt files": "--from . --src en --tgt de",
    "prepare glue": "--bpe .",
    "prepare squad": "--bpe . --version 1.1",
    "compare": "rope alibi --text short.txt",
    "finetune": ".",
    "evaluate": "--path x.pt --data .",
    "translate": "short.txt --checkpoint x.pt --data .",
    "average": ".",
    "convert to-fairseq": ". out",
    "convert to-huggingface": "short.txt out",
    "completion": "bash",
    "analyse extrapolation": "--path x.pt --data .",
    "analyse identical-words": "--path x.pt --data .",
    "analyse attention": "--path x.pt --data .",
    "analyse similarity": "--checkpoint x.pt --data .",
    "analyse figure": "1",
}
# Command, words, and what the line must have.
CASES = [
    ("encodings", "rop", "'rop'"),
    ("doctor", "x", "x"),
    ("prepare toy", "--train-sentences -5", "--train-sentences must be at least 1, but is -5"),
    ("prepare toy", "--seed x", "`--seed` must be an integer from 0 to 2147483647, but is 'x'"),
    ("prepare toy", "--seed -1", "`--seed` must be an integer from 0 to 2147483647, but is '-1'"),
    ("prepare toy", "--workers 0", "--workers must be at least 1, but is 0"),
    ("prepare toy mlm", "--merges 0", "--merges must be at least 1, but is 0"),
    ("prepare toy mt", "--train-pairs 0", "--train-pairs must be at least 1, but is 0"),
    ("prepare toy mt", "--max-ratio 0", "--max-ratio must be at least 1, but is 0.0"),
    ("prepare toy glue", "--train-examples 0 --bpe .", "--train-examples must be at least 1"),
    ("prepare toy squad", "--train-texts 0 --bpe .", "--train-texts must be at least 1"),
    ("prepare lm wikitext2", "--from absent", "--from must be an existing folder or zip"),
    ("prepare lm wikitext2", "--mini-merges 0", "--mini-merges must be at least 16, but is 0"),
    ("prepare lm wikitext103", "--from . --url http://x", "not allowed with argument --from"),
    ("prepare mlm text", "--from absent", "--from must be an existing folder, but is absent"),
    ("prepare mlm wikitext103", "--from absent --bpe .", "--from must be an existing folder"),
    ("prepare mlm pieces", "--from absent", "--from must be an existing folder, but is absent"),
    ("prepare mt files", "--from absent --src en --tgt de", "--from must be an existing folder"),
    ("prepare mt wmt14", "--from absent", "--from must be an existing folder, but is absent"),
    ("prepare glue", "--bpe . --tasks x", "'x'"),
    ("prepare glue", "--bpe absent", "absent"),
    ("prepare squad", "--bpe . --version 3", "--version: invalid choice: '3'"),
    ("prepare squad", "--bpe . --version 1.1 --from absent", "absent"),
    ("table table2", "--data absent", "--data` must be an existing folder, but is absent"),
    ("table table2", "--data .", "but . lacks dict.txt"),
    ("table table2", "--rows rop", "`--rows` must be 'paper' or among"),
    ("table table2", "--updates 0", "`--updates` must be at least 1, but is '0'"),
    ("table table2", "--set model=x", "`--set` must leave model"),
    ("table table2", "--set model.decoder_layers=x --dry-run", "decoder_layers"),
    ("table table2", "--seeds x", "`--seeds`"),
    ("table table2", "--lengths 1", "--lengths 1"),
    ("table table2", "--gpus -1", "`--gpus` must not be negative, but is -1"),
    ("table table2", "--jobs 99999999999", "`--jobs` must be at most 1,000, but is 99999999999"),
    ("table table2", "--name ../x", "`--name` must be a word"),
    ("table paper", "--rows rop", "`--rows` has rop"),
    ("table claims", "x", "x"),
    ("table", "table99", "invalid choice: 'table99'"),
    ("table", "tabel8", "Did you mean 'table8'?"),
    ("compare", "rope lrpe_type22 --text short.txt", "'lrpe_type22'"),
    ("compare", "rop rope --text short.txt", "'rop'"),
    ("compare", "rope rope --text short.txt", "different encodings"),
    ("finetune", "no.tsv", "DATA must be an existing file, but is no.tsv"),
    ("pack", "nothing", "unrecognized arguments: nothing"),
    ("rehearse", "--tables nothing", "`--tables` must be among"),
    (
        "rehearse",
        "--tables bert_adapted",
        "--tables must have a scale paper, but these have none: bert_",
    ),
    ("pack", "--table extrapolation", "must have one model for each run, but extrapolation has 0"),
    ("rehearse", "--train lm --processes 9", "--processes must be from 2 to 8, but is 9"),
    ("rehearse", "--rows rop", "`--rows` must be among"),
    ("compare", "rope alibi --text absent", "--text must be an existing file, but is absent"),
    ("compare", "rope alibi --text short.txt", "--text must have at least 20,000 bytes"),
    ("compare", "rope alibi --text short.txt --merges 0", "--merges must be at least 1, but is 0"),
    ("compare", "rope alibi --text short.txt --minutes 0", "--minutes must be from 0.5 to 1440"),
    ("compare", "rope alibi --text short.txt --seeds 1", "--seeds must be at least 2, but is 1"),
    ("evaluate", "--path x.pt --data . --lengths 0", "--lengths must be numbers from 1 on"),
    ("evaluate", "--path short.txt --data absent", "--data must be an existing folder, but is"),
    ("evaluate", "--path absent --data .", "--path must be an existing file, but is absent"),
    ("evaluate", "--path x.pt --data . --device tpu", "--device must be cpu, cuda or cuda:N"),
    ("status", "table99", "but is 'table99'"),
    ("analyse picture", "rop", "'rop'"),
    ("analyse picture", "rope --length 1", "--length must be at least 2, but is 1"),
    ("analyse picture", "rope --length 100000000", "--length must be at most 8,192, but is"),
    ("translate", f"short.txt --checkpoint x --data . --max-tokens {10**20}", "must be at most"),
    ("evaluate", f"--path x.pt --data . --batch-size {10**20}", "--batch-size must be at most"),
    ("evaluate", "--path x.pt --data . --lengths 99999999999", "--lengths must be at most"),
    ("analyse awareness", "dpe --width 6", "--width must be a multiple of 4, but is 6"),
    ("analyse correlations", "--scale x", "--scale: invalid choice: 'x'"),
    ("analyse extrapolation", "--path x --data . --lengths 2", "must be like 1x,2x"),
    ("analyse extrapolation", "--path x --data . --lengths 0x", "must be like 1x,2x"),
    ("analyse identical-words", "--path absent --data .", "--path must be an existing file"),
    ("analyse attention", "--path absent --data .", "--path must be an existing file"),
    ("analyse attention", "--path x --data . --heads 0", "--heads must be numbers from 1 on"),
    ("analyse similarity", "--checkpoint absent --data .", "--checkpoint must be an existing file"),
    ("analyse similarity", "--checkpoint y/x --checkpoint y/z --data .", "LABEL of its own"),
    ("analyse extrapolation", "--path absent --data .", "--path must be an existing file"),
    ("analyse figure", "2 --checkpoint a=absent", "--checkpoint must be an existing file or"),
    ("analyse figure", "2 --checkpoint short.txt --data absent", "--data must be an existing"),
    ("compare", "rope alibi --labelled absent", "--labelled must be an existing file"),
    ("analyse identical-words", "--path x --data . --words 0", "--words must be at least 1, but"),
    ("analyse identical-words", "--path x --data . --length 3", "--length must be at least 4, but"),
    ("analyse figure", "1 --words 0", "--words must be at least 1, but is 0"),
    ("analyse figure", "1 --output short.txt/x", "--output: must be a file in a folder"),
    ("analyse figure", "7", "7 needs training: run `fairseq-pe table bert_figure7`"),
    ("analyse figure", "12", "invalid choice: 12"),
    ("analyse figure", "3 --scale mini", "--scale must be left out with figure 3"),
    ("translate", "absent --checkpoint x --data .", "INPUT must be an existing file"),
    ("translate", "short.txt --checkpoint absent --data .", "--checkpoint must be an existing"),
    ("translate", "short.txt --checkpoint short.txt --data x", "--data must be an existing folder"),
    ("translate", "short.txt --checkpoint x --data . --beam 0", "--beam must be at least 1"),
    ("translate", "short.txt --checkpoint x --data . --length-penalty nan", "must be from -10 to"),
    ("translate", "short.txt --checkpoint x --data . --length-penalty 1e99", "must be from -10 to"),
    ("average", "absent", "FOLDER must be an existing folder, but is absent"),
    ("average", ". --last 1", "`--last` must be at least 2, but is 1"),
    ("average", ".", "`--last` must be at most the 0 checkpoints"),
    ("prepare start", "--from absent", "--from must be an existing folder, but is absent"),
    ("convert to-fairseq", "absent out --bpe .", "SOURCE must be an existing folder"),
    ("convert to-fairseq", ". out --bpe absent", "--bpe must be an existing folder, but is absent"),
    ("convert to-huggingface", "absent out --bpe .", "SOURCE must be an existing file"),
    ("convert to-huggingface", "short.txt data --bpe .", "OUTPUT must be a new folder, but data"),
    ("results", "x", "TABLE must be one of"),
    ("results", "--study other", "--study must be those of a result, but are any, any and other"),
    ("completion", "fish", "invalid choice: 'fish'"),
    ("report", "--root . --output short.txt", "--output must be a new folder or a report"),
    ("report", "--root absent", "--root must hold a folder `results`, but is absent"),
    ("path", "x", "x"),
    ("compare", "rope alibi --text short.txt --data-root short.txt/x", "--data-root: must be a"),
    ("finetune", "short.txt --output short.txt", "--output: must be a folder, but "),
    ("analyse picture", "rope --output short.txt/x", "--output: must be a folder, but "),
    ("results", "--output data", "--output: must be a file, but data is a folder"),
    ("evaluate", "--path x --data . --output short.txt/x", "--output: must be a file in a folder"),
    ("pack", "--output short.txt", "--output: must be a folder, but "),
    ("analyse identical-words", "--path x --data . --output .", "--output: must be a file, but "),
    ("analyse extrapolation", "--path x --data . --output x.json", "--output must be one picture"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a short text, a dictionary and an empty folder of results."""
    (tmp_path / "short.txt").write_text("a b\n")
    for name in ("results", "data"):
        (tmp_path / name).mkdir()
    for name in ("dict.txt", "valid.bin", "valid.idx"):
        (tmp_path / "data" / name).write_text("a 1\n")
    for kind in ("data", "checkpoints"):  # report looks for results below its --root
        monkeypatch.setenv(FOLDER_VARIABLES[kind], str(tmp_path / kind))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that must end with 2 says, which must be a line."""
    try:
        status = main(words)
    except SystemExit as stopped:
        status = stopped.code
    error = capsys.readouterr().err
    assert status == 2, error
    assert error.count("\n") == 1 and error.endswith("\n"), error
    return error


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


@pytest.mark.parametrize(("command", "words", "said"), CASES)
def test_bad_input_is_a_line(command, words, said, folder, capsys):
    before = sorted(files_below(folder))
    error = refused([*command.split(), *shlex.split(words)], capsys)
    assert error.startswith(f"fairseq-pe {command}: error: ")
    assert said in error
    assert sorted(files_below(folder)) == before


def test_a_file_to_write_needs_a_folder_that_can_be_written_to(folder, monkeypatch):
    """Devices and pipes are written in place, and need no such folder."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(argparse.ArgumentTypeError, match="that can be written to, not data"):
        new_file("data/new.json")
    assert new_file("/dev/null") == Path("/dev/null")


@pytest.mark.parametrize("command", LEAVES)
def test_an_unknown_option_is_a_line(command, folder, capsys):
    words = [*command.split(), *NEEDED.get(command, "").split(), "--no-such"]
    error = refused(words, capsys)
    assert error.startswith(f"fairseq-pe {command}: error: unrecognized arguments: --no-such")
    assert "--help" in error


def test_every_command_has_a_case():
    tried = {command.split()[0] for command, _, _ in CASES}
    assert tried == set(COMMANDS)
    prepared = {command.removeprefix("prepare ") for command, _, _ in CASES}
    assert set(PREPARED) <= prepared
    assert {f"analyse {name}" for name in OF_ANALYSIS} <= {command for command, _, _ in CASES}


def test_every_parser_is_one_that_says_a_line():
    for name, (module, _) in COMMANDS.items():
        get = getattr(import_module(module), "get_parser", None)
        assert get is None or isinstance(get(), Parser), name


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OptionError("--n must be\n  at least 1"), 2, "p: error: --n must be at least 1\n"),
        (DataError("x lacks y"), 2, "p: error: x lacks y\n"),
        (WorkError("a run failed\nits log"), 1, "p: error: a run failed\nits log\n"),
        (OSError("disk full"), 1, "p: error: disk full\n"),
        (subprocess.CalledProcessError(3, "f", "its log"), 1, "its log\np: error: "),
    ],
)
def test_what_was_refused_is_two_and_what_failed_is_one(error, status, said, capsys):
    def work() -> None:
        raise error

    assert exit_status("p", work) == status
    assert capsys.readouterr().err.startswith(said)
