"""`fairseq-pe compare` from its words to its pages, with stand-ins for fairseq's commands."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from fairseq_plugins.cli import compare, finetune
from fairseq_plugins.common.locks import exclusive_lock
from fairseq_plugins.data import one_text
from fairseq_plugins.runner import text_comparison, time_budget
from tests.pictures import save_points
from tests.tables.fake_fairseq import launched_by, save

REPOSITORY = Path(__file__).resolve().parents[2]
WORDS = ["rope", "xl", "--minutes", "5", "--merges", "20"]


class Fake:
    """Trains at once; xl is better by about 0.1 bits. `failing` is a row."""

    def __init__(self, root: Path, failing: str = "") -> None:
        self.root, self.failing = root, failing
        self.updates: list[tuple[str, int]] = []

    def __call__(self, command, log, on_lines, keep_open=()):
        module, words = command[2], command[3:]
        if module == "fairseq_cli.eval_lm":
            row, _, seed = Path(words[words.index("--path") + 1]).parent.name.split("-")
            loss = 6.0 + 0.02 * int(seed[1:]) - (0.1 + 0.01 * (int(seed[1:]) % 3)) * (row == "xl")
            log.write_text(f"Loss (base 2): {loss:.4f}, Perplexity: {2**loss:.2f}\n")
        elif module == "fairseq_cli.hydra_train":
            options = dict(w.split("=", 1) for w in words if "=" in w)
            if options["model"] == self.failing:
                log.write_text("RuntimeError: out of memory\n")
                return 1
            folder, last = (
                self.root / options["checkpoint.save_dir"],
                options["optimization.max_update"],
            )
            self.updates.append((folder.name, int(last)))
            lines = [
                json.dumps({"loss": str(9 - i / 1000), "wps": "40000", "num_updates": str(i)})
                for i in range(10, int(last) + 1, 10)
            ]
            log.write_text("".join(f"[train_inner] - {line}\n" for line in lines))
            save(folder, int(last), ["checkpoint_last.pt"])
        else:
            assert command[0] == sys.executable
        return 0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with the recipes, and a text that is prepared at once."""
    save_points(monkeypatch)
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 5)  # of 10, which take longer
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    (tmp_path / "book.txt").write_text("a b c\n" * 5000)

    def prepare(text, output, *, merges, workers):
        output.mkdir(parents=True, exist_ok=True)
        for split in ("train", "valid", "test"):
            for suffix in ("bin", "idx"):
                (output / f"{split}.{suffix}").touch()
        (output / "dict.txt").write_text("a 3\n")
        (output / "data.json").write_text('{"request": {"corpus": "book"}}')

    monkeypatch.setattr(one_text, "prepare_one_text", prepare)
    monkeypatch.setattr(text_comparison, "ROOT", tmp_path)
    monkeypatch.setattr(text_comparison, "data_folder", lambda name: tmp_path / "data" / name)
    return tmp_path


def refusal(call) -> int:
    """The exit status of a call, also where the parser exits itself."""
    try:
        return call()
    except SystemExit as stopped:
        return stopped.code


def run(root: Path, monkeypatch, fake: Fake, *words: str) -> int:
    with launched_by(fake):
        return compare.main([*WORDS, "--text", str(root / "book.txt"), *words])


def test_a_comparison_ends_with_a_difference_and_its_interval(root, monkeypatch, capsys):
    fake = Fake(root)
    assert run(root, monkeypatch, fake) == 0
    said = capsys.readouterr().out
    assert "xl is better than rope (p < 0.001)" in said and "95 % interval" in said
    assert f"{time_budget.MOST_SEEDS} paired seeds" in said  # there was time for all of them
    trained = [updates for _, updates in fake.updates]
    assert trained[:2] == [time_budget.PILOT_UPDATES] * 2
    assert len(set(trained[2:])) == 1 and len(trained) == 2 + 2 * time_budget.MOST_SEEDS
    seeds = sorted(name for name, _ in fake.updates[2:])
    assert seeds == sorted(f"{r}-vanilla-s{s}" for r in ("rope", "xl") for s in range(1, 6))
    folder = root / "results" / "table2"
    name = "rope-xl-vanilla-book"
    assert {path.name for path in folder.iterdir()} == {
        name, f"{name}.md", f"{name}-pairs.md", f"{name}-pairs.png", f"{name}-pairs.svg"
    }  # fmt: skip
    page = (folder / f"{name}.md").read_text()
    for path in folder.glob("*.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
        assert [link for link in links if not (folder / link).exists()] == []
    assert f"optimization.max_update: 1200 -> {trained[-1]}" in page and "book" in page
    runs = (root / "checkpoints" / "table2").iterdir()
    assert {path.name for path in runs} == {name, f"{name}.lock"}
    assert not list(root.rglob("*.trial*"))


@pytest.mark.slow
def test_it_is_shown_again_and_made_anew_by_force(root, monkeypatch, capsys):
    run(root, monkeypatch, Fake(root))
    first = capsys.readouterr().out
    again = Fake(root)
    assert run(root, monkeypatch, again) == 0
    said = capsys.readouterr()
    assert again.updates == [] and "Compared before" in said.out and said.err == ""
    assert first[first.index("PPL (test), lower") : first.index("Minutes")] in said.out
    assert run(root, monkeypatch, again, "--force") == 0
    assert len(again.updates) == 2 + 2 * time_budget.MOST_SEEDS


def test_pages_outside_the_root_are_named_as_every_folder_finds_them(
    root, tmp_path_factory, monkeypatch, capsys
):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 2)
    results = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("FAIRSEQ_PE_RESULTS", str(results))
    assert run(root, monkeypatch, Fake(root), "--seeds", "2") == 0
    written = capsys.readouterr().out.partition("Written: ")[2].splitlines()[0].split(", ")
    assert {Path(path).parent for path in written} == {results / "table2"}


