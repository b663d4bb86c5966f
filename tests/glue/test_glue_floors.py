"""What needs no model: fitted to the training examples alone."""

import pytest

from fairseq_plugins.glue.floors import BAG, MAJORITY, floors
from fairseq_plugins.glue.read import Example, SplitText
from fairseq_plugins.glue.tasks import TASKS


def split(*examples):
    return SplitText("a.tsv", "0" * 64, tuple(Example((*s,), label) for *s, label in examples), 0)


def test_words_that_decide_are_found_and_the_majority_knows_none():
    train = split(*[("good film", "1")] * 6, *[("bad film", "0")] * 4)
    valid = split(("a good one", "1"), ("a bad one", "0"), ("bad film", "0"), ("so bad", "0"))
    found = floors(TASKS["SST-2"], {"train": train, "valid": valid})
    assert found == {"valid": {MAJORITY: {"accuracy": 25.0}, BAG: {"accuracy": 100.0}}}


def test_each_of_two_sentences_has_words_of_its_own():
    train = split(*[("yes", "no", "1")] * 4, *[("no", "yes", "0")] * 4)
    valid = split(("yes", "no", "1"), ("no", "yes", "0"), ("yes", "no", "1"))
    found = floors(TASKS["QQP"], {"train": train, "valid": valid})["valid"]
    assert found[BAG] == {"f1": 100.0, "accuracy": 100.0}
    assert found[MAJORITY]["accuracy"] in (pytest.approx(66.6667), pytest.approx(33.3333))


def test_numbers_and_sentences_without_a_word():
    train = split(*((f"{'very ' * n}close", "x close", str(float(n))) for n in range(6)))
    found = floors(TASKS["STS-B"], {"train": train, "valid": train})["valid"]
    assert found[MAJORITY] == {"spearman": 0.0, "pearson": 0.0}
    assert found[BAG]["spearman"] == pytest.approx(100.0)
    empty = split(("?", "1"), ("!", "0"), ("?", "1"))
    assert list(floors(TASKS["SST-2"], {"train": empty, "valid": empty})["valid"]) == [MAJORITY]
    assert floors(TASKS["SST-2"], {"train": empty, "valid": split(("?", "1"))}) == {}
