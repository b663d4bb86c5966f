"""The memory that jobs on a CPU ask for: what runs like theirs were measured to hold, and more."""

import math
from collections.abc import Sequence

from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.runs import Run

# What the runs of these experiments hold at most, by a family's name.
FAMILIES = {
    "lm": ("lm", "floor_sweep"),
    "mlm": ("mlm",),
    "glue": ("lrpe_glue", "bert_glue"),
    # The BERT paper's: a job of SQuAD makes what it starts from, too, where that is missing.
    "squad": ("bert_start", "bert_continued", "squad"),
    "mt": ("mt",),
}
# By family and scale, MiB of all processes of a run's job, as `python -m benchmarks.job_memory`
# found them: the highest ones in benchmarks/results.
PEAKS_MIB: dict[str, dict[str, int]] = {
    "lm": {"toy": 977, "mini": 1057},
    "mlm": {"toy": 1005, "mini": 1255},
    "glue": {"toy": 1036, "mini": 1311},
    "squad": {"toy": 1007, "mini": 1218},
    "mt": {"toy": 1102, "mini": 1601},
}
MARGIN = 1.5  # for other rows, data, versions and processors
DEFAULT_MIB = 3072  # where nobody measured
_STEP_MIB = 512


def asked_mib(runs: Sequence[Run]) -> int:
    """What a job on a CPU asks for each of its cores; runs side by side have one each."""
    return max(map(_asked, runs), default=DEFAULT_MIB)


def _asked(run: Run) -> int:
    """The measured peak with its margin, in whole steps."""
    experiment = TABLES[run.table].experiment
    family = next((name for name, known in FAMILIES.items() if experiment in known), "")
    peak = PEAKS_MIB.get(family, {}).get(run.scale)
    return DEFAULT_MIB if peak is None else _STEP_MIB * math.ceil(MARGIN * peak / _STEP_MIB)
