"""A published model that rows start from, in place of the one that is trained here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fairseq_plugins.common.checkpoints import read_checkpoint
from fairseq_plugins.common.data_commands import as_typed
from fairseq_plugins.common.root import from_root, place
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.modules.identity import ROBERTA
from fairseq_plugins.modules.loading import require_names
from fairseq_plugins.records.recipe import START, trainings_of

# Options of `pe_roberta` that a start fixes for what starts from it.
SIZES = (
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"),
    *("encoder_normalize_before", "layer_norm_eps", "segments", "max_positions"),
)
PREPARE = as_typed("scripts/prepare_start.sh")  # makes the checkpoint that is the default


def default_checkpoint() -> Path:
    """The checkpoint of the published start, relative to the root."""
    return place("checkpoints") / "start" / "model.pt"


@dataclass(frozen=True)
class Start:
    """A checkpoint of `pe_roberta`, or of fairseq's `roberta`.

    Attributes:
        checkpoint: to be joined to the root.
        sha256: of the file, by which a result knows it; empty where the file is not there yet.
        sizes: options of the model that follow from its weights, which what starts from it shares;
            empty for those of the recipe.
    """

    checkpoint: Path = field(compare=False)
    sha256: str
    sizes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, root: Path, path: Path) -> Self:
        """The model in a file, relative to the root, where all commands run, or to this folder.

        Raises:
            ValueError: there is none.
        """
        found = next((one for one in (root / path, path.absolute()) if one.is_file()), None)
        if found is None:
            raise ValueError(f"`--start` must be a checkpoint, but {path} is missing.")
        return cls(from_root(found, root), sha256(found))

    @classmethod
    def published(cls, root: Path) -> Self:
        """The start of scale `published`, whether or not it is there."""
        path = default_checkpoint()
        return cls.read_sizes(root, path) if (root / path).is_file() else cls(path, "")

    @classmethod
    def read_sizes(cls, root: Path, path: Path) -> Self:
        """The model in a file, with its sizes.

        Raises:
            ValueError: there is none, or it is damaged or of another kind.
        """
        found = cls.read(root, path)
        checkpoint = read_checkpoint(root / found.checkpoint)
        require_names(root / found.checkpoint, checkpoint, [ROBERTA])
        options = checkpoint["cfg"]["model"]
        return replace(found, sizes={name: options[name] for name in SIZES if name in options})

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self | None:
        """What a recorded configuration says, None where its rows start from a model of ours."""
        found = (config.get(START) for config in trainings_of(recorded).values())
        return next(
            (cls(Path(s["checkpoint"]), s["sha256"], s.get("sizes", {})) for s in found if s), None
        )

    def record(self) -> dict[str, Any]:
        """As a configuration has it, without absolute paths."""
        path = self.checkpoint
        shown = Path(path.name) if path.is_absolute() else path
        sizes = {"sizes": dict(self.sizes)} if self.sizes else {}
        return {"checkpoint": shown.as_posix(), "sha256": self.sha256, **sizes}

    @property
    def text(self) -> str:
        return f"`{self.record()['checkpoint']}` (sha256 {self.sha256[:16]}...)"
