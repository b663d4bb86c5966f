"""Claims of "On Position Embeddings in BERT" (Wang et al. 2021) about GLUE and SQuAD."""

from functools import partial
from typing import Any

from fairseq_plugins.papers.bert import PAPER
from fairseq_plugins.papers.bert_correlations import ROWS
from fairseq_plugins.papers.bert_property_claims import (
    ABSOLUTE,
    BERT_PROPERTY_CLAIMS,
    EXACT,
    RELATIVE,
    SINUSOIDS,
    bert_claim,
    others,
)
from fairseq_plugins.papers.claims import Claim, Comparison, Side, Unjudged
from fairseq_plugins.papers.tables import AVERAGE

_BOTH = tuple(name for name in ROWS if name not in (*ABSOLUTE, *RELATIVE))
_DEVIATION = 0.71  # the largest standard deviation that the paper prints for GLUE's mean


def _squad(
    name: str,
    text: str,
    first: tuple[str, ...],
    second: tuple[str, ...],
    claimed: Side = "above",
    *,
    place: str = "Section 5.1, Table 4",
    note: str = "",
    mismatch: str = "",
    **more: Any,
) -> list[Claim]:
    """Make a claim for each version of SQuAD; `mismatch` belongs to v2.0 alone."""
    return [
        bert_claim(
            f"{metric[:2]}-{name}",
            place,
            f"{label}, exact match: {text}",
            Comparison("bert_table4", metric, "vanilla", first, second, claimed, **more),
            mismatch=mismatch if metric == "v2_exact" else "",
            note=note,
        )
        for metric, label in EXACT.items()
    ]


def _glue(
    name: str,
    text: str,
    first: str,
    second: tuple[str, ...],
    by: float = 0.0,
    *,
    place: str = "Section 5.1, Table 3",
    note: str = "",
    **more: Any,
) -> Claim:
    return bert_claim(
        f"glue-{name}",
        place,
        f"GLUE's mean: {text}",
        Comparison("bert_table3", AVERAGE, "vanilla", (first,), second, "above", by, **more),
        note=note,
    )


def _after_short_samples(metric: str, label: str) -> Claim:
    first = ("learnable_sinusoidal", *RELATIVE)
    return bert_claim(
        f"{metric[:2]}-short-samples",
        "Appendix F, Figure 7",
        f"{label}, F1 of BERT-medium pre-trained on short samples alone: learnable absolute "
        "sinusoids and relative embeddings are on average better than the learned absolute "
        "embedding",
        Comparison("bert_figure7", f"short_{metric}", "vanilla", first, ("learned",), "above"),
    )


BERT_CLAIMS = (
    *_squad(
        "none",
        "the learned embedding is better than no positions",
        ("learned",),
        ("none",),
        note='The paper says "dramatically".',
    ),
    _glue(
        "none",
        "the learned embedding is better than no positions",
        "learned",
        ("none",),
    ),
    *_squad(
        "relative-learned",
        "the learned absolute embedding is worse than most embeddings with a relative one, alone "
        "or beside an absolute one",
        ("learned",),
        (*RELATIVE, *_BOTH),
        "below",
        of_most=True,
        note='The paper says "nearly all"; more than half is judged.',
    ),
    *_squad(
        "relative-absolute",
        "on average relative embeddings are better than absolute ones",
        RELATIVE,
        ABSOLUTE,
        place="Introduction, Table 4",
    ),
    *_squad(
        "sinusoids-learned",
        "the learned absolute embedding is worse than absolute sinusoids, fixed and learnable",
        ("learned",),
        SINUSOIDS,
        "below",
        of_every=True,
        mismatch="In its Table 4 fixed sinusoids have 72.75 and the learned embedding 73.07.",
    ),
    _glue(
        "learned-sinusoids",
        "the learned absolute embedding is better than absolute sinusoids, fixed and learnable",
        "learned",
        SINUSOIDS,
        of_every=True,
    ),
    _glue(
        "learned-best",
        f"the learned absolute embedding is at most {_DEVIATION} below every other one",
        "learned",
        others("learned"),
        by=-_DEVIATION,
        of_every=True,
        note='The paper says that none is "notably" better; the threshold is the largest standard '
        "deviation that it prints for this mean.",
    ),
    _glue(
        "learned-both",
        "the learned absolute embedding is better than most combinations of an absolute and a "
        "relative one",
        "learned",
        _BOTH,
        of_most=True,
        place="Appendix H, Table 3",
        note='The paper says that most combinations "do not outperform" it.',
    ),
    *_squad(
        "both-absolute",
        "on average an absolute and a relative embedding together are better than the absolute one "
        "alone",
        _BOTH,
        ("learned", "learnable_sinusoidal"),
    ),
    *_squad(
        "best-both",
        "the learnable sinusoidal absolute with the learned relative embedding is better than "
        "either alone",
        ("learnable_sinusoidal_shaw",),
        ("learnable_sinusoidal", "shaw_only"),
        of_every=True,
    ),
    *_squad(
        "best-of-all",
        "the learnable sinusoidal absolute with the learned relative embedding is best of all",
        ("learnable_sinusoidal_shaw",),
        others("learnable_sinusoidal_shaw"),
        of_every=True,
    ),
    *_squad(
        "learnable-sinusoidal",
        "learnable absolute sinusoids are better than fixed ones",
        ("learnable_sinusoidal",),
        ("sinusoidal",),
    ),
    *_squad(
        "learnable-sinusoidal-rpe",
        "learnable relative sinusoids are better than fixed ones",
        ("learnable_sinusoidal_rpe_only",),
        ("sinusoidal_rpe_only",),
    ),
    _glue(
        "learnable-sinusoidal",
        "learnable absolute sinusoids are better than fixed ones",
        "learnable_sinusoidal",
        ("sinusoidal",),
    ),
    _glue(
        "learnable-sinusoidal-rpe",
        "learnable relative sinusoids are better than fixed ones",
        "learnable_sinusoidal_rpe_only",
        ("sinusoidal_rpe_only",),
    ),
    _after_short_samples("v1_f1", "SQuAD v1.1"),
    _after_short_samples("v2_f1", "SQuAD v2.0"),
    *BERT_PROPERTY_CLAIMS,
)

_unjudged = partial(Unjudged, PAPER)
BERT_UNJUDGED = (
    _unjudged(
        "Sections 4.1 and 4.2.1, Appendices A.3, C, D, G, H, I and J",
        "what the paper sees in Figures 1, 2, 4 to 6 and 8 to 11",
        "each figure shows one model, without an interval; its page compares the paper's words "
        "with the numbers",
    ),
    _unjudged(
        "Section 4.2.2",
        "all embeddings are more monotone within 20 offsets and more translation invariant than "
        "BERT without positions",
        "without positions all words have equal weights here, and ratios of zero variances are "
        "undefined",
    ),
    _unjudged(
        "Section 5.1",
        "positions are more important in SQuAD than in GLUE",
        "points of different metrics cannot be compared; the loss of each is judged instead",
    ),
    _unjudged(
        "Section 5.1",
        "an absolute and a relative embedding together are in some cases better in SQuAD than the "
        "relative one alone",
        "the paper does not say in which; the page of Table 4 has every combination",
    ),
)
