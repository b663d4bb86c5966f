"""Task ``squad``: extractive question answering."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from fairseq_plugins.common.checkpoints import LAST
from fairseq_plugins.common.option_field import option
from fairseq_plugins.modules.restored import missing_start
from fairseq_plugins.squad.dataset import ShuffledDataset, load_windows
from fairseq_plugins.squad.folder import read_description


@dataclass
class SquadTaskConfig(FairseqDataclass):
    """Options of the task; lengths were fixed when the data was prepared."""

    data: str = option(MISSING, "folder made by scripts/prepare_squad.sh")
    group_by_length: bool = option(
        False, "batch windows of similar length, in random order, for less padding"
    )
    span_head_name: str = II("criterion.span_head_name")
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    save_dir: str = II("checkpoint.save_dir")


@register_task("squad", dataclass=SquadTaskConfig)
class SquadTask(FairseqTask):
    """Fine-tuning of a model with span heads, such as ``pe_roberta``, on a prepared folder.

    ``--finetune-from-model CHECKPOINT`` starts from pre-trained weights, and the same command
    resumes an interrupted run; ``--restore-file`` with ``--reset-optimizer`` etc. also works.
    """

    def __init__(self, cfg: SquadTaskConfig, dictionary: Dictionary, max_length: int) -> None:
        super().__init__(cfg)
        self.dictionary, self._max_length = dictionary, max_length

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load the dictionary with <mask>, which pre-training adds."""
        dictionary = Dictionary.load(filename)
        dictionary.add_symbol("<mask>")
        return dictionary

    @classmethod
    def setup_task(cls, cfg: SquadTaskConfig, **kwargs: Any) -> "SquadTask":
        """Read the dictionary and the window length.

        Raises:
            DataError: the folder was not prepared for this task.
        """
        description = read_description(Path(cfg.data))
        dictionary = cls.load_dictionary(str(Path(cfg.data) / "dict.txt"))
        return cls(cfg, dictionary, description["request"]["max_length"])

    def build_model(self, cfg: FairseqDataclass, from_checkpoint: bool = False) -> Any:
        """Build the model with a span head.

        Raises:
            ValueError: the model has no span heads, or the initial checkpoint is missing.
        """
        if not from_checkpoint:
            initial = self.cfg.finetune_from_model or self.cfg.restore_file
            resumes = Path(self.cfg.save_dir, LAST).exists()  # without its initial checkpoint
            if initial != LAST and not resumes and not Path(initial).is_file():
                raise missing_start(initial)
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "register_span_head"):
            raise ValueError(
                "`model` must have span heads, as pe_roberta has, for the task squad, but is a "
                f"{type(model).__name__}"
            )
        model.register_span_head(self.cfg.span_head_name)
        return model

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load "train", reshuffled in every epoch, or "valid"."""
        windows, _ = load_windows(Path(self.cfg.data), split, self.dictionary, combine=combine)
        if split == "train":
            windows = ShuffledDataset(windows, by_length=self.cfg.group_by_length)
        self.datasets[split] = windows
        return windows

    def max_positions(self) -> int:
        """Return the longest window."""
        return self._max_length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary
