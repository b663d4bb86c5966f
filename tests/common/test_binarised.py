"""Binarised text is looked at before fairseq maps it into memory."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_plugins.common.binarised import check_split
from fairseq_plugins.common.errors import DataError

SYMBOLS = 20
_COUNT = 18  # where the number of sentences is
_FIRST = _COUNT + 8  # the first sentence's length


def write(folder: Path, dtype: type = np.uint16) -> Path:
    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=dtype)
    for length in (3, 0, 7):
        builder.add_item(torch.arange(length) + 5)
    builder.finalize(str(folder / "train.idx"))
    return folder / "train"


def replaced(place: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + new + content[place + len(new) :]


FAULTS: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "not an index": ("idx", lambda content: None),
    "an empty index": ("idx", lambda content: b""),
    "half an index": ("idx", lambda content: content[: len(content) // 2]),
    "a longer index": ("idx", lambda content: content + b"\0"),
    "a random index": ("idx", lambda content: bytes(range(256))),
    "an index of text": ("idx", lambda content: b"a b c\n"),
    "another version": ("idx", replaced(9, struct.pack("<Q", 2))),
    "floats": ("idx", replaced(17, b"\6")),
    "no such type": ("idx", replaced(17, b"\x63")),
    "2^40 sentences": ("idx", replaced(_COUNT, struct.pack("<Q", 2**40))),
    "2^31 - 1 tokens": ("idx", replaced(_FIRST, struct.pack("<i", 2**31 - 1))),
    "-1 tokens": ("idx", replaced(_FIRST, struct.pack("<i", -1))),
    "another place": ("idx", replaced(_FIRST + 12 + 8, struct.pack("<q", 2**40))),
    "no tokens": ("bin", lambda content: None),
    "an empty file of tokens": ("bin", lambda content: b""),
    "half of the tokens": ("bin", lambda content: content[: len(content) // 2]),
    "random tokens": ("bin", lambda content: bytes(range(200, 200 + len(content)))),
}


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_what_preprocessing_writes_is_sound(tmp_path: Path, dtype: type) -> None:
    check_split(write(tmp_path, dtype), SYMBOLS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_file(tmp_path: Path, fault: str) -> None:
    prefix = write(tmp_path)
    end, change = FAULTS[fault]
    path = prefix.with_name(f"train.{end}")
    content = change(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError) as error:
        check_split(prefix, SYMBOLS)
    assert str(error.value).startswith(f"{prefix}.")
