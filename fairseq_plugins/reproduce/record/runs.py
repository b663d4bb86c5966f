"""Which run it is: one cell of a table, and where its files are."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One cell of a table: a row under an attention, from one seed, at a scale."""

    table: str
    scale: str
    row: str
    attention: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row}-{self.attention}-s{self.seed}"

    @property
    def result(self) -> Path:
        """Its JSON, relative to the repository."""
        return Path("results", self.table, self.scale, f"{self.name}.json")

    @property
    def folder(self) -> Path:
        """Its checkpoints and logs, relative to the repository."""
        return Path("checkpoints", self.table, self.scale, self.name)
