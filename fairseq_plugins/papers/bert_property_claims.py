"""Claims of "On Position Embeddings in BERT" (Wang et al. 2021) about properties of attention.

Some are about the properties themselves, others about their correlation with performance.
"""

from functools import partial

from fairseq_plugins.papers.bert import PAPER
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.papers.claims import (
    MORE_SEEDS,
    TWO_LOOKS,
    Claim,
    Comparison,
    Correlation,
    Side,
    Threshold,
)
from fairseq_plugins.papers.tables import AVERAGE

bert_claim = partial(Claim, PAPER)
ABSOLUTE = ("learned", "sinusoidal", "learnable_sinusoidal")
SINUSOIDS = ABSOLUTE[1:]
RELATIVE = ("shaw_only", "sinusoidal_rpe_only", "learnable_sinusoidal_rpe_only")
_LEARNABLE_RPE = tuple(name for name in ROWS if "learnable_sinusoidal_rpe" in name)
# Exact match, as in the paper's Table 5. Only one of its claims names a metric, and it is this one;
# F1 rewards long answers without any understanding.
EXACT = {"v1_exact": "SQuAD v1.1", "v2_exact": "SQuAD v2.0"}


def others(*names: str) -> tuple[str, ...]:
    """Return the paper's embeddings without some of them."""
    return tuple(name for name in ROWS if name not in names)


def _property(
    name: str,
    text: str,
    metric: str,
    first: tuple[str, ...],
    second: tuple[str, ...],
    claimed: Side = "below",
    *,
    of_every: bool = False,
    place: str = "Section 4.2.2, Table 2",
    note: str = "",
    mismatch: str = "",
) -> Claim:
    return bert_claim(
        f"property-{name}",
        place,
        f"Attention to identical words: {text}",
        Comparison("bert_table2", metric, "vanilla", first, second, claimed, of_every=of_every),
        mismatch=mismatch,
        note=note,
    )


def _correlation(
    metric: str, what: str, performance: tuple[str, str], claimed: Side, note: str
) -> Claim:
    table, measured = performance
    task = "mean on GLUE" if table == "bert_table3" else f"exact match on {EXACT[measured]}"
    word = "higher" if claimed == "above" else "lower"
    return bert_claim(
        f"correlation-{metric}-{performance[1]}".replace("_", "-"),
        "Section 6.1, Table 5",
        f"embeddings that {what} have a {word} {task}",
        Correlation(("bert_table2", metric), performance, "vanilla", ROWS, claimed),
        note=note,
    )


_GLUE_MEAN = ("bert_table3", AVERAGE)
_BALANCE = (
    "The paper speaks of violating direction balance, which holds at 1. Its numbers are of the "
    "ratio itself; all of its rows are above 1, where a larger ratio is a larger violation, and so "
    "are those at `published` here."
)
_SIGNS: tuple[tuple[str, str, Side, str], ...] = (
    ("monotonicity_20", "violate local monotonicity more", "below", ""),
    ("translation_invariance_words", "violate translation invariance more", "below", ""),
    ("symmetry", "violate symmetry more", "above", ""),
    ("direction_balance", "attend more to what precedes than to what follows", "above", _BALANCE),
)

