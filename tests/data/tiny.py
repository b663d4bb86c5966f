"""A tiny corpus that stands for the published ones: the same code with other facts."""

import hashlib
from pathlib import Path

from fairseq_plugins.data.folders import SPLITS
from fairseq_plugins.data.published import ExpectedFile

TEXT = {
    "train": "the cat sat on the mat\n\nthe dog sat on the <unk>\n" * 20,
    "valid": "the bird sat\n",
    "test": "the cat sat , naïve\n\n",
}
FILES = ["dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))]
FEW = {"train": 20, "valid": 3, "test": 3}


def facts(text: str) -> ExpectedFile:
    data = text.encode()
    return ExpectedFile(
        text.count("\n"),
        len(text.split()),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def left_in(folder: Path) -> list[str]:
    """What is in a folder, without the locks."""
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")
