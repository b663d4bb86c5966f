"""The generated language pair: a function of the source, which its order decides."""

from fairseq_plugins.data.lexicon import ARTICLES, NOUNS, PREPOSITIONS, VERBS
from fairseq_plugins.translation.generated import Clause, NounPhrase, generate_pairs

CLAUSE = Clause(
    subject=NounPhrase(NOUNS[0][0], "fair"),
    verb=VERBS[0],
    object=NounPhrase(NOUNS[1][0], "tair"),
    modifier=(PREPOSITIONS[1], NounPhrase(NOUNS[2][0], "sair")),
)


def test_a_clause_in_both_languages():
    subject, object_, place = NOUNS[0][0], NOUNS[1][0], NOUNS[2][0]
    assert CLAUSE.source == [
        subject, "fair", VERBS[0], object_, "tair", PREPOSITIONS[1], place, "sair",
    ]  # fmt: skip
    assert CLAUSE.target == [
        *(ARTICLES[2], "rias", place[::-1], PREPOSITIONS[1][::-1]),
        *(ARTICLES[1], "riat", object_[::-1]),
        *(ARTICLES[0], "riaf", subject[::-1], VERBS[0][::-1] + ARTICLES[0]),
    ]


def test_the_same_words_in_another_order_mean_something_else():
    swapped = Clause(CLAUSE.object, CLAUSE.verb, CLAUSE.subject, CLAUSE.modifier)
    assert sorted(swapped.source) == sorted(CLAUSE.source)
    assert swapped.target != CLAUSE.target
    assert swapped.target[-1] == CLAUSE.verb[::-1] + ARTICLES[1]


def test_seeds_and_splits():
    assert generate_pairs("1/train", 40) == generate_pairs("1/train", 50)[:40]
    assert generate_pairs("1/train", 40) != generate_pairs("1/test", 40)
    train = dict(generate_pairs("1/train", 2000))
    test = generate_pairs("1/test", 300)
    assert sum(source in train for source, _ in test) < 10
    assert {train.get(source, target) == target for source, target in test} == {True}
