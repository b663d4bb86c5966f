"""Runs: the cells of tables, and where their files are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.common.root import root_folder

LOCAL = "local"  # below results/ and checkpoints/, for --rerun


@dataclass(frozen=True)
class Study:
    """A custom run of a table: its data, budget or settings, in place of the scale's.

    name: of its folder, which takes the place of the scale's. overrides: Hydra overrides of the
    recipe at the run's scale. data: folder, None for the scale's data.
    """

    name: str
    overrides: tuple[str, ...] = ()
    data: Path | None = field(default=None, compare=False)  # differs between machines

    def record(self) -> dict[str, Any]:
        """Return it as a result records it, without absolute paths."""
        data = self.data
        if data is not None:
            data = Path(data.name) if data.is_absolute() else data
        return {
            "name": self.name,
            "overrides": list(self.overrides),
            "data": None if data is None else data.as_posix(),
        }

    @property
    def has_bare_data(self) -> bool:
        """Test whether only the data folder's name is known, as recorded of an absolute path."""
        return self.data is not None and len(self.data.parts) == 1

    @classmethod
    def read(cls, recorded: Mapping[str, Any] | None) -> "Study | None":
        """Read it from a result; None for a result of a scale's own recipe."""
        if not recorded:
            return None
        data = recorded["data"]
        overrides = tuple(recorded["overrides"])
        return cls(recorded["name"], overrides, None if data is None else Path(data))


@dataclass(frozen=True)
class Run:
    """One cell of a table: a row under an attention, from one seed, at a scale.

    study: custom data, budget or settings, None for the scale's recipe.
    """

    table: str
    scale: str
    row: str
    attention: str
    seed: int
    study: Study | None = None

    def record(self) -> dict[str, Any]:
        """Return it as a result records it, in the order of `ResultSchema`."""
        keys = ("table", "row", "attention", "scale", "seed")
        study = {"study": self.study.record()} if self.study else {}
        return {**{key: getattr(self, key) for key in keys}, **study}

    def located_study(self, root: Path) -> dict[str, Any] | None:
        """Return its study as a journal records it, with its scale and its data's whole path."""
        if self.study is None:
            return None
        data = self.study.data and str(root / self.study.data)
        return {**self.study.record(), "scale": self.scale, "data": data}

    @property
    def name(self) -> str:
        return f"{self.row}-{self.attention}-s{self.seed}"

    @property
    def folder_name(self) -> str:
        """The folder of the scale or study."""
        return self.study.name if self.study else self.scale

    @property
    def result(self) -> Path:
        """The path of its JSON, relative to the root."""
        return root_folder("results") / self.table / self.folder_name / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        """The folder of its checkpoints and logs, relative to the root."""
        return root_folder("checkpoints") / self.table / self.folder_name / self.name
