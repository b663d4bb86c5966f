"""Printed effects of the papers' claims, beside the measured ones."""

import functools
from collections.abc import Mapping

from fairseq_plugins.papers import TABLES
from fairseq_plugins.papers.bert_correlations import PRINTED
from fairseq_plugins.papers.claims import Claim, Computed, Correlation, Speed
from fairseq_plugins.statistics.comparisons import Cells
from fairseq_plugins.statistics.inference import sample_mean
from fairseq_plugins.statistics.verdicts import (
    NOT_RUN,
    UNDECIDED,
    Numbers,
    Verdict,
    judge,
    printed_cells,
    rules_out,
)

# A printed effect farther out than this many interval widths is not drawn: it is of another model,
# and would leave the interval no room.
FARTHEST = 3.0


# By scale, then by the name of each claim that the scale can decide.
Verdicts = Mapping[str, Mapping[str, Verdict]]


def printed(claim: Claim) -> Verdict:
    """Judge a claim by the paper's own numbers; there is no interval, and `not run` without any."""
    if isinstance(claim.evidence, Computed):
        return Verdict(NOT_RUN)
    if isinstance(claim.evidence, Speed):
        return Verdict(UNDECIDED, sample_mean([claim.evidence.printed]), "x")
    if isinstance(claim.evidence, Correlation):
        (_, own), (_, performance) = claim.evidence.of, claim.evidence.with_
        return Verdict(UNDECIDED, sample_mean([PRINTED[own][performance].mean]), "r")
    return judge(claim, Numbers(_all_printed(), {}))


@functools.cache
def _all_printed() -> dict[str, Cells]:
    return {name: printed_cells(table) for name, table in TABLES.items()}


def smaller_than_printed(claim: Claim, verdict: Verdict) -> bool:
    """Test whether an undecided effect is significantly smaller than the printed one."""
    return rules_out(verdict, printed(claim), getattr(claim.evidence, "claimed", "above"))
