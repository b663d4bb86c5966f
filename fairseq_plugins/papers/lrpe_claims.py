"""Claims of LRPE (Qin et al. 2023) about its tables."""

from fairseq_plugins.papers.claims import Claim, Comparison, Side, Speed
from fairseq_plugins.papers.lrpe import TABLE_2, TABLE_4
from fairseq_plugins.papers.tables import ATTENTIONS, AVERAGE, Table

PAPER = "LRPE"
_TYPES = tuple(f"lrpe_type{number}" for number in range(1, 9))
_LEARNED = ("lrpe_type2", "lrpe_type3", "lrpe_type6")
_FIXED = ("lrpe_type1", "lrpe_type5")
_PERMUTATION_CORES = ("lrpe_type4", "lrpe_type7", "per")
_RESTS = {"linear": "Section 4.2", "vanilla": "Section 4.3"}
_FASTER = {"linear": 0.95, "vanilla": 0.91}


def _others(table: Table, attention: str, *without: str) -> tuple[str, ...]:
    return tuple(r.name for r in table.rows if attention in r.paper and r.name not in without)


def _perplexity(
    attention: str,
    first: tuple[str, ...],
    second: tuple[str, ...],
    claimed: Side = "below",
    table: str = "table2",
) -> Comparison:
    metric = "valid_ppl" if table == "table8" else "test_ppl"
    return Comparison(table, metric, attention, first, second, claimed)


def _language_model(attention: str) -> list[Claim]:
    place = f"{_RESTS[attention]}, Table 2"
    where = f"{attention} attention, language model"

    def claim(name: str, place: str, text: str, evidence: Comparison, **more: str) -> Claim:
        return Claim(f"lm-{attention}-{name}", PAPER, place, f"{where}: {text}", evidence, **more)

    return [
        claim(
            "type2-base",
            place,
            "type 2 has a lower perplexity than Base",
            _perplexity(attention, ("lrpe_type2",), ("base",)),
        ),
        claim(
            "type2-rope",
            place,
            "type 2 has a lower perplexity than RoPE",
            _perplexity(attention, ("lrpe_type2",), ("rope",)),
        ),
        claim(
            "householder-permutation",
            "Table 5",
            "a Householder matrix is better than a permutation",
            _perplexity(attention, ("lrpe_type2",), ("lrpe_type6",), table="table5"),
        ),
        claim(
            "householder-identity",
            "Section 4.3, Table 5",
            "a Householder matrix is better than no matrix",
            _perplexity(attention, ("lrpe_type2",), ("lrpe_identity",), table="table5"),
        ),
        claim(
            "permutation-identity",
            "Section 4.3, Table 5",
            "a permutation is better than no matrix",
            _perplexity(attention, ("lrpe_type6",), ("lrpe_identity",), table="table5"),
        ),
        claim(
            "learned-fixed",
            "Table 2",
            "types with learned angles (2, 3, 6) are better than those with fixed ones (1, 5)",
            _perplexity(attention, _LEARNED, _FIXED),
        ),
    ]


def _masked_language_model(attention: str) -> list[Claim]:
    where = f"{attention} attention, masked language model"
    return [
        Claim(
            f"mlm-{attention}-type2-base",
            PAPER,
            f"{_RESTS[attention]}, Table 8",
            f"{where}: type 2 has a lower perplexity than Base",
            _perplexity(attention, ("lrpe_type2",), ("base",), table="table8"),
        ),
        Claim(
            f"mlm-{attention}-type2-rope",
            PAPER,
            f"{_RESTS[attention]}, Table 8",
            f"{where}: type 2 has a lower perplexity than RoPE",
            _perplexity(attention, ("lrpe_type2",), ("rope",), table="table8"),
        ),
        Claim(
            f"mlm-{attention}-learned-fixed",
            PAPER,
            "Table 8",
            f"{where}: types with learned angles (2, 3, 6) are better than with fixed ones (1, 5)",
            _perplexity(attention, _LEARNED, _FIXED, table="table8"),
        ),
    ]


def _gain(row: str, label: str, by: float, note: str = "") -> Claim:
    """`by`: per cent of the other's perplexity, the paper's word rounded down."""
    return Claim(
        f"mlm-linear-type2-gain-{row}",
        PAPER,
        "Section 4.2, Figure 2",
        f"linear attention, masked language model: type 2's final perplexity is lower than "
        f"{label}'s by {by:g} % or more",
        Comparison(
            "table8",
            "valid_ppl",
            "linear",
            ("lrpe_type2",),
            (row,),
            "below",
            by=by,
            relative=True,
        ),
        note=note,
    )


