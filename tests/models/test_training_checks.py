"""A training is refused before it begins if a file of its binarised text is damaged or missing."""

import shutil
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import models
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import omegaconf_no_object_check
from omegaconf import OmegaConf

from fairseq_plugins.common.errors import DataError, OptionError
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


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A translation's folder whose target has a word more than its source, and it is used."""
    folder = checkpoints.write_data(TRANSLATION, tmp_path / "pair")
    with (folder / "dict.de.txt").open("a") as dictionary:
        dictionary.write("i 1\n")
    for split in ("train", "valid"):
        _write_split(folder / f"{split}.en-de.en", 11)
        _write_split(folder / f"{split}.en-de.de", 12)
    return folder


def _write_split(prefix: Path, largest: int) -> None:
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    builder.add_item(torch.arange(4, largest + 1))
    builder.finalize(f"{prefix}.idx")


def _build_with_inferred_languages(config: Any) -> None:
    task = checkpoints.Task(TRANSLATION, config.task.copy())
    config.task.source_lang = config.task.target_lang = None  # as without --source-lang
    models.build_model(config.model, task)


@pytest.mark.parametrize(
    "build", [partial(checkpoints.build, TRANSLATION), _build_with_inferred_languages]
)
def test_each_side_has_its_dictionary(build: Any, pair: Path) -> None:
    build(checkpoints.configure(TRANSLATION, pair))
    _write_split(pair / "train.en-de.en", 12)
    with pytest.raises(DataError, match=r"train\.en-de\.en\.bin must have tokens from 0 to 11"):
        build(checkpoints.configure(TRANSLATION, pair))


def test_another_language_pair_in_the_folder_is_not_looked_at(pair: Path) -> None:
    for side in ("fr", "en"):
        _write_split(pair / f"train.fr-en.{side}", 200)
    checkpoints.build(TRANSLATION, checkpoints.configure(TRANSLATION, pair))


def test_options_of_a_part_without_a_dataclass_are_checked(tmp_path: Path) -> None:
    """fairseq keeps them in a Namespace, as those of its adafactor."""
    config = checkpoints.configure(LM, checkpoints.write_data(LM, tmp_path))
    for split in ("train", "valid"):
        _write_split(tmp_path / split, 11)
    OmegaConf.update(config, "optimizer", None, force_add=True)
    with omegaconf_no_object_check():
        config.optimizer = Namespace(weight_decay=0.1)
        checkpoints.build(LM, config)
        config.optimizer = Namespace(weight_decay=-0.1)
    with pytest.raises(OptionError, match=r"`optimizer\.weight_decay` must be at least 0"):
        checkpoints.build(LM, config)
