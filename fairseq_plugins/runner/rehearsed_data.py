"""Data of a rehearsal: the first lines of a prepared corpus, or generated text."""

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path

from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.root import root_folder

# Prepared folders by kind of model, the paper's first.
CORPORA: Mapping[str, tuple[str, ...]] = {
    "lm": ("wikitext-103", "wikitext-2", "wikitext-2-mini"),
    "mlm": ("wikitext-103-mlm", "novels-small", "novels-1000", "novels-mini"),
    "mt": ("wmt14-en-de", "mid-en-de", "multi30k-en-de"),
}
DATA_FILE = "data.json"
_TRAIN, _TRAIN_LINES, _OTHER_LINES = "train", 600, 20


def find_corpus(root: Path, kind: str) -> Path | None:
    """Return the first prepared folder for a kind of model, as `root_folder` does, or None."""
    folders = (root_folder("data") / name for name in CORPORA[kind])
    return next((one for one in folders if (root / one / DATA_FILE).is_file()), None)


def take_part(corpus: Path, target: Path) -> None:
    """Copy the dictionaries, and the first lines of each split and of the raw references.

    Raises DataError: a file of the corpus is damaged.
    """
    target.mkdir(parents=True)
    for index in sorted(corpus.glob("*.idx")):
        count = _TRAIN_LINES if index.name.startswith(_TRAIN) else _OTHER_LINES
        check_split(index.with_suffix(""))
        whole = MMapIndexedDataset(str(index.with_suffix("")))
        part = MMapIndexedDatasetBuilder(f"{target / index.stem}.bin", whole._index.dtype)
        for number in range(min(count, len(whole))):
            part.add_item(whole[number])
        part.finalize(str(target / index.name))
    for path in (*corpus.glob("dict*.txt"), corpus / DATA_FILE):
        shutil.copyfile(path, target / path.name)
    for text in sorted(corpus.glob("raw/*.*")):
        if text.name.split(".")[0] in ("valid", "test"):
            (target / "raw").mkdir(exist_ok=True)
            with text.open("rb") as lines, (target / "raw" / text.name).open("wb") as part:
                part.writelines(itertools.islice(lines, _OTHER_LINES))


def fill_dictionary(path: Path, entries: int) -> None:
    """Pad a dictionary to a number of entries with words that no text has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines += [f"madeupword{number:06} 0" for number in range(entries - len(lines))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
