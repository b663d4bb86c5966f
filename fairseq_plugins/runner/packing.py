"""Archives of trained models: checkpoint, dictionary, result and model card."""

import json
import math
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.files import write_json, write_text
from fairseq_plugins.common.root import configs_folder
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.data.folders import replace_folder
from fairseq_plugins.experiments.base import Metrics
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.planned import PlannedRun, plan_run
from fairseq_plugins.papers import TABLES
from fairseq_plugins.records.results import Result, Say, load_result
from fairseq_plugins.records.runs import Run
from fairseq_plugins.runner.checkpoints import require_model
from fairseq_plugins.runner.launcher import Launcher, run_command

MODEL = "model.pt"
TOLERANCE = 1e-3  # relative; last digits differ between processors
# Settings of the card, by section of the recorded configuration.
_SHOWN = {
    "model": (
        *("_name", "attention_type", "position_encoding", "position_encoding_options"),
        *("decoder_layers", "decoder_embed_dim", "decoder_attention_heads"),
        *("decoder_ffn_embed_dim", "feature_map", "linear_normalizer", "min_cosine", "dropout"),
    ),
    "task": ("_name", "tokens_per_sample"),
    "dataset": ("batch_size",),
    "optimization": ("max_update", "lr", "clip_norm"),
    "lr_scheduler": ("_name", "warmup_updates"),
    "common": ("seed", "fp16"),
}
_ROUNDED = (
    "Perplexities above are 2 to the power of the printed loss, which has four decimals; the "
    "printed perplexity may differ by one in the last digit."
)


def plan_pack(root: Path, run: Run) -> PlannedRun:
    """Plan a run whose model is packed.

    Raises:
        OptionError: it has no result or no checkpoint, or several models.
    """
    planned = plan_run(configs_folder(root), run, Devices(gpus=0))
    if len(planned.trainings) != 1:
        count = len(planned.trainings)
        raise OptionError(f"--table must have one model for each run, but {run.table} has {count}")
    training = planned.final
    for path in (run.result, training.checkpoint, training.data / "dict.txt"):
        if not (root / path).is_file():
            wanted = f"--rows {run.row} --attention {run.attention} --seeds {run.seed}"
            raise OptionError(
                f"{run.name} must be trained, but {path} is not there; `fairseq-pe table "
                f"{run.table} --scale {run.scale} {wanted} --missing-checkpoints` makes it"
            )
    return planned


def pack(root: Path, planned: PlannedRun, output: Path, launcher: Launcher, say: Say) -> Path:
    """Pack a trained model into <output>/<table>-<scale>-<run>.zip; return its path.

    It is measured again first; the metrics must be those of its result.

    Raises:
        CheckpointError: the checkpoint is damaged or of another model than the result's.
        WorkError: an evaluation failed, or gives another number than the result has.
    """
    run, training = planned.run, planned.final
    result = load_result(root / run.result, planned.experiment.metrics)
    checkpoint = root / training.checkpoint
    require_model(checkpoint, result["config"])
    name = f"{run.table}-{run.scale}-{run.name}"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".packing-") as work:
        built = Path(work) / name
        built.mkdir()
        # The optimizer's state is twice as large as the weights.
        state = {**read_checkpoint(checkpoint), "last_optimizer_state": None}
        torch.save(state, built / MODEL)
        shutil.copyfile(root / training.data / "dict.txt", built / "dict.txt")
        write_json(built / "result.json", result)
        say(f"{name}: measuring")
        measured = _measure(planned, built, launcher)
        _check(name, measured, result["metrics"])
        write_text(built / "README.md", card(planned, result, name))
        archive = shutil.make_archive(str(Path(work) / "packed"), "zip", work, name)
        replace_folder(built, output / name)
        target = output / f"{name}.zip"
        Path(archive).replace(target)
    return target


def _measure(planned: PlannedRun, folder: Path, launcher: Launcher) -> Metrics:
    """Measure the packed model as the table does."""
    measured: Metrics = {}
    for step in planned.steps(planned.final, folder / MODEL):
        log = folder.parent / step.log
        run_command(launcher, step.command, log)
        try:
            measured |= step.read(log)
        except ValueError as error:
            raise WorkError(f"{step.log}: {error}") from None
    return measured


def _check(name: str, measured: Metrics, recorded: Metrics) -> None:
    """Compare metrics with those of the result (WorkError: one differs, or there is none)."""
    if not measured:
        raise WorkError(f"{name}: its experiment measures no metrics")
    for metric, value in measured.items():
        if not math.isclose(value, recorded[metric], rel_tol=TOLERANCE):
            raise WorkError(
                f"{name}: {metric} must be the {recorded[metric]:g} of the result, but is "
                f"{value:g}: the checkpoint is of another training"
            )


def card(planned: PlannedRun, result: Result, name: str) -> str:
    """Write the model card in Markdown."""
    run, table = planned.run, TABLES[planned.run.table]
    numbers = [
        [column.label, f"{result['metrics'][column.metric]:.{column.digits}f}"]
        for column in table.columns
        if result["metrics"].get(column.metric) is not None
    ]
    data = result["data"]
    prepare = "\n".join(planned.experiment.scales[run.scale].prepare)
    # Commands name the data folder that the preparation makes, not the one on this machine.
    here, there = str(planned.final.data), f"data/{planned.final.data.name}"
    commands = "\n".join(
        shlex.join(there if word == here else word for word in step.command)
        for step in planned.steps(planned.final, Path(name, MODEL))
    )
    about = (
        f"`{run.row}` under {table.name_of(run.attention)}, seed {run.seed}: a small model of "
        f"{table.source} at scale `{run.scale}`, trained with fairseq-position-encodings at commit "
        f"`{result['commit']}`. It is for comparisons of position encodings, not for use as a "
        "language model."
    )
    hardware = result["hardware"].get("cpu", "a CPU")
    parts = [
        f"# {name}",
        about,
        "## Numbers",
        markdown_table(["metric", "value"], numbers, left=1),
        "## Measure it",
        "In the repository, with this folder in it:",
        f"```sh\n{prepare}\n{commands}\n```",
        *([_ROUNDED] if "valid_ppl" in result["metrics"] else []),
        "## Settings",
        markdown_table(["setting", "value"], _settings(result["config"]), left=2),
        f"`result.json` has all of them, and the versions. Trained on {hardware} in "
        f"{result['wall_seconds'] / 60:.1f} minutes.",
        "## Data",
        f"```json\n{json.dumps({key: data.get(key) for key in ('request', 'raw')})}\n```",
        "`dict.txt` is the dictionary. The text is not included and has its own licence.",
        "## Licence",
        "The weights: MIT, as the code that trained them.",
    ]
    return "\n\n".join(parts) + "\n"


def _settings(config: Mapping[str, Any]) -> list[Sequence[str]]:
    return [
        [f"`{section}.{key}`", f"`{config[section][key]}`"]
        for section, keys in _SHOWN.items()
        for key in keys
        if config[section].get(key) not in (None, "")
    ]
