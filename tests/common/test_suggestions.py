"""The nearest of the known names, in whatever case, or nothing."""

from fairseq_plugins.common.suggestions import did_you_mean


def test_the_nearest_name_is_named_as_it_is_written():
    assert did_you_mean("mnlli", ["MNLI", "QNLI"]) == " Did you mean 'MNLI'?"
    assert did_you_mean("lrpe_typ2", iter(["lrpe_type2", "rope"])) == " Did you mean 'lrpe_type2'?"


def test_nothing_is_said_where_nothing_is_near():
    assert did_you_mean("xyz", ["rope", "alibi"]) == ""
    assert did_you_mean("rope", []) == ""
