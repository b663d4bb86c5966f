"""Why rows of the paper have no number here."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.records.runs import Run


def absences(configs: Path, table: Table, scale: str, results: Iterable[Result]) -> list[str]:
    """A sentence for each reason why rows of the paper have no result under an attention.

    None for a table without numbers in the paper, whose page shows what was run alone.

    Args:
        configs: the recipes, which say what a row is.
        table: of a paper.
        scale: the name of the results' scale.
        results: those that the page shows.
    """
    if not table.is_printed:
        return []
    done = {(result["row"], result["attention"]) for result in results}
    found: dict[str, dict[str, list[str]]] = {}
    for attention in table.attentions:
        for row in table.rows:
            if (row.name, attention) in done:
                continue
            planned = plan_run(
                configs, Run(table.name, scale, row.name, attention, 1), Devices(gpus=0)
            )
            error = planned.experiment.incompatibility(planned.measured[0].config["model"])
            if error is not None:
                reason = error.reason
            else:
                reason = "not run" if row.paper.get(attention) else "not in the paper and not run"
            found.setdefault(reason, {}).setdefault(attention, []).append(row.name)
    return [f"No number here for {_places(rows)}: {reason}." for reason, rows in found.items()]


def _places(rows: dict[str, list[str]]) -> str:
    return "; ".join(
        f"{_names(names)} under {attention} attention" for attention, names in rows.items()
    )


def _names(rows: Sequence[str]) -> str:
    return ", ".join(f"`{row}`" for row in rows)
