"""The generated language pair: a function of the source, which its order decides."""

from fairseq_plugins.data.lexicon import ARTICLES, NOUNS, PREPOSITIONS, VERBS
from fairseq_plugins.translation.generated import generate_pairs, write_clause

SUBJECT, OBJECT, PLACE = (NOUNS[0][0], "fair"), (NOUNS[1][0], "tair"), (NOUNS[2][0], "sair")
MODIFIER = (PREPOSITIONS[1], PLACE)


def test_a_clause_in_both_languages():
    source, target = write_clause(SUBJECT, VERBS[0], OBJECT, MODIFIER)
    assert source == [*SUBJECT, VERBS[0], *OBJECT, PREPOSITIONS[1], *PLACE]
    assert target == [
        *(ARTICLES[2], "rias", PLACE[0][::-1], PREPOSITIONS[1][::-1]),
        *(ARTICLES[1], "riat", OBJECT[0][::-1]),
        *(ARTICLES[0], "riaf", SUBJECT[0][::-1], VERBS[0][::-1] + ARTICLES[0]),
    ]


def test_the_same_words_in_another_order_mean_something_else():
    source, target = write_clause(SUBJECT, VERBS[0], OBJECT, MODIFIER)
    swapped, translated = write_clause(OBJECT, VERBS[0], SUBJECT, MODIFIER)
    assert sorted(swapped) == sorted(source)
    assert translated != target
    assert translated[-1] == VERBS[0][::-1] + ARTICLES[1]


def test_seeds_and_splits():
    assert generate_pairs("1/train", 40) == generate_pairs("1/train", 50)[:40]
    assert generate_pairs("1/train", 40) != generate_pairs("1/test", 40)
    train = dict(generate_pairs("1/train", 2000))
    test = generate_pairs("1/test", 300)
    assert sum(source in train for source, _ in test) < 10
    assert {train.get(source, target) == target for source, target in test} == {True}
