"""The embedded corpus: the same for the same seed, and each kind of sentence keeps its rules."""

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fairseq_plugins.data import lexicon
from fairseq_plugins.data.generated import (
    SENTENCES,
    add_arguments,
    sentences_from,
    write_corpus,
)
from fairseq_plugins.data.sentences import KINDS, Sentence, generate

FEW = {"train": 30, "valid": 5, "test": 5}


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return generate(7, 2000)


def of_kind(sentences: list[Sentence], kind: str) -> list[Sentence]:
    return [sentence for sentence in sentences if sentence.kind == kind]


# ---- the language


def test_words_belong_to_one_category_each():
    assert len(lexicon.WORDS) == len(set(lexicon.WORDS)) == 199
    assert {lexicon.CATEGORY[word] for word in lexicon.CONTENT} == {"noun", "verb", "adjective"}
    assert lexicon.CATEGORY["ka"] == "article"
    with pytest.raises(KeyError):
        lexicon.CATEGORY["house"]


def test_same_seed_same_sentences():
    assert generate(3, 50) == generate(3, 50)
    assert generate(3, 50) != generate(4, 50)


def test_only_words_of_the_lexicon_and_one_stop_at_the_end(sentences):
    for sentence in sentences:
        assert set(sentence.tokens) <= set(lexicon.WORDS)
        assert sentence.tokens.index(".") == len(sentence.tokens) - 1


def test_kinds_come_in_their_shares(sentences):
    counts = Counter(sentence.kind for sentence in sentences)
    assert sum(share for _, share in KINDS.values()) == pytest.approx(1)
    for kind, (_, share) in KINDS.items():
        assert counts[kind] / len(sentences) == pytest.approx(share, abs=0.03)


def test_every_word_is_used():
    used = {word for sentence in generate("1/train", 5000) for word in sentence.tokens}
    assert used == set(lexicon.WORDS)


# ---- agreement


def phrases(sentence: Sentence, role: str) -> list[tuple[str, ...]]:
    return [sentence.tokens[p.start : p.end] for p in sentence.phrases if p.role == role]


def test_the_nth_verb_agrees_with_the_nth_subject(sentences):
    for sentence in sentences:
        subjects, verbs = phrases(sentence, "subject"), phrases(sentence, "verb")
        for (article, *_), (verb, ending) in zip(subjects, verbs, strict=True):
            assert ending == f"-{article}" and lexicon.CATEGORY[verb] == "verb"
        assert sum(word in lexicon.ENDINGS for word in sentence.tokens) == len(verbs)


def test_nouns_have_the_class_of_the_article_before_them(sentences):
    for sentence in of_kind(sentences, "statement") + of_kind(sentences, "chain"):
        article = None
        for word in sentence.tokens:
            if lexicon.CATEGORY[word] == "article":
                article = word
            elif lexicon.CATEGORY[word] == "noun":
                assert word in lexicon.NOUNS[lexicon.ARTICLES.index(article)]


def test_the_nearest_article_would_usually_be_the_wrong_one(sentences):
    """Otherwise the ending could be told without looking back over the distractors."""
    statements = of_kind(sentences, "statement")
    misled = 0
    for sentence in statements:
        before = sentence.tokens[: sentence.phrases[1].start]
        articles = [word for word in before if word in lexicon.ARTICLES]
        assert len(articles) >= 2
        misled += articles[-1] != sentence.tokens[0]
    assert misled / len(statements) > 0.6


# ---- brackets


def test_brackets_nest_and_are_deep(sentences):
    closing_of, depths = dict(lexicon.BRACKETS), Counter()
    for sentence in sentences:
        stack, depth = [], 0
        for word in sentence.tokens:
            if word in closing_of:
                stack.append(word)
                depth = max(depth, len(stack))
            elif word in closing_of.values():
                assert closing_of[stack.pop()] == word
        assert not stack
        depths[sentence.kind, depth] += 1
    assert {depth for kind, depth in depths if kind == "nest"} == {2, 3, 4, 5}


# ---- copies


def test_patterns_have_the_period_they_say(sentences):
    periods = {word: period for period, word in lexicon.PERIODS.items()}
    seen = Counter()
    for sentence in of_kind(sentences, "pattern"):
        first, *words, _ = sentence.tokens
        period = periods[first]
        assert len(set(words)) == period and len(words) >= 4 * period
        assert words[period:] == words[:-period]
        seen[period] += 1
    assert set(seen) == set(lexicon.PERIODS)
    assert seen.most_common(1)[0][0] == 3


