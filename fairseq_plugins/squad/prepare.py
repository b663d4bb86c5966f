"""Prepare SQuAD data folders, from the official files or from generated questions."""

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import indexed_dataset

from fairseq_plugins.common.progress import track
from fairseq_plugins.data.download import download
from fairseq_plugins.data.folders import Folder, build_folder, report
from fairseq_plugins.data.options import find_sources
from fairseq_plugins.data.tokenizers import Tokenizer, load_tokenizer, report_unknown
from fairseq_plugins.squad import generated
from fairseq_plugins.squad.baselines import score_baselines
from fairseq_plugins.squad.examples import SquadFile, read_bytes, read_squad
from fairseq_plugins.squad.features import (
    TOY_SIZES,
    Features,
    SpecialTokens,
    WindowSizes,
    make_windows,
)
from fairseq_plugins.squad.folder import FILES, SPLITS, features_path, raw_path
from fairseq_plugins.squad.metrics import exact_match

PREPARATION_VERSION = 1  # increase when a request gives other files
ADDRESS = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
FILE_SPLITS = {"train": "train", "valid": "dev"}  # the test sets are not published
# md5 of the official files, as in torchtext.
MD5 = {
    "train-v1.1.json": "981b29407e0affa3b1b156f72073b945",
    "dev-v1.1.json": "3e85deb501d4e538b6bc56f786231552",
    "train-v2.0.json": "62108c273c268d70893182d5cf8df740",
    "dev-v2.0.json": "246adae8b7002f8679c027697b0b7cf8",
}


def find_files(folder: Path, version: str) -> dict[str, Path]:
    """Find the files of a folder by split: train-v1.1.json or v1.1/train-part.json.

    Raises:
        DataError: files are missing.
    """
    names = {
        split: (f"{name}-v{version}.json", f"v{version}/{name}-part.json")
        for split, name in FILE_SPLITS.items()
    }
    return find_sources(folder, names)


def download_files(folder: Path, version: str) -> dict[str, Path]:
    """Download the official files into a folder, unless present; return them by split."""
    found = {}
    for split, name in FILE_SPLITS.items():
        file = f"{name}-v{version}.json"
        address, path = f"{ADDRESS}/{file}", folder / file
        found[split] = download(address, path, MD5[file], instead="--from DIR")
    return found


Gather = Callable[[Path], Mapping[str, Path]]


def prepare(
    output: Path,
    *,
    version: str,
    bpe: Path,
    source: Path | None = None,
    sizes: WindowSizes | None = None,
    force: bool = False,
) -> None:
    """Make a data folder from the official files, unless it is made already.

    Args:
        output: the folder.
        version: version of SQuAD.
        bpe: folder of the tokenizer.
        source: folder with the files; None to download them next to ``output``.
        sizes: sizes of the windows.
        force: whether to replace a folder of other files or settings.

    Raises:
        DataError: something is missing, damaged, of another version or in the way; nothing is
            written then.
    """
    request = {"corpus": f"squad-v{version}", "version": version}
    origin, files, sums = {"url": ADDRESS}, None, {}
    if source is not None:
        origin, files = {"from": source.resolve().name}, find_files(source, version)
        sums = {s: hashlib.sha256(read_bytes(path)).hexdigest() for s, path in files.items()}

    def gather(_: Path) -> Mapping[str, Path]:
        return files or download_files(output.parent / "downloads", version)

    _make_folder(output, request, origin, bpe, gather, sizes or WindowSizes(), sums, force=force)


def prepare_toy(
    output: Path,
    *,
    version: str,
    bpe: Path,
    seed: int,
    texts: Mapping[str, int],
    sizes: WindowSizes | None = None,
    force: bool = False,
) -> None:
    """Make a data folder of generated questions, with `texts[split]` texts."""
    name = f"embedded-questions-v{generated.VERSION}"
    request = {"corpus": name, "version": version, "seed": seed, "texts": dict(texts)}
    gather = partial(generated.write_questions, seed=seed, version=version, texts=texts)
    origin = {"generated": name}
    _make_folder(output, request, origin, bpe, gather, sizes or TOY_SIZES, {}, force=force)


