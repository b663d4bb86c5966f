"""Types and schemas of metrics."""

import math
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DIGITS = 4  # of a recorded perplexity, after the point
_MOST_BITS = 1000.0  # of a loss; its perplexity is still a finite number

Count = Annotated[int, Field(ge=0, lt=10**15)]
Loss = Annotated[float, Field(ge=0, le=_MOST_BITS)]  # in bits
Perplexity = Annotated[float, Field(ge=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Correlation = Annotated[float, Field(ge=-100, le=100)]  # in per cent
Cosine = Annotated[float, Field(ge=-1, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


def perplexity(loss: float) -> float:
    """Return 2 to the power of a loss in bits, rounded as it is recorded.

    Raises ValueError: the loss is negative, not a number or too large.
    """
    if not 0 <= loss <= _MOST_BITS:  # false for nan
        raise ValueError(f"a loss must be from 0 to {_MOST_BITS:g} bits, but is {loss} instead")
    return round(2.0**loss, DIGITS)


class Strict(BaseModel):
    """A schema whose numbers are finite numbers: no strings, booleans or NaN."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class Open(Strict):
    """A schema that allows further keys."""

    model_config = ConfigDict(extra="allow")


class MetricsSchema(Strict):
    """Metrics recorded for every run, whatever its experiment."""

    @classmethod
    def comparable(cls, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return results of one folder so that each metric has one meaning in all."""
        return results

    train_seconds: NotNegative
    updates: Count | None
    tokens_per_second: NotNegative | None
    parameters: Count | None

    @model_validator(mode="after")
    def _losses_agree(self) -> Self:
        numbers: dict[str, Any] = self.model_dump()
        for name, loss in numbers.items():
            recorded = numbers.get(name.replace("loss", "ppl"))
            if "loss" not in name or loss is None or recorded is None:
                continue
            if not math.isclose(recorded, perplexity(loss), rel_tol=1e-9, abs_tol=10**-DIGITS):
                raise ValueError(
                    f"{name.replace('loss', 'ppl')} is {recorded}, but 2 to the power of {name} "
                    f"{loss} is {perplexity(loss)}"
                )
        return self


class StartedMetrics(MetricsSchema):
    """Metrics of runs that may start from an adapted published model.

    start_cosine: mean cosine of the last layer of that model to that of the published one, None
    for runs that start elsewhere. start_tokens: tokens that it was adapted on.
    """

    start_cosine: Cosine | None = None
    start_tokens: Count | None = None
