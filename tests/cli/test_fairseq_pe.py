"""`fairseq-pe`: what it finds, what it says where something is missing, and completion."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.__main__ import ALIASES, COMMANDS, FIRST_STEPS, main
from fairseq_plugins.cli.prepare import PREPARATIONS, find
from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS
from fairseq_plugins.common.root import PACKAGE

ROOT = Path(__file__).resolve().parents[2]


def test_every_script_that_makes_data_has_its_words():
    scripts = {path.stem for path in (ROOT / "scripts").glob("prepare_*.sh")}
    assert scripts == set(PROGRAM_COMMANDS) == set(PREPARATIONS)
    for script, words in PROGRAM_COMMANDS.items():
        (line,) = re.findall(
            r'exec "\$PYTHON" -m fairseq_plugins (.*) "\$@"',
            (ROOT / "scripts" / f"{script}.sh").read_text(),
        )
        assert line == words
        assert find([*words.split()[1:], "--output", "x"]) == (script, len(words.split()) - 1)


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "fairseq_plugins", "encodings"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as shown:
        shown.stdout.close()  # as `| head` does
        assert shown.stderr.read() == ""
    assert shown.returncode == 141  # of SIGPIPE, as shells print it; 1 is a failure


def test_ctrl_c_prints_a_line_and_no_traceback(monkeypatch, capsys):
    def stop(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("fairseq_plugins.catalog.main", stop)
    assert main(["encodings"]) == 130
    assert capsys.readouterr().err == "\nfairseq-pe encodings: stopped\n"


def test_no_arguments_print_one_screen_of_commands_that_exist(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 24
    for _, command in FIRST_STEPS:
        assert command.split()[0] in COMMANDS and f"fairseq-pe {command}" in shown


def test_one_folder_serves_language_models_and_masked_ones():
    assert find(["lm", "text", "--from", "x"]) == find(["mlm", "text"])
    assert find(["glue", "--bpe", "x"]) == ("prepare_glue", 1)
    assert find(["mlm"]) is None and find([]) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prepare", "mlm"], "which mlm? There is: mlm text, mlm wikitext103, mlm pieces"),
        (["prepare", "glu"], "invalid choice: 'glu'"),
        (["tabel"], "invalid choice: 'tabel'"),
        (["table", "table99"], "invalid choice: 'table99'"),
    ],
)
def test_unknown_words_end_with_two(capsys, words, said):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_what_is_not_installed_is_named_with_its_extra():
    code = (
        "import sys; sys.modules['fairseq'] = None\n"
        "from fairseq_plugins.__main__ import main\n"
        "sys.exit(main(['table', 'table2', '--dry-run']))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "fairseq-pe table: error: fairseq is not installed; pip install -e '.[train]' brings it"
    )
    assert "Traceback" not in done.stderr


def test_help_names_every_table(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["table", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    scripts = {path.stem for path in (ROOT / "scripts").glob("*.sh")}
    named = {name for name in scripts if re.search(rf"^  {name} ", shown, re.MULTILINE)}
    assert {"table2", "table9", "bert_table5", "claims", "paper", "floor_sweep"} <= named
    assert "Table 9" in shown


def test_the_table_of_correlations_is_that_of_analyse(tmp_path, monkeypatch, capsys):
    from fairseq_plugins.cli import analyse_bert

    monkeypatch.setattr(analyse_bert, "ROOT", tmp_path)
    assert main(["table", "bert_table5", "--scale", "toy"]) == 2
    assert "fairseq-pe analyse correlations: error: --scale must" in capsys.readouterr().err


def test_the_table_that_times_is_made_by_the_benchmarks_of_a_checkout():
    command = [sys.executable, "-m", "fairseq_plugins", "table", "table9", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: fairseq-pe table table9")


def test_paths_and_the_version(capsys):
    assert main(["path"]) == 0 and main(["path", "--configs"]) == 0
    assert capsys.readouterr().out.split() == [str(PACKAGE), str(ROOT / "configs")]
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert re.fullmatch(r"fairseq-pe \S+\n", capsys.readouterr().out)


def test_the_shell_completes_commands_tables_and_options(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    ask = (
        'source "$0"; COMP_WORDS=(fairseq-pe "$@"); COMP_CWORD=$#; '
        '$(complete -p fairseq-pe | grep -o "_shtab[a-z_]*"); echo "${COMPREPLY[@]}"'
    )

    def completed(*words: str) -> list[str]:
        command = ["bash", "-c", ask, str(script), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert {*COMMANDS} <= {*completed("")} and not {*ALIASES} & {*COMMANDS}
    assert completed("comp") == ["compare", "completion"]
    assert "table2" in completed("table", "tab")
    assert completed("table", "table2", "--upd") == ["--updates"]
    assert completed("table", "table2", "--scale", "to") == ["toy"]
