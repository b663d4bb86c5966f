"""One raw line has the same pieces in prepared data and in translation."""

from pathlib import Path

import pytest
import torch
from fairseq.data import data_utils

from fairseq_plugins.evaluation.bleu import read_text
from fairseq_plugins.evaluation.translate import read_input
from fairseq_plugins.evaluation.translator import Translator
from fairseq_plugins.modules.identity import TRANSLATION
from fairseq_plugins.translation.decoding import Decoding
from fairseq_plugins.translation.prepare import Settings, prepare_files
from tests import checkpoints
from tests.preprocessing import preprocess_here

# Ends that rules of German punctuation read, and marks that only look like the end of a line.
GERMAN = [
    'Er sagte: "Nein."',
    'Sie sagte: "Ja."\r',
    'Er sagte: "Nein," und ging.',
    '"Wohin ..."',
    "Um 5 % und z.B. 3.",
    'Ein Satz\rim anderen."',
    "Zwei\u2028Sätze\x85hier.",
    'Und: "Hier."',  # without a line feed
]


def test_a_raw_line_has_the_same_pieces_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, output = tmp_path / "raw", tmp_path / "data"
    raw.mkdir()
    for split in ("train", "valid", "test"):
        for language in ("de", "en"):
            (raw / f"{split}.{language}").write_bytes("\n".join(GERMAN).encode())
    names = {split: (split,) for split in ("train", "valid", "test")}
    with preprocess_here():
        prepare_files(raw, output, ("de", "en"), Settings(merges=20), names)
    monkeypatch.setitem(checkpoints.NAMES, TRANSLATION, ["dict.de.txt", "dict.en.txt"])
    state = checkpoints.make(TRANSLATION, output, max_source_positions=64)
    state["cfg"]["task"].update(source_lang="de", target_lang="en")
    torch.save(state, tmp_path / "model.pt")
    translator = Translator(tmp_path / "model.pt", output, Decoding(), cpu=True)
    encoded = translator.encode(read_text(raw / "test.de"), "test.de")
    prepared = data_utils.load_indexed_dataset(str(output / "test.de-en.de"))
    assert [ids.tolist() for ids in encoded] == [ids.tolist() for ids in prepared]
    assert len(encoded) == len(GERMAN)


def test_a_byte_order_mark_is_no_input(tmp_path: Path) -> None:
    path = tmp_path / "new.en"
    path.write_text("one\n\ufefftwo\n", encoding="utf-8-sig")
    assert read_input(str(path)) == ["one", "\ufefftwo"]
