"""Which run it is: one cell of a table, and where its files are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import place

LOCAL = "local"  # below results/ and checkpoints/: what --rerun makes


@dataclass(frozen=True)
class Study:
    """A table on data, with a budget or settings of one's own, beside the published runs.

    Attributes:
        name: of its folder, where that of a scale would stand.
        overrides: Hydra's, of the recipe at the run's scale.
        data: the folder, None for the scale's own.
    """

    name: str
    overrides: tuple[str, ...] = ()
    data: Path | None = field(default=None, compare=False)  # on another machine somewhere else

    def record(self) -> dict[str, Any]:
        """As a result has it, without absolute paths."""
        data = self.data
        if data is not None:
            data = Path(data.name) if data.is_absolute() else data
        return {
            "name": self.name,
            "overrides": list(self.overrides),
            "data": None if data is None else data.as_posix(),
        }

    @classmethod
    def read(cls, recorded: Mapping[str, Any] | None) -> "Study | None":
        """That of a result; None for a result of a scale's own recipe."""
        if not recorded:
            return None
        data = recorded["data"]
        overrides = tuple(recorded["overrides"])
        return cls(recorded["name"], overrides, None if data is None else Path(data))


@dataclass(frozen=True)
class Run:
    """One cell of a table: a row under an attention, from one seed, at a scale.

    study: what differs from the scale's recipe, None for nothing.
    """

    table: str
    scale: str
    row: str
    attention: str
    seed: int
    study: Study | None = None

    @property
    def name(self) -> str:
        return f"{self.row}-{self.attention}-s{self.seed}"

    @property
    def folder_name(self) -> str:
        """Of the scale, or of the study."""
        return self.study.name if self.study else self.scale

    @property
    def result(self) -> Path:
        """Its JSON, to be joined to the root."""
        return place("results") / self.table / self.folder_name / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        """Its checkpoints and logs, to be joined to the root."""
        return place("checkpoints") / self.table / self.folder_name / self.name
