"""Text of effects and intervals of claims."""

from fairseq_plugins.report.differences import interval
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.verdicts import Verdict


def effect_text(estimate: Estimate, verdict: Verdict) -> str:
    """An effect in its units, for a page."""
    if verdict.unit == "x":
        return f"{estimate.effect:.{verdict.digits}f} x"
    unit = {"%": " %", "r": " r"}.get(verdict.unit, "")
    return f"{estimate.effect:+.{verdict.digits}f}{unit}"


def interval_text(estimate: Estimate, verdict: Verdict) -> str:
    """Its interval likewise; a speed is a ratio, which has no sign."""
    return interval(estimate, verdict.digits, sign="" if verdict.unit == "x" else "+")
