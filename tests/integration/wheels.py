"""The wheel, as tests install it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """Built in a folder from what the checkout has, away from it."""
    source, target = folder / "source", folder / "dist"
    for name in ("fairseq_plugins", "fairseq_position_encodings", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(target)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(source)], check=True, timeout=200)
    (built,) = target.glob("*.whl")
    return built