BERT_PROPERTY_CLAIMS = (
    _property(
        "translation-relative-cls",
        "with [CLS] relative embeddings are on average more translation invariant than absolute "
        "ones",
        "translation_invariance",
        RELATIVE,
        ABSOLUTE,
    ),
    _property(
        "translation-relative",
        "without [CLS] relative embeddings are on average more translation invariant than absolute "
        "ones",
        "translation_invariance_words",
        RELATIVE,
        ABSOLUTE,
        note=MORE_SEEDS,
    ),
    _property(
        "translation-learned-cls",
        "with [CLS] the learned absolute embedding is less translation invariant than the other "
        "absolute ones and all relative ones",
        "translation_invariance",
        ("learned",),
        (*SINUSOIDS, *RELATIVE),
        "above",
        of_every=True,
        place="Introduction, Table 2",
        note=f"{MORE_SEEDS} {TWO_LOOKS}",
    ),
    _property(
        "translation-learned",
        "without [CLS] the learned absolute embedding is more translation invariant than sinusoids",
        "translation_invariance_words",
        ("learned",),
        SINUSOIDS,
        of_every=True,
    ),
    _property(
        "translation-learnable",
        "with [CLS] learnable absolute sinusoids are more translation invariant than the other "
        "absolute embeddings",
        "translation_invariance",
        ("learnable_sinusoidal",),
        ("learned", "sinusoidal"),
        of_every=True,
        note="The paper says so of all three properties; without [CLS] the learned embedding is "
        "ahead in its numbers.",
    ),
    _property(
        "monotone-relative",
        "within 20 offsets relative embeddings are on average more monotone than absolute ones",
        "monotonicity_20",
        RELATIVE,
        ABSOLUTE,
        place="Introduction, Table 2",
    ),
    _property(
        "monotone-learned",
        "within 20 offsets the learned absolute embedding is less monotone than the other absolute "
        "ones and all relative ones",
        "monotonicity_20",
        ("learned",),
        (*SINUSOIDS, *RELATIVE),
        "above",
        of_every=True,
        place="Introduction, Table 2",
        mismatch="In its Table 2 learnable sinusoids have 0.0237 and the learned embedding 0.0208.",
    ),
    _property(
        "monotone-learnable",
        "over all offsets learnable absolute sinusoids are more monotone than the other absolute "
        "embeddings",
        "monotonicity",
        ("learnable_sinusoidal",),
        ("learned", "sinusoidal"),
        of_every=True,
        note="Within 20 offsets they are last in the paper's numbers.",
    ),
    _property(
        "symmetry-relative",
        "relative embeddings are on average less symmetric than absolute ones",
        "symmetry",
        RELATIVE,
        ABSOLUTE,
        "above",
        place="Introduction, Table 2",
    ),
    _property(
        "symmetry-learnable",
        "learnable absolute sinusoids are more symmetric than the other absolute embeddings",
        "symmetry",
        ("learnable_sinusoidal",),
        ("learned", "sinusoidal"),
        of_every=True,
    ),
    _property(
        "symmetry-learnable-rpe",
        "learnable relative sinusoids, alone and in combinations, are on average less symmetric "
        "than every other embedding",
        "symmetry",
        _LEARNABLE_RPE,
        others(*_LEARNABLE_RPE),
        "above",
        of_every=True,
    ),
    bert_claim(
        "property-direction-above-one",
        "Section 4.2.2, Table 2",
        "Attention to identical words: with every embedding but fixed absolute sinusoids the "
        "direction balance is above 1",
        Threshold(
            "bert_table2", "direction_balance", "vanilla", others("sinusoidal"), 1.0, "above"
        ),
        note="The paper excepts fixed sinusoids, of which its Table 2 prints 1.0266. "
        f"{MORE_SEEDS} {TWO_LOOKS}",
    ),
    _property(
        "direction-relative",
        "relative embeddings attend on average more to what precedes than absolute ones",
        "direction_balance",
        RELATIVE,
        ABSOLUTE,
        "above",
        place="Section 6.2, Table 2",
    ),
    _property(
        "direction-learnable",
        "learnable relative sinusoids, alone and in combinations, attend on average more to what "
        "precedes than every other embedding",
        "direction_balance",
        _LEARNABLE_RPE,
        others(*_LEARNABLE_RPE),
        "above",
        of_every=True,
    ),
    *(
        _correlation(metric, what, performance, claimed, note)
        for metric, what, claimed, note in _SIGNS
        for performance in (_GLUE_MEAN, *(("bert_table4", exact) for exact in EXACT))
    ),
)
