"""Fine-tuning of a published model on the user's labelled data, with any position encoding.

A model with another encoding or attention than the start is first adapted: it copies the hidden
states of the start on plain text, as in scale `published` of the tables. Then it is fine-tuned as
there on GLUE.
"""

import json
import math
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.root import configs_folder
from fairseq_plugins.evaluation.glue import Prediction, evaluate, predict
from fairseq_plugins.experiments.rows import BASE, has_file
from fairseq_plugins.experiments.training import FINETUNE, PretrainedModel, Training, Variant
from fairseq_plugins.glue.tasks import HELD_OUT, GlueTask
from fairseq_plugins.records.logs import read_validated
from fairseq_plugins.records.recipe import hydra_word, record
from fairseq_plugins.runner.checkpoints import find_restart
from fairseq_plugins.runner.launcher import Launcher, run_command
from fairseq_plugins.runner.progress import EVALUATING, Progress

HEAD = "own"  # name of the classification head
RECORD = "finetune.json"  # in a model's folder: settings, scores and the commit of the measurement
OWN_ENCODING = (BASE, "learned")  # names of a start's learned positions
_MEASURED = ("metrics", "commit")  # keys of the record that are not settings
_SAMPLE = 256  # tokens of a sample to adapt on
_WARMUP = 0.06  # of the updates, as in the recipes of GLUE
_NEAR = 0.97  # cosine below which a score measures the adaptation
_REPORTS = 30  # log lines of a training


@dataclass(frozen=True)
class Data:
    """The user's task and its prepared data, in folders relative to the root.

    task: columns and labels. examples: number for training. text: folder of plain text to adapt on,
    None if no model is adapted. sums: digests that identify the data.
    """

    task: GlueTask
    folder: Path
    examples: int
    text: Path | None
    sums: dict[str, str]

    @property
    def subset(self) -> str:
        """The split that scores are of."""
        return "valid" if any(s.name == "valid" for s in self.task.splits) else HELD_OUT


@dataclass(frozen=True)
class Settings:
    """Settings of a fine-tuning.

    encoding: a row of configs/model or an encoding. max_length: tokens of an example; longer ones
    are cut. adapt_updates: of 1,024 tokens each.
    """

    encoding: str
    attention: str
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-5
    max_length: int = 128
    adapt_updates: int = 100

    @property
    def changes_start(self) -> bool:
        """Return whether the model differs from the start, whose positions are learned."""
        return self.encoding not in OWN_ENCODING or self.attention != "vanilla"


