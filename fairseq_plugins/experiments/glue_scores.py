"""The schema of GLUE's scores, and averages over the tasks that several results have."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from pydantic import ConfigDict, model_validator

from fairseq_plugins.papers.tables import AVERAGE
from fairseq_plugins.records.metrics import Correlation, NotNegative, StartedMetrics


class Scores(StartedMetrics):
    """Scores in per cent; extra metrics are the paper's columns for which there is data."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Correlation]
    average: Correlation
    averaged: list[str]
    replaced: list[str]
    learning_rates: dict[str, NotNegative]
    tried: dict[str, Correlation]

    @classmethod
    def comparable(cls, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the results with averages and baselines over the tasks that all of them have."""
        listed = [result["metrics"]["averaged"] for result in results] or [[]]
        common = [name for name in listed[0] if all(name in one for one in listed)]
        if not common or all(one == common for one in listed):
            return results
        return [_averaged_over(common, result) for result in results]

    @model_validator(mode="after")
    def _average_agrees(self) -> Self:
        columns = self.__pydantic_extra__
        values = [columns[name] for name in self.averaged if name in columns]
        if values and abs(fmean(values) - self.average) > 1e-4:  # the numbers are rounded
            raise ValueError(f"average must be the mean of {', '.join(self.averaged)}")
        return self


def _averaged_over(labels: list[str], result: Mapping[str, Any]) -> dict[str, Any]:
    metrics, data = result["metrics"], result["data"]
    average = round(fmean(metrics[label] for label in labels), 4)
    left_out = {*metrics["averaged"]} - {*labels}
    recorded = data.get("floors") or {}
    kept = {name: one for name, one in recorded.items() if Path(name).name not in left_out}
    return {
        **result,
        "metrics": {**metrics, AVERAGE: average, "averaged": labels},
        "data": {**data, "floors": kept},
    }
