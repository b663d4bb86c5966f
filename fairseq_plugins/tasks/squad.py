"""Task ``squad``: find the span of a text that answers a question."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.squad.dataset import ShuffledDataset, load_windows
from fairseq_plugins.squad.folder import read_facts

_LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file: the run's own


@dataclass
class SquadTaskConfig(FairseqDataclass):
    """Options of the task; lengths are those that the data was prepared with."""

    data: str = field(
        default=MISSING, metadata={"help": "folder that scripts/prepare_squad.sh made"}
    )
    group_by_length: bool = field(
        default=False,
        metadata={"help": "batches of windows of similar length, in random order: less padding"},
    )
    span_head_name: str = II("criterion.span_head_name")
    restore_file: str = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    save_dir: str = II("checkpoint.save_dir")


@register_task("squad", dataclass=SquadTaskConfig)
class SquadTask(FairseqTask):
    """Fine-tunes a model with span heads, as ``pe_roberta``, on a prepared folder.

    ``--finetune-from-model CHECKPOINT`` begins with pre-trained weights, and the same command goes
    on where it stopped; ``--restore-file`` with ``--reset-optimizer`` and its like also works.
    """

    def __init__(self, cfg: SquadTaskConfig, dictionary: Dictionary, max_length: int) -> None:
        super().__init__(cfg)
        self.dictionary, self._max_length = dictionary, max_length

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """The dictionary with <mask>, which pre-training adds."""
        dictionary = Dictionary.load(filename)
        dictionary.add_symbol("<mask>")
        return dictionary

    @classmethod
    def setup_task(cls, cfg: SquadTaskConfig, **kwargs: Any) -> "SquadTask":
        """Read the dictionary.

        Raises:
            DataError: for a folder that was not prepared for this task.
        """
        facts = read_facts(Path(cfg.data))
        dictionary = cls.load_dictionary(str(Path(cfg.data) / "dict.txt"))
        return cls(cfg, dictionary, facts["request"]["max_length"])

    def build_model(self, cfg: FairseqDataclass, from_checkpoint: bool = False) -> Any:
        """The model with a span head.

        Raises:
            ValueError: for a model without such heads, or without the checkpoint to begin from.
        """
        if not from_checkpoint:
            begin = self.cfg.finetune_from_model or self.cfg.restore_file
            # A training that goes on from its own checkpoint does not read the one it began with.
            own = Path(self.cfg.save_dir, _LAST)
            if begin != _LAST and not own.exists() and not Path(begin).is_file():
                raise CheckpointError(f"{begin} is missing")
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "register_span_head"):
            raise ValueError(
                f"task squad needs a model with span heads, as pe_roberta, "
                f"but the model is a {type(model).__name__}"
            )
        model.register_span_head(self.cfg.span_head_name)
        return model

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load "train" (in another order in every epoch) or "valid"."""
        windows, _ = load_windows(Path(self.cfg.data), split, self.dictionary, combine=combine)
        if split == "train":
            windows = ShuffledDataset(windows, by_length=self.cfg.group_by_length)
        self.datasets[split] = windows
        return windows

    def max_positions(self) -> int:
        """The longest window."""
        return self._max_length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> None:
        """None: what has to be found are places."""
        return None