def test_what_was_compared_on_another_text_is_not_shown(root, monkeypatch, capsys):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 2)
    assert run(root, monkeypatch, Fake(root), "--seeds", "2") == 0
    capsys.readouterr()
    book = root / "book.txt"
    book.write_text("x y z\n" * 5000)
    assert run(root, monkeypatch, Fake(root)) == 2
    said = capsys.readouterr()
    assert "PPL" not in said.out and "--name must be a new one, or --force given" in said.err
    book.write_text("a b c\n" * 5000)
    assert run(root, monkeypatch, Fake(root), "--merges", "21") == 2
    assert "but --text and --merges make compare-book-21-" in capsys.readouterr().err
    assert run(root, monkeypatch, Fake(root)) == 0
    assert "Compared before" in capsys.readouterr().out


def test_half_a_pair_is_made_anew(root, monkeypatch, capsys):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 2)
    assert run(root, monkeypatch, Fake(root), "--seeds", "2") == 0
    for path in (root / "results").rglob("xl-*.json"):  # as Ctrl-C leaves it in the first pair
        path.unlink()
    again = Fake(root)
    assert run(root, monkeypatch, again, "--seeds", "2") == 0
    assert len(again.updates) == 2 + 2 * 2
    assert "2 paired seeds" in capsys.readouterr().out.split("Minutes")[1]


@pytest.mark.parametrize("words", [["--force"], []])
def test_what_is_no_comparison_of_these_rows_is_left_alone(root, monkeypatch, capsys, words):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 2)
    words = ["--name", "mine", "--seeds", "2", *words]
    assert run(root, monkeypatch, Fake(root), *words) == 0
    before = sorted((root / "results").rglob("*.json"))
    assert compare.main(["rope", "t5", "--text", str(root / "book.txt"), *words]) == 2
    said = capsys.readouterr().err
    assert "--name must be a new one: in results/table2/mine is " in said
    study = before[0].read_text().replace("compare-book", "another")  # as a table's own study
    before[0].write_text(study)
    assert run(root, monkeypatch, Fake(root), *words) == 2
    assert sorted((root / "results").rglob("*.json")) == before


def test_it_is_shown_after_another_row_was_added(root, monkeypatch, capsys):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 2)
    assert run(root, monkeypatch, Fake(root), "--seeds", "2") == 0
    folder = root / "results" / "table2" / "rope-xl-vanilla-book"
    for row, attention in (("alibi", "vanilla"), ("rope", "linear")):
        added = (folder / "rope-vanilla-s1.json").read_text().replace('"rope"', f'"{row}"')
        added = added.replace('"vanilla"', f'"{attention}"')
        (folder / f"{row}-{attention}-s1.json").write_text(added)
    capsys.readouterr()
    again = Fake(root)
    assert run(root, monkeypatch, again) == 0
    said = capsys.readouterr().out
    assert "Compared before" in said and "2 paired seeds" in said and again.updates == []
    assert run(root, monkeypatch, again, "--force") == 2  # would remove what was added
    assert "is alibi-vanilla-s1, which is not of a comparison" in capsys.readouterr().err


def test_a_comparison_that_another_process_makes_is_refused(root, monkeypatch, capsys):
    lock = root / "checkpoints" / "table2" / "rope-xl-vanilla-book.lock"
    again = Fake(root)
    with exclusive_lock(lock, "it"):
        assert run(root, monkeypatch, again) == run(root, monkeypatch, again, "--force") == 2
    said = capsys.readouterr()
    assert again.updates == [] and "PPL" not in said.out
    assert "--name must be another one until" in said.err and f"process {os.getpid()}" in said.err


def test_a_run_that_fails_is_told_with_its_log(root, monkeypatch, capsys):
    assert run(root, monkeypatch, Fake(root, failing="xl")) == 1
    error = capsys.readouterr().err
    assert "xl-vanilla-s1: training ended with status 1" in error and "out of memory" in error


@pytest.mark.parametrize(("margin", "pairs"), [(0.0, 1), (0.85, 5)])
def test_without_time_for_longer_runs_the_pilot_counts(root, monkeypatch, capsys, margin, pairs):
    monkeypatch.setattr(time_budget, "FEWEST_UPDATES", 10**6)
    monkeypatch.setattr(time_budget, "MARGIN", margin)
    fake = Fake(root)
    assert run(root, monkeypatch, fake) == 0
    said = capsys.readouterr().out
    assert len(fake.updates) == 2 * pairs and {u for _, u in fake.updates} == {20}
    assert "the pilot is the" in said and f"{pairs} paired seed" in said
    assert "So far (pilot of 20 updates, seed 1): PPL (test): xl " in said
    assert not list((root / "checkpoints").rglob("*.pilot*"))


def test_three_encodings_are_compared_in_all_pairs(root, monkeypatch, capsys):
    monkeypatch.setattr(time_budget, "MOST_SEEDS", 3)
    words = ["--seeds", "3", "--minutes", "5", "--text", str(root / "book.txt")]
    with launched_by(Fake(root)):
        assert compare.main(["rope", "t5", "xl", *words]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("Comparing rope, t5, xl under vanilla attention")
    page = (root / "results" / "table2" / "rope-t5-xl-vanilla-book-pairs.md").read_text()
    for pair in ("t5 - rope", "xl - rope", "xl - t5"):
        assert pair in said and f"| {pair} |" in page
    assert "xl is better than t5 (p " in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rope", "rope"], "two or more different encodings, but are rope rope"),
        (["rope"], "two or more different encodings, but are rope"),
        (["rope", "roope"], "Did you mean 'rope'"),
        (["rope", "t5", "--attention", "linear"], "attn_bias"),
        (["rope", "xl", "--minutes", "0.1"], "--minutes must be from 0.5"),
        (["rope", "xl", "--seeds", "1"], "--seeds must be at least 2"),
        (["rope", "xl", "--seeds", "99999999999"], "--seeds must be at most 1,000"),
        (["rope", "xl", "--name", "mini"], "no scale"),
        (["rope", "xl", "--text", "/no/such/file"], "--text must be an existing file"),
        (["rope", "xl", "--start", "x"], "--start must be left out with --text"),
        (["rope", "xl", "--results", __file__], "--results: must be a folder, but "),
        (["rope", "xl", "--results", f"{__file__}/x"], "--results: must be a folder, but "),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(root, capsys, words, message):
    given = words if "--text" in words else [*words, "--text", str(root / "book.txt")]
    assert refusal(lambda: compare.main(given)) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert {path.name for path in root.iterdir()} == {"configs", "book.txt"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "--text must have at least 20,000 bytes, but"),
        (b"\xb5" * 30_000, "--text must be readable text, but"),
        (b"x" * 30_000, "--text must have at least 20 lines"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused_before_any_work(root, capsys, content, message):
    (root / "book.txt").write_bytes(content)
    assert compare.main(["rope", "xl", "--text", str(root / "book.txt")]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == ""
    assert {path.name for path in root.iterdir()} == {"configs", "book.txt"}


def test_labelled_examples_are_fine_tuned(root, monkeypatch):
    given, own = [], root / "own.tsv"
    own.touch()
    monkeypatch.setattr(finetune, "run", given.append)
    assert compare.main(["rope", "base", "--labelled", str(own), "--seeds", "3"]) == 0
    (args,) = given
    assert (args.data, args.encoding, args.seeds) == (own, ["rope", "base"], [1, 2, 3])
    for words in (
        ["rope", "base", "--seeds", "0"],
        ["rope", "base", "--seeds", "99999999999"],
        ["rope", "rope"],
        ["rope"],
        ["rope", "base", "--minutes", "3"],
        ["rope", "base", "--merges", "30"],
        ["rope", "base", "--name", "mine"],
    ):
        assert refusal(lambda words=words: compare.main([*words, "--labelled", str(own)])) == 2
    assert len(given) == 1