@dataclass(frozen=True)
class FineTuning:
    """One fine-tuned model; output: the parent of its folder, relative to the root."""

    root: Path
    output: Path
    data: Data
    start: PretrainedModel
    settings: Settings
    seed: int

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"{self.settings.encoding}-{self.settings.attention}-s{self.seed}"

    @property
    def folder(self) -> Path:
        """The folder of its checkpoints, logs and record, relative to the root."""
        return self.output / self.name

    @property
    def updates(self) -> int:
        """Number of updates of the fine-tuning."""
        return self.settings.epochs * math.ceil(self.data.examples / self.settings.batch_size)

    @property
    def is_done(self) -> bool:
        """Return whether the model has been trained and measured, with any settings."""
        record = self._recorded()
        return record is not None and record["metrics"] is not None

    def _recorded(self) -> dict[str, Any] | None:
        path = self.root / self.folder / RECORD
        return json.loads(path.read_text()) if path.is_file() else None

    def trainings(self) -> list[Training]:
        """Compose the trainings.

        Raises recipe.COMPOSITION_ERRORS: Hydra, the encoding or the attention rejects an option.
        """
        adapting = [self._adapting()] if self.settings.changes_start else []
        return [*adapting, self._tuning(adapting[0] if adapting else None)]

    def _adapting(self) -> Training:
        text = self.data.text
        assert text is not None, "text is prepared where a model is adapted"
        training = self._training(
            "adapted",
            "wikitext103_mlm",
            "scale/mlm=published",
            "+adapted=published",
            f"task.data={hydra_word(text.as_posix())}",
            f"task.tokens_per_sample={self.start.within(_SAMPLE)}",
            *_schedule(self.settings.adapt_updates, saves=4),
        )
        return training.starting_published(self.start, "model.init_from")

    def _tuning(self, adapted: Training | None) -> Training:
        labels, settings = self.data.task.labels, self.settings
        training = self._training(
            "tuned",
            "glue_stsb" if labels.is_number else "glue_sst2",
            "scale/glue=published",
            "+glue_protocol=bert",
            f"task.data={hydra_word(self.data.folder.as_posix())}",
            f"task.num_classes={labels.num_classes}",
            f"task.max_positions={self.start.within(settings.max_length)}",
            f"criterion.classification_head_name={HEAD}",
            f"dataset.batch_size={settings.batch_size}",
            f"optimization.lr=[{settings.learning_rate:g}]",
            *_schedule(self.updates, saves=2),
        )
        if adapted is not None:
            return training.starting_from(adapted)
        return training.starting_published(self.start, FINETUNE)

    def _training(self, name: str, recipe: str, *overrides: str) -> Training:
        row, configs = self.settings.encoding, configs_folder(self.root)
        own = has_file(configs, row)
        folder = self.folder / name
        words = (
            f"model={row if own else BASE}",
            *(() if own else (f"model.position_encoding={row}",)),
            f"model.attention_type={self.settings.attention}",
            f"common.seed={self.seed}",
            *overrides,
            f"checkpoint.save_dir={hydra_word(folder.as_posix())}",
        )
        config = record(configs.resolve(), recipe, words)
        return Training(Variant(name, recipe), folder, words, config).with_sizes(self.start)

    def check_recorded(self) -> None:
        """Check that an earlier model in the folder has the same data, start and settings.

        Raises:
            OptionError: naming what differs.
        """
        described = self._described()
        record = self._recorded() or described
        recorded = {key: record[key] for key in record if key not in _MEASURED}
        differing = [
            f"{key}: {recorded.get(key)} -> {described.get(key)}"
            for key in (described | recorded)
            if recorded.get(key) != described.get(key)
        ]
        if differing:
            raise OptionError(
                f"--output must be another folder, or --force given: {self.folder} has a model of "
                f"other data, start or settings ({'; '.join(differing)})"
            )

    def run(self, launcher: Launcher, progress: Progress, commit: str) -> dict[str, float]:
        """Finish the trainings and the measurement; return the metrics in per cent.

        commit: of the code, recorded with new metrics.

        Raises:
            OptionError: the folder has a model of other data or settings.
            WorkError: a training failed, with the end of its log.
        """
        self.check_recorded()
        path = self.root / self.folder / RECORD
        record = self._recorded() or {**self._described(), "metrics": None}
        write_json(path, record)
        if record["metrics"] is None:
            for training in self.trainings():
                self._train(training, launcher, progress)
            progress.change(self.name, EVALUATING)
            measured = evaluate(
                self.checkpoint, self.root / self.data.folder, self.data.task, self.data.subset
            )
            record |= {"metrics": measured["metrics"], "commit": commit}
            write_json(path, record)
            for one in (path.parent / "tuned").glob("checkpoint*.pt"):
                if one.name != self.checkpoint.name:
                    one.unlink()
        return dict(record["metrics"])

    def predict(self) -> list[Prediction]:
        """Predict the labels of the examples without labels, in their order."""
        return predict(self.checkpoint, self.root / self.data.folder, self.data.task, "test")

    @property
    def checkpoint(self) -> Path:
        """The fine-tuned model."""
        return self.root / self.folder / "tuned" / "checkpoint_last.pt"

    def remove(self) -> None:
        """Remove the folder of an earlier training."""
        shutil.rmtree(self.root / self.folder, ignore_errors=True)

    def _described(self) -> dict[str, Any]:
        adapt = self.settings.adapt_updates if self.settings.changes_start else None
        return {
            **vars(self.settings),
            "adapt_updates": adapt,
            "seed": self.seed,
            "start": self.start.weights,
            "data": self.data.sums,
        }

    def _train(self, training: Training, launcher: Launcher, progress: Progress) -> None:
        """Train to the last update, from the newest checkpoint."""
        folder, total = self.root / training.folder, training.max_update
        folder.mkdir(parents=True, exist_ok=True)
        updates = find_restart(folder, progress.say)
        if updates >= total:
            return
        log = self.root / training.log
        doing = "adapting to the start" if training.variant.name == "adapted" else "fine-tuning"
        progress.say(f"{self.name}: {doing}, {total} updates; log: {training.log}")
        progress.begin_training(self.name, updates, total)
        run_command(launcher, training.command, log, partial(progress.follow, self.name))
        if training.variant.name == "adapted":
            nearest = read_validated(log, ("loss", "cosine"))
            if nearest:
                cosine = nearest[max(nearest)]["cosine"]
                text = f"adapted; cosine to the start's last layer {cosine:.3f}"
                if cosine < _NEAR:
                    text += f": below {_NEAR}: more --adapt-updates or --text would help"
                progress.say(f"{self.name}: {text}")


def _schedule(updates: int, saves: int) -> tuple[str, ...]:
    """Return the Hydra overrides of a training that logs often, and saves and validates seldom."""
    return (
        f"optimization.max_update={updates}",
        f"lr_scheduler.warmup_updates={math.ceil(_WARMUP * updates)}",
        f"checkpoint.save_interval_updates={max(1, updates // saves)}",
        f"common.log_interval={max(1, updates // _REPORTS)}",
        # Few examples are epochs of few updates, each of which would validate and save for seconds.
        "checkpoint.save_interval=1000000",
        "dataset.validate_interval=1000000",
    )
