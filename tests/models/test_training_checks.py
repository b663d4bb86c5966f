"""A training is refused before it begins if a file of its binarised text is damaged or missing."""

import shutil
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION
from tests import checkpoints

PREFIXES = {
    LM: ("train", "valid"),
    ROBERTA: ("train", "valid"),
    TRANSLATION: tuple(f"{s}.en-de.{side}" for s in ("train", "valid") for side in ("en", "de")),
}


@pytest.fixture(params=PREFIXES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def data(name: str, tmp_path: Path) -> Path:
    folder = checkpoints.write_data(name, tmp_path / "data")
    for prefix in PREFIXES[name]:
        for end in ("bin", "idx"):
            if not (path := folder / f"{prefix}.{end}").exists():
                shutil.copyfile(folder / f"valid.{end}", path)
    return folder


def test_each_file_of_each_split_is_checked(name: str, data: Path) -> None:
    config = checkpoints.configure(name, data)
    checkpoints.build(name, config)
    for prefix in PREFIXES[name]:
        for end in ("bin", "idx"):
            path = data / f"{prefix}.{end}"
            content = path.read_bytes()
            for damaged in (None, b"", content[:-1]):
                path.unlink() if damaged is None else path.write_bytes(damaged)
                with pytest.raises(DataError) as error:
                    checkpoints.build(name, config)
                assert str(error.value).startswith(f"{data / prefix}.")
                path.write_bytes(content)


def test_a_side_of_a_translation_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = checkpoints.write_data(TRANSLATION, tmp_path)
    for end in ("bin", "idx"):
        shutil.copyfile(folder / f"valid.{end}", folder / f"train.en-de.en.{end}")
    with pytest.raises(DataError, match=r"train\.en-de\.de\.idx is missing"):
        checkpoints.build(TRANSLATION, checkpoints.configure(TRANSLATION, folder))