_SWAPPED = (
    "The text says 10, 27 and 37 % for RoPE, SPE and PER in this order; by Table 8 it is 37 % for "
    "SPE and 27 % for PER."
)


def _glue(row: str, label: str) -> Claim:
    return Claim(
        f"glue-linear-type5-{row}",
        PAPER,
        "Section 4.2, Table 3",
        f"linear attention, GLUE: type 5's average is 4.4 points or more above {label}'s",
        Comparison("table3", AVERAGE, "linear", ("lrpe_type5",), (row,), "above", by=4.4),
    )


def _translation(attention: str) -> Claim:
    return Claim(
        f"mt-{attention}-type2-base",
        PAPER,
        "Table 4",
        f"{attention} attention, translation: type 2 has a higher BLEU than Base, validation set",
        Comparison("table4", "valid_bleu", attention, ("lrpe_type2",), ("base",), "above"),
        note="The text says comparable; on the test set its own numbers have Base before type 2.",
    )


def _speed(attention: str) -> Claim:
    return Claim(
        f"speed-{attention}",
        PAPER,
        "Section 4.3, Table 9",
        f"{attention} attention: the types train at most 9 % slower than Base, on average",
        Speed(attention, _TYPES, 0.91, _FASTER[attention]),
        note="The interval is over the eight types.",
    )


LRPE_CLAIMS = (
    *(claim for attention in ATTENTIONS for claim in _language_model(attention)),
    Claim(
        "lm-linear-type2-per",
        PAPER,
        "Section 4.2, Table 2",
        "linear attention, language model: type 2 is as good as PER; its perplexity is at most 1 % "
        "higher",
        Comparison(
            "table2",
            "test_ppl",
            "linear",
            ("lrpe_type2",),
            ("per",),
            "below",
            by=-1.0,
            relative=True,
        ),
    ),
    Claim(
        "lm-linear-spe-last",
        PAPER,
        "Table 2",
        "linear attention, language model: SPE is worse than every other row",
        Comparison(
            "table2",
            "test_ppl",
            "linear",
            ("spe",),
            _others(TABLE_2, "linear", "spe"),
            "above",
            of_every=True,
        ),
    ),
    Claim(
        "lm-linear-type8",
        PAPER,
        "Table 2",
        "linear attention, language model: type 8 is worse than Base",
        _perplexity("linear", ("lrpe_type8",), ("base",), "above"),
    ),
    Claim(
        "lm-vanilla-permutation-cores",
        PAPER,
        "Table 2",
        "vanilla attention, language model: what permutes features by position (types 4, 7, PER) "
        "is worse than Base",
        _perplexity("vanilla", _PERMUTATION_CORES, ("base",), "above"),
    ),
    *(claim for attention in ATTENTIONS for claim in _masked_language_model(attention)),
    _gain("rope", "RoPE", 9.0, "Said to be nearly 10 %; printed 4.22 against 4.64."),
    _gain("per", "PER", 27.0, _SWAPPED),
    _gain("spe", "SPE", 36.0, _SWAPPED),
    _glue("rope", "RoPE"),
    _glue("spe", "SPE"),
    _glue("per", "PER"),
    Claim(
        "glue-linear-type5-base",
        PAPER,
        "Section 4.2, Table 3",
        "linear attention, GLUE: type 5's average is above Base's",
        Comparison("table3", AVERAGE, "linear", ("lrpe_type5",), ("base",), "above"),
        note="The paper says in all metrics, but its Base is better on MNLI and QQP; without MNLI "
        "mismatched, as in the other rows, its Base has 83.23 and is before type 5.",
    ),
    *(_translation(attention) for attention in ATTENTIONS),
    Claim(
        "mt-linear-permutation-cores",
        PAPER,
        "Table 4",
        "linear encoder, translation: types 4, 7 and PER have a higher BLEU (test) than the other "
        "rows",
        Comparison(
            "table4",
            "test_bleu",
            "linear",
            _PERMUTATION_CORES,
            _others(TABLE_4, "linear", *_PERMUTATION_CORES),
            "above",
        ),
    ),
    Claim(
        "mt-linear-decoder",
        PAPER,
        "Section 4.2",
        "translation: a model with linear attention in the decoder too does not converge as it "
        "should (Base and type 2, BLEU of the test set below that with a vanilla decoder)",
        Comparison(
            "table4",
            "test_bleu",
            "linear_both",
            ("base", "lrpe_type2"),
            ("base", "lrpe_type2"),
            "below",
            second_attention="linear",
        ),
        note="Without numbers in the paper. Judged by what the models translate: whether their "
        "training converges is not measured.",
    ),
    *(_speed(attention) for attention in ATTENTIONS),
)
