"""Where data, checkpoints and results are, unless a command is told otherwise."""

from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
# The repository; where the package was installed without one, the working directory.
ROOT = _CHECKOUT if (_CHECKOUT / "configs").is_dir() else Path.cwd()


def data_folder(name: str) -> Path:
    """data/<name> in the repository."""
    return ROOT / "data" / name
