"""Text of effects and intervals of claims."""

from fairseq_plugins.report.differences import interval, probability
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.verdicts import Verdict


def effect_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect with its unit."""
    if verdict.unit == "x":
        return f"{estimate.effect:.{verdict.digits}f} x"
    unit = {"%": " %", "r": " r"}.get(verdict.unit, "")
    return f"{estimate.effect:+.{verdict.digits}f}{unit}"


def interval_text(estimate: Estimate, verdict: Verdict) -> str:
    """Format an effect's interval; speeds are ratios and have no sign."""
    return interval(estimate, verdict.digits, sign="" if verdict.unit == "x" else "+")


def tie_text(verdict: Verdict) -> str:
    """Say that a decided claim is a tie on the table's page; "" otherwise."""
    if not verdict.is_corrected_tie or verdict.corrected is None:
        return ""
    p = probability(verdict.corrected.adjusted)
    return f"a tie on the table's page, corrected for all its pairs (p = {p})"
