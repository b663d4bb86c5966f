"""The nearest of the known names, in whatever case, or nothing."""

from fairseq_plugins.common.suggestions import did_you_mean


def test_the_nearest_name_is_named_as_it_is_written():
    assert did_you_mean("mnlli", ["MNLI", "QNLI"]) == " Did you mean 'MNLI'?"
    assert did_you_mean("lrpe_typ2", iter(["lrpe_type2", "rope"])) == " Did you mean 'lrpe_type2'?"


def test_nothing_is_said_where_nothing_is_near():
    assert did_you_mean("xyz", ["rope", "alibi"]) == ""
    assert did_you_mean("rope", []) == ""


def test_another_word_for_a_name_means_all_that_it_is_a_word_for():
    meanings = {"rope": ["rotary"], "shaw": ["relative"], "t5": ["relative", "buckets"]}
    known = ["rope", "shaw", "t5"]
    assert did_you_mean("Rotary", known, meanings) == " Did you mean 'rope'?"
    assert did_you_mean("relativ", known, meanings) == " Did you mean 'shaw' or 't5'?"
    assert did_you_mean("shav", known, meanings) == " Did you mean 'shaw'?"
    assert did_you_mean("xyz", known, meanings) == ""
    assert did_you_mean("any", ["A"], {"A": ["any"], "B": ["any"], "C": ["any"]}) == (
        " Did you mean 'A', 'B' or 'C'?"
    )
