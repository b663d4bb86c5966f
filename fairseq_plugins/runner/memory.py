"""Memory that Slurm jobs on a CPU request, from measured peaks."""

import math
from collections.abc import Sequence

from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run

# Experiments by family; their runs have similar peaks.
FAMILIES = {
    "lm": ("lm", "floor_sweep"),
    "mlm": ("mlm",),
    "glue": ("lrpe_glue", "bert_glue"),
    # A SQuAD job also trains a missing model that it starts from.
    "squad": ("bert_start", "bert_continued", "squad"),
    "mt": ("mt",),
}
# Highest peaks in benchmarks/results by family and scale, MiB over all processes of a job, from
# `python -m benchmarks.job_memory`.
PEAKS_MIB: dict[str, dict[str, int]] = {
    "lm": {"toy": 977, "mini": 1057},
    "mlm": {"toy": 1005, "mini": 1255},
    "glue": {"toy": 1036, "mini": 1311},
    "squad": {"toy": 1007, "mini": 1218},
    "mt": {"toy": 1102, "mini": 1601},
}
MARGIN = 1.5  # for other rows, data, versions and processors
DEFAULT_MIB = 3072  # without a measurement
_STEP_MIB = 512


def requested_mib(runs: Sequence[Run]) -> int:
    """Return the memory per core that a job on a CPU requests; each of its runs has one core."""
    return max(map(_mib_of, runs), default=DEFAULT_MIB)


def _mib_of(run: Run) -> int:
    """Return the measured peak with a margin, rounded up."""
    experiment = TABLES[run.table].experiment
    family = next((name for name, known in FAMILIES.items() if experiment in known), "")
    peak = PEAKS_MIB.get(family, {}).get(run.scale)
    return DEFAULT_MIB if peak is None else _STEP_MIB * math.ceil(MARGIN * peak / _STEP_MIB)