def _make_folder(
    output: Path,
    corpus: Mapping[str, Any],
    origin: Mapping[str, str],
    bpe: Path,
    gather: Gather,
    sizes: WindowSizes,
    sums: Mapping[str, str],
    *,
    force: bool,
) -> None:
    """Make a data folder from files by split; `gather` finds them or writes them to a folder.

    sums: sha256 of each split's file; empty for files that do not exist yet.
    """
    tokenizer = load_tokenizer(bpe)
    how = {"pieces": tokenizer.fingerprint(), **asdict(sizes)}
    request = {"preparation": PREPARATION_VERSION, **corpus, **how}
    folder = Folder(output, request, FILES, sums=sums, force=force)
    with build_folder(folder) as work:
        if work:
            files = gather(work / "files")
            built = work / "built"
            (built / "raw").mkdir(parents=True)
            squads = {}
            for split in SPLITS:
                report(f"reading and checking {files[split].name}")
                squads[split] = read_squad(files[split], corpus["version"])
            about = {
                split: _make_split(built, split, files[split].name, squad, tokenizer, sizes)
                for split, squad in squads.items()
            }
            tokenizer.dictionary.save(str(built / "dict.txt"))
            report("computing baselines")
            record = {
                "splits": about,
                "floors": {"valid": score_baselines(squads["valid"])},
                "dictionary_size": len(tokenizer.dictionary),
                "separators": tokenizer.separators,
            }
            counts = ", ".join(f"{s} {about[s]['windows']} windows" for s in SPLITS)
            folder.finish(built, origin, record, counts)


def _make_split(
    folder: Path, split: str, name: str, squad: SquadFile, tokenizer: Tokenizer, sizes: WindowSizes
) -> dict[str, Any]:
    """Write the files of a split and return its entry in data.json."""
    size = len(tokenizer.dictionary) + 1  # the model's dictionary, with <mask>
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), "mmap", size)
    bos, eos = tokenizer.dictionary.bos(), tokenizer.dictionary.eos()
    specials = SpecialTokens(bos, eos, tokenizer.separators)
    windows: list[tuple[int, ...]] = []
    texts, numbers, tokens = [], itertools.count(), 0
    unknown = total = 0  # of the texts' tokens
    for paragraph in track(squad.paragraphs, f"encoding {split}", unit="texts", lasting=False):
        text = tokenizer.encode_with_offsets(paragraph.context)
        texts.append(np.array([text.starts, text.ends], np.int32))
        unknown += text.ids.count(tokenizer.dictionary.unk())
        total += len(text)
        for question, number in zip(paragraph.questions, numbers, strict=False):
            question_ids = tokenizer.encode_with_offsets(question.text.strip()).ids
            for w in make_windows(question, question_ids, text, specials, sizes):
                windows.append((number, w.first, w.count, w.context_at, w.start, w.end))
                builder.add_item(torch.tensor(w.tokens))
                tokens += len(w.tokens)
    report_unknown(split, unknown, total)
    builder.finalize(str(folder / f"{split}.idx"))
    features = Features.build(windows, texts)
    features.save(features_path(folder, split))
    raw_path(folder, split).write_bytes(squad.raw)
    return {
        "file": name,
        "sha256": hashlib.sha256(squad.raw).hexdigest(),
        "questions": len(squad.questions),
        "windows": len(features),
        "tokens": tokens,
        "answers": count_recovered(squad, features),
    }


def count_recovered(squad: SquadFile, features: Features) -> dict[str, int]:
    """Count the questions whose answer the windows contain.

    Returns:
        The number of questions with an answer, and how many of them have a target in a window, a
        target with exactly the answer's text, and one with the same text once normalised.
    """
    counts = {"questions": 0, "in_a_window": 0, "exact": 0, "normalised": 0}
    for question, found in features.answers(squad):
        counts["questions"] += bool(question.answers)
        if question.answers and found:
            gold = question.answers[0].text
            counts["in_a_window"] += 1
            counts["exact"] += found[0] == gold
            counts["normalised"] += bool(exact_match(found[0], gold))
    return counts
