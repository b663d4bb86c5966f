"""Sentences on what is so: nothing is left out, and the many are counted."""

from fairseq_plugins.analysis.sentences import sentences, signs, summarise, summarise_values


def test_what_is_so_is_before_what_is_not() -> None:
    assert summarise("X", signs({"a": -1.0, "b": 2.0})) == "X: true of `b` (+2); not of `a` (-1)."
    assert summarise("X", signs({"a": -1.0}, below=True)) == "X: true of `a` (-1)."
    assert summarise("X", {}) == summarise_values("X", {}, bool) == ""
    assert sentences("", "A.", "", "B.") == "A. B."


def test_the_larger_side_is_counted_where_it_is_large() -> None:
    def below(limit: float, values: dict[str, float]) -> str:
        return summarise_values("X", values, lambda value: value < limit)

    few = {"a": 1.0, "b": 3.0, "c": 4.0}
    assert below(2, few) == "X: true of `a` (1); not of `b` (3), `c` (4)."
    many = {**few, "d": 5.0, "e": 9.0}
    assert below(2, many) == "X: true of `a` (1); not of the other 4 (3 to 9)."
    assert below(9, many) == "X: true of the other 4 (1 to 5); not of `e` (9)."
    assert below(10, many) == "X: true of all 5 (1 to 9)."
    assert below(1, many) == "X: true of none of 5 (1 to 9)."
    halves = {name: float(n) for n, name in enumerate("abcdefgh")}
    assert all(f"`{name}`" in below(4, halves) for name in halves)
    assert summarise_values("X", {"a": 0.3}, bool, ".0%") == "X: true of `a` (30%)."
