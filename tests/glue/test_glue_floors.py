"""What needs no model: fitted to the training examples alone."""

import json

import pytest

from fairseq_plugins.common.provenance import describe_all, different_folders
from fairseq_plugins.glue.baselines import (
    BAG,
    MAJORITY,
    SECOND,
    SHARED,
    score_baselines,
    seen_first_sentences,
)
from fairseq_plugins.glue.read import Example, SplitText
from fairseq_plugins.glue.tasks import TASKS
from fairseq_plugins.records.data import DataDescription


def split(*examples):
    return SplitText("a.tsv", "0" * 64, tuple(Example((*s,), label) for *s, label in examples), 0)


def test_words_that_decide_are_found_and_the_majority_knows_none():
    train = split(*[("good film", "1")] * 6, *[("bad film", "0")] * 4)
    valid = split(("a good one", "1"), ("a bad one", "0"), ("bad film", "0"), ("so bad", "0"))
    found = score_baselines(TASKS["SST-2"], {"train": train, "valid": valid})
    assert found == {"valid": {MAJORITY: {"accuracy": 25.0}, BAG: {"accuracy": 100.0}}}


def test_each_of_two_sentences_has_words_of_its_own():
    train = split(*[("yes", "no", "1")] * 4, *[("no", "yes", "0")] * 4)
    valid = split(("yes", "no", "1"), ("no", "yes", "0"), ("yes", "no", "1"))
    found = score_baselines(TASKS["QQP"], {"train": train, "valid": valid})["valid"]
    assert found[BAG] == {"f1": 100.0, "accuracy": 100.0}
    assert found[MAJORITY]["accuracy"] in (pytest.approx(66.6667), pytest.approx(33.3333))


def test_numbers_and_sentences_without_a_word():
    train = split(*((f"{'very ' * n}close", "x close", str(float(n))) for n in range(6)))
    found = score_baselines(TASKS["STS-B"], {"train": train, "valid": train})["valid"]
    assert found[MAJORITY] == {"spearman": 0.0, "pearson": 0.0}
    assert found[BAG]["spearman"] == pytest.approx(100.0)
    empty = split(("?", "1"), ("!", "0"), ("?", "1"))
    assert list(score_baselines(TASKS["SST-2"], {"train": empty, "valid": empty})["valid"]) == [
        MAJORITY
    ]
    assert score_baselines(TASKS["SST-2"], {"train": empty, "valid": split(("?", "1"))}) == {}


def test_a_first_sentence_with_every_other_label_teaches_the_opposite():
    """As in a set that was parted by pairs: the third pair of a premise has the third label."""
    labels = TASKS["MNLI"].labels.classes
    words = dict(zip(labels, ("never", "indeed", "perhaps"), strict=True))
    pairs = [
        (f"premise{n} premise{n} premise{n}", f"it {words[label]} holds", label)
        for n in range(60)
        for label in labels
    ]
    left_out = {n: labels[n % 3] for n in range(60)}
    train = [pair for i, pair in enumerate(pairs) if pair[2] != left_out[i // 3]]
    valid = [pair for i, pair in enumerate(pairs) if pair[2] == left_out[i // 3]]
    splits = {
        "train": split(*train),
        "valid": split(*valid, ("another one", "it holds", labels[0])),
    }
    found = score_baselines(TASKS["MNLI"], splits)["valid"]
    assert [*found] == [MAJORITY, BAG, SECOND, SHARED]
    assert found[SECOND]["accuracy"] > 95
    assert seen_first_sentences(TASKS["MNLI"], splits) == {
        "valid": pytest.approx(100 * 60 / 61, abs=1e-4)
    }
    without = {
        name: split(*((a, "it", label) for a, _, label in part))
        for name, part in (("train", train), ("valid", valid))
    }
    assert score_baselines(TASKS["MNLI"], without)["valid"][BAG]["accuracy"] < 1


def test_shared_words_are_a_share_of_either_sentence():
    """Which words they are says nothing here."""
    names = [f"{a}{b}" for a in "bcdfghklmn" for b in "aeiou"]
    pairs = []
    for one, other, third in zip(names, names[7:], names[13:], strict=False):
        pairs.append((f"{one} {other}", f"{one} and more {other}", "1"))
        pairs.append((f"{one} {other}", f"{third} and more {third}", "0"))
    splits = {"train": split(*pairs[:50]), "valid": split(*pairs[50:])}
    found = score_baselines(TASKS["QQP"], splits)["valid"]
    assert found[SHARED] == {"f1": 100.0, "accuracy": 100.0}
    odd = split(("?", "word", "1"), ("word", "word", "1"), ("word", "?", "0"), ("?", "!", "0"))
    assert SHARED in score_baselines(TASKS["QQP"], {"train": odd, "valid": odd})["valid"]


def test_tasks_of_one_sentence_have_none_of_it():
    train = split(("good", "1"), ("bad", "0"))
    assert [*score_baselines(TASKS["SST-2"], {"train": train, "valid": train})["valid"]] == [
        MAJORITY,
        BAG,
    ]
    assert seen_first_sentences(TASKS["SST-2"], {"train": train, "valid": train}) == {}


def test_data_that_was_described_earlier_is_the_same_data(tmp_path):
    """Without the floors and shares that preparation did not measure then."""
    older = {"request": {"corpus": "glue/MNLI"}, "splits": {"train": {"examples": 9}}}
    newer = {**older, "floors": {"valid": {}}, "seen_first_sentences": {"valid": 95.2}}
    assert not different_folders(older, newer) and not different_folders(newer, older)
    assert different_folders({**newer, "request": {"corpus": "glue/RTE"}}, newer)
    folders = {}
    for name, about in (("a", older), ("b", newer)):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        (folders[name] / "data.json").write_text(json.dumps(about))
    found = describe_all(folders)
    assert found["seen_first_sentences"] == {"a": None, "b": {"valid": 95.2}}
    only = {"a": folders["a"], "c": folders["a"]}
    assert "seen_first_sentences" not in describe_all(only)
    assert DataDescription.model_validate(found).seen_first_sentences.number("b", "valid") == 95.2
    assert DataDescription.model_validate(describe_all(only)).seen_first_sentences.parts() == {}
