"""Raw text in, translated raw text out: the Python behind scripts/translate.sh.

python -m fairseq_plugins.translation.translate --checkpoint FILE --data DIR INPUT
"""

import argparse
import itertools
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data import data_utils
from omegaconf import OmegaConf, open_dict
from tqdm import tqdm

import fairseq_plugins.registration  # noqa: F401  (what checkpoints name)
from fairseq_plugins.common.errors import DataError, OptionError
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.vocabulary import SIDE_TABLES, Vocabulary, check_vocabulary, find_option
from fairseq_plugins.data.codes import check_codes, join_pieces
from fairseq_plugins.modules.identity import TRANSLATION
from fairseq_plugins.modules.loading import build_trained, choose_device, read_trained
from fairseq_plugins.translation.moses import Moses

BUFFER_LINES = 2000  # lines that are sorted by length and batched together
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Decoding:
    """How a model is searched; the defaults are those of Vaswani et al. 2017.

    beam: hypotheses kept. length_penalty: the score is divided by length ** this. A hypothesis
    has at most longer_ratio * source length + longer tokens, where fairseq takes the length of the
    longest source of a batch. max_tokens: per batch.

    Raises:
        OptionError: for a value out of range.
    """

    beam: int = 4
    length_penalty: float = 0.6
    longer_ratio: float = 1.0
    longer: int = 50
    max_tokens: int = 4000

    def __post_init__(self) -> None:
        for name in ("beam", "longer", "max_tokens"):
            if getattr(self, name) < 1:
                raise OptionError(
                    f"`{name}` must be at least 1, but is {getattr(self, name)} instead."
                )

    def generation(self) -> dict[str, Any]:
        """The same as fairseq's options of generation."""
        return {
            "beam": self.beam,
            "lenpen": self.length_penalty,
            "max_len_a": self.longer_ratio,
            "max_len_b": self.longer,
        }

    def flags(self) -> list[str]:
        """The same for fairseq-generate, which then prints whole words of every sentence.

        Its default, batches of a multiple of 8 sentences, leaves out those beyond the last one.
        """
        named = {**self.generation(), "max_tokens": self.max_tokens}
        named["required_batch_size_multiple"] = 1
        words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in named.items()]
        return [*itertools.chain.from_iterable(words), "--remove-bpe"]


class Translator:
    """A trained model with the pieces and dictionaries of its data folder.

    Raises:
        DataError: where the folder's codes and its dictionaries do not belong together, naming
            file and line.
        CheckpointError: where the model cannot be read or does not belong to them.
    """

    def __init__(
        self, checkpoint: Path, data: Path, decoding: Decoding, *, cpu: bool = False, seed: int = 1
    ) -> None:
        self.decoding = decoding
        state = read_trained(checkpoint, models=[TRANSLATION], tasks=["translation"])
        self.languages = _languages(state, checkpoint, data)
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
        utils.set_torch_seed(seed)  # after those that seed the draws of an encoding too
        self._generator = self._task.build_generator([self._model], config.generation)
        limits = self._task.max_positions(), self._model.max_positions()
        self._max_positions = utils.resolve_max_positions(*limits)

    def encode(self, lines: Sequence[str], name: str) -> list[torch.Tensor]:
        """Token ids of each line, (length,) with the end of sentence; an empty line has it alone.

        Raises:
            DataError: naming file and line, for one that is longer than the model reads.
        """
        longest = min(self._max_positions[0], self.decoding.max_tokens)
        dictionary = self._task.source_dictionary
        encoded = []
        for number, line in enumerate(lines, start=1):
            pieces = self._codes.split(self._source.tokenise(line))
            ids = dictionary.encode_line(pieces, add_if_not_exist=False).long()
            if len(ids) > longest:
                raise DataError(
                    f"{name}, line {number}: {len(ids)} pieces, but at most {longest} can be "
                    "translated; split the line"
                )
            encoded.append(ids)
        return encoded

    def translate(self, lines: Sequence[str], name: str = "input") -> Iterator[str]:
        """One translation for each line, in their order; an empty line stays empty."""
        encoded = self.encode(lines, name)
        for start in range(0, len(encoded), BUFFER_LINES):
            yield from self._translate_buffer(encoded[start : start + BUFFER_LINES])

    def _translate_buffer(self, encoded: Sequence[torch.Tensor]) -> list[str]:
        translated = [""] * len(encoded)
        some = [i for i, ids in enumerate(encoded) if len(ids) > 1]
        if not some:
            return translated
        lengths = torch.tensor([len(encoded[i]) for i in some])
        batches = self._task.get_batch_iterator(
            dataset=self._task.build_dataset_for_inference([encoded[i] for i in some], lengths),
            max_tokens=self.decoding.max_tokens,
            max_positions=self._max_positions,
            disable_iterator_cache=True,
        ).next_epoch_itr(shuffle=False)
        for batch in batches:
            batch = utils.move_to_cuda(batch) if self._device.type == "cuda" else batch
            found = self._task.inference_step(self._generator, [self._model], batch)
            for i, hypotheses in zip(batch["id"].tolist(), found, strict=True):
                translated[some[i]] = self._decode(hypotheses[0]["tokens"])
        return translated

    def _decode(self, ids: torch.Tensor) -> str:
        pieces = self._task.target_dictionary.string(ids.int().cpu())
        return self._target.detokenise(join_pieces(pieces))


