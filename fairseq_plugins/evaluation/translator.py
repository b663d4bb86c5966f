"""A trained model that translates raw text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data import data_utils
from omegaconf import OmegaConf, open_dict

import fairseq_plugins.registration  # noqa: F401  (classes that checkpoints name)
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.vocabulary import SIDE_TABLES, Vocabulary, check_vocabulary, find_option
from fairseq_plugins.data.codes import check_codes, join_pieces
from fairseq_plugins.modules.identity import TRANSLATION
from fairseq_plugins.modules.loading import build_trained, choose_device, read_trained
from fairseq_plugins.translation.decoding import Decoding
from fairseq_plugins.translation.moses import Moses

BUFFER_LINES = 2000  # lines that are sorted by length and batched together


class Translator:
    """A trained translation model with the subwords and dictionaries of its data folder.

    Raises:
        DataError: the folder's codes and dictionaries do not match.
        CheckpointError: the model cannot be read or does not match the data.
    """

    def __init__(
        self, checkpoint: Path, data: Path, decoding: Decoding, *, cpu: bool = False, seed: int = 1
    ) -> None:
        self.decoding = decoding
        state = read_trained(checkpoint, models=[TRANSLATION], tasks=["translation"])
        self.languages = languages_of(state, checkpoint, data)
        dictionaries = [data / f"dict.{language}.txt" for language in self.languages]
        for path in (data / "codes", *dictionaries):
            if not path.is_file():
                raise DataError(f"--data {data} does not hold {path.name}")
        self._codes = check_codes(data / "codes", dictionaries)
        sides = zip(dictionaries, SIDE_TABLES, strict=True)
        check_vocabulary(checkpoint, state, *(Vocabulary.read(*side) for side in sides))
        self._source, self._target = (Moses(language) for language in self.languages)
        self._model, config, self._task = build_trained(checkpoint, state, data)
        self._device = choose_device(cpu=cpu)
        with open_dict(config):
            trained: Any = OmegaConf.to_container(config.generation)
            config.generation = OmegaConf.create({**trained, **decoding.generation()})
        self._model.to(self._device)
        self._model.prepare_for_inference_(config)
        utils.set_torch_seed(seed)  # after loading, which sets a seed too
        self._generator = self._task.build_generator([self._model], config.generation)
        limits = self._task.max_positions(), self._model.max_positions()
        self._max_positions = utils.resolve_max_positions(*limits)

    def encode(self, lines: Sequence[str], name: str) -> list[torch.Tensor]:
        """Encode each line as token ids (length,) with </s>; an empty line is </s> alone.

        Raises:
            DataError: a line is longer than the model accepts.
        """
        longest = min(self._max_positions[0], self.decoding.max_tokens)
        dictionary = self._task.source_dictionary
        encoded = []
        for number, line in enumerate(lines, start=1):
            pieces = self._codes.split(self._source.tokenise(line))
            ids = dictionary.encode_line(pieces, add_if_not_exist=False).long()
            if len(ids) > longest:
                raise DataError(
                    f"{name}, line {number}: must have at most {longest} subwords, but has "
                    f"{len(ids)}; split the line"
                )
            encoded.append(ids)
        return encoded

    def translate(self, lines: Sequence[str], name: str = "input") -> Iterator[str]:
        """Yield a translation for each line, in order; an empty line stays empty."""
        encoded = self.encode(lines, name)
        for start in range(0, len(encoded), BUFFER_LINES):
            yield from self._translate_buffer(encoded[start : start + BUFFER_LINES])

    def _translate_buffer(self, encoded: Sequence[torch.Tensor]) -> list[str]:
        translated = [""] * len(encoded)
        nonempty = [i for i, ids in enumerate(encoded) if len(ids) > 1]
        if not nonempty:
            return translated
        lengths = torch.tensor([len(encoded[i]) for i in nonempty])
        batches = self._task.get_batch_iterator(
            dataset=self._task.build_dataset_for_inference([encoded[i] for i in nonempty], lengths),
            max_tokens=self.decoding.max_tokens,
            max_positions=self._max_positions,
            disable_iterator_cache=True,
        ).next_epoch_itr(shuffle=False)
        for batch in batches:
            batch = utils.move_to_cuda(batch) if self._device.type == "cuda" else batch
            found = self._task.inference_step(self._generator, [self._model], batch)
            for i, hypotheses in zip(batch["id"].tolist(), found, strict=True):
                translated[nonempty[i]] = self._decode(hypotheses[0]["tokens"])
        return translated

    def _decode(self, ids: torch.Tensor) -> str:
        pieces = self._task.target_dictionary.string(ids.int().cpu())
        return self._target.detokenise(join_pieces(pieces))


def languages_of(state: Mapping[str, Any], checkpoint: Path, data: Path) -> tuple[str, str]:
    """Return the training's languages; if not recorded, those in the data's file names."""
    recorded = tuple(
        find_option(state, "task", option) for option in ("source_lang", "target_lang")
    )
    source, target = recorded if all(recorded) else data_utils.infer_language_pair(str(data))
    if not source or not target:
        raise DataError(
            f"neither --checkpoint {checkpoint} nor a file name in --data {data} gives the source "
            "and target languages"
        )
    return source, target