def test_echoes_come_after_the_sign(sentences):
    for sentence in of_kind(sentences, "echo"):
        said, again = sentence.tokens[:-1].index("again"), sentence.tokens
        assert again[0] == "say" and again[1:said] == again[said + 1 : -1]


# ---- phrases, for questions


def test_statements_know_who_does_what_to_whom(sentences):
    for sentence in of_kind(sentences, "statement"):
        roles = {phrase.role: phrase for phrase in sentence.phrases}
        subject, verb, told = roles["subject"], roles["verb"], roles["object"]
        assert (subject.start, verb.end, verb.end - verb.start) == (0, told.start, 2)
        assert told.end == len(sentence.tokens) - 1
        for phrase in (subject, told):
            words = [lexicon.CATEGORY[word] for word in sentence.tokens[phrase.start : phrase.end]]
            assert (words[0], words[-1]) == ("article", "noun")
            assert set(words[1:-1]) == {"adjective"}


# ---- files


def test_written_files_are_what_corpus_json_says(tmp_path):
    about = write_corpus(tmp_path, seed=5, sentences=FEW)
    assert json.loads((tmp_path / "corpus.json").read_text()) == about
    assert about["seed"] == 5
    for split, count in FEW.items():
        data = (tmp_path / f"{split}.txt").read_bytes()
        facts = about["splits"][split]
        assert facts["sha256"] == hashlib.sha256(data).hexdigest()
        assert facts["words"] == len(data.split())
        assert facts["sentences"] == sum(facts["kinds"].values()) == count
        assert data.decode().splitlines() == [
            " ".join(sentence.tokens) for sentence in generate(f"5/{split}", count)
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "corpus.json",
        "test.txt",
        "train.txt",
        "valid.txt",
    ]


def test_the_default_text_stays_the_same(tmp_path):
    """Results are compared across versions: raise VERSION along with this hash."""
    about = write_corpus(tmp_path, seed=1, sentences={"valid": SENTENCES["valid"]})
    assert about["version"] == 1
    assert about["splits"]["valid"]["sha256"].startswith("00fe65f1e2cd496d")


def test_splits_do_not_depend_on_each_others_size(tmp_path):
    one = write_corpus(tmp_path / "one", seed=1, sentences=FEW)
    two = write_corpus(tmp_path / "two", seed=1, sentences=FEW | {"train": 31})
    assert one["splits"]["test"] == two["splits"]["test"]
    assert one["splits"]["train"]["sha256"] != two["splits"]["train"]["sha256"]


def test_an_interrupted_write_leaves_no_half_file_and_no_description(tmp_path, monkeypatch):
    write_corpus(tmp_path, seed=1, sentences=FEW)
    before = (tmp_path / "valid.txt").read_bytes()
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "valid.txt":
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, seed=2, sentences=FEW)
    assert (tmp_path / "valid.txt").read_bytes() == before
    assert not (tmp_path / "corpus.json").exists()


def test_an_empty_split_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="--valid-sentences must be at least 1, but is 0"):
        write_corpus(tmp_path / "new", seed=1, sentences=FEW | {"valid": 0})
    assert not (tmp_path / "new").exists()


def test_options_default_to_the_corpus_of_the_results():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--test-sentences", "9"])
    assert args.seed == 1
    assert sentences_from(args) == SENTENCES | {"test": 9}


def test_command_line_without_fairseq_and_torch(tmp_path):
    """The generator is stdlib only: it runs where neither can be imported."""
    program = (
        "import importlib.util, runpy, sys\n"
        "found = importlib.util.find_spec\n"
        "hidden = ('fairseq', 'torch')\n"
        "importlib.util.find_spec = lambda n, *a: None if n in hidden else found(n, *a)\n"
        "sys.modules.update(dict.fromkeys(hidden))\n"
        "runpy.run_module('fairseq_plugins.data', run_name='__main__', alter_sys=True)\n"
    )
    options = ["--output", str(tmp_path / "out"), "--seed", "3", "--train-sentences", "20"]
    done = subprocess.run(
        [sys.executable, "-c", program, *options],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "train: 20 sentences" in done.stdout
    assert len((tmp_path / "out" / "train.txt").read_text().splitlines()) == 20