def _languages(state: dict[str, Any], checkpoint: Path, data: Path) -> tuple[str, str]:
    """Those that training was told; if none, from names in the data, as fairseq does unsaved."""
    said = tuple(find_option(state, "task", option) for option in ("source_lang", "target_lang"))
    source, target = said if all(said) else data_utils.infer_language_pair(str(data))
    if not source or not target:
        raise DataError(
            f"neither --checkpoint {checkpoint} nor a name in --data {data} says which languages "
            "are translated"
        )
    return source, target


def read_input(name: str) -> list[str]:
    """Lines of a file, or of standard input for `-`; only a line feed ends one.

    Raises:
        DataError: naming file and line, for a line that is no UTF-8.
    """
    data = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    lines = []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), start=1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: not UTF-8: {error}") from error
    return lines


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="translate.sh",
        description="Translates raw text, line by line. An empty line stays empty.",
    )
    defaults = Decoding()
    add = parser.add_argument
    add("input", metavar="INPUT", help="file with raw text, - for standard input")
    add("--checkpoint", type=Path, required=True, metavar="FILE", help="the trained model")
    add(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder it was trained on, for its codes and dictionaries",
    )
    add("--output", type=Path, metavar="FILE", help="file to write (default: standard output)")
    add(
        "--beam",
        type=int,
        default=defaults.beam,
        metavar="N",
        help=f"hypotheses kept (default: {defaults.beam})",
    )
    add(
        "--length-penalty",
        type=float,
        default=defaults.length_penalty,
        metavar="X",
        help=f"above 0 favours longer output (default: {defaults.length_penalty})",
    )
    add(
        "--max-tokens",
        type=int,
        default=defaults.max_tokens,
        metavar="N",
        help=f"source tokens per batch (default: {defaults.max_tokens})",
    )
    add("--cpu", action="store_true", help="no GPU, even where there is one")
    return parser


def run(args: argparse.Namespace) -> None:
    """Translate as the options say; an output file appears complete or not at all."""
    decoding = Decoding(args.beam, args.length_penalty, max_tokens=args.max_tokens)
    lines = read_input(args.input)
    if not args.data.exists():
        raise DataError(f"{args.data} does not exist")
    translator = Translator(args.checkpoint, args.data, decoding, cpu=args.cpu)
    translated = tqdm(
        translator.translate(lines, args.input),
        desc="translating",
        total=len(lines),
        unit=" lines",
        disable=len(lines) <= BUFFER_LINES and not sys.stderr.isatty(),
    )
    if args.output is None:
        for line in translated:
            print(line)
        return
    with writing(args.output) as (out,):
        out.writelines(line.encode() + b"\n" for line in translated)


def main(arguments: Sequence[str] | None = None) -> int:
    args = get_parser().parse_args(arguments)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    # fairseq asks for pinned memory with a GPU or without.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    return exit_status("translate", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
