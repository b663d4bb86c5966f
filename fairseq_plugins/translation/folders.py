"""Steps from parallel text to a folder for fairseq's task `translation`.

    raw/<split>.<lang>       raw text
    tokens/<split>.<lang>    tokenised by Moses' rules
    codes                    a byte-pair encoding, learned on both sides of the training text
    pieces/<split>.<lang>    subwords
    cleaned/<split>.<lang>   without the pairs removed by cleaning
    binarised/               from fairseq-preprocess, with a dictionary for each side

Each file is written completely or not at all and never made twice, so that an interrupted
preparation resumes.
"""

import collections
import functools
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common.dictionaries import SPECIAL_SYMBOLS, read_dictionary
from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.progress import track
from fairseq_plugins.data.binarise import describe, preprocess
from fairseq_plugins.data.codes import Codes
from fairseq_plugins.data.folders import SPLITS, Folder, report
from fairseq_plugins.data.measure import measure, seen_lines, sha256
from fairseq_plugins.data.merges import count_words, write_codes
from fairseq_plugins.data.workers import LINES_AT_ONCE, LineFunction, parallel_map
from fairseq_plugins.translation.moses import Moses
from fairseq_plugins.translation.parallel import (
    VALID_EVERY,
    Cleaning,
    ParallelText,
    Paths,
    count_lines,
    keep_flags,
    read_pairs,
)

LONGEST = 1023  # subwords of a sentence: fairseq's default of 1,024 positions minus </s>


def files_of(languages: tuple[str, str]) -> tuple[str, ...]:
    """List the files of a translation folder."""
    pair = "-".join(languages)
    binarised = itertools.product(SPLITS, languages, ("bin", "idx"))
    raw = itertools.product(("valid", "test"), languages)
    return (
        "codes",
        *(f"dict.{language}.txt" for language in languages),
        *(f"{split}.{pair}.{language}.{suffix}" for split, language, suffix in binarised),
        *(f"raw/{split}.{language}" for split, language in raw),
    )


@dataclass(frozen=True)
class ParallelBuild:
    """The steps of a preparation.

    Attributes:
        work: folder of the steps' files.
        languages: source and target, as in fairseq's `--source-lang`, `--target-lang`.
        merges: merges of the byte-pair encoding.
        cleaning: limits of the kept training pairs.
        workers: number of processes.
    """

    work: Path
    languages: tuple[str, str]
    merges: int
    cleaning: Cleaning
    workers: int

    def paths(self, step: str, split: str) -> Paths:
        """Return the paths of a split's source and target after a step."""
        source, target = (self.work / step / f"{split}.{lang}" for lang in self.languages)
        return source, target

    def each(self, step: str) -> Iterator[tuple[str, str, Path]]:
        """Make a step's folder and yield (split, language, path) of its files."""
        (self.work / step).mkdir(exist_ok=True)
        for split in SPLITS:
            for language, path in zip(self.languages, self.paths(step, split), strict=True):
                yield split, language, path

    def make(self, folder: Folder, text: ParallelText, origin: Mapping[str, Any]) -> None:
        """Run all steps, then move the result to the folder."""
        self.gather(text)
        seen = seen_lines({split: self.paths("raw", split)[0] for split in SPLITS})
        self.tokenise()
        self.learn()
        self.apply()
        self.check_lengths(text)
        verdicts = self.clean(("train",) if text.valid else ("train", "valid"))
        self.binarise(folder, origin, {"cleaning": verdicts, "seen_lines": seen})

    def gather(self, text: ParallelText) -> None:
        """Check the raw text and copy it to raw/; hold out every 100th pair if needed."""
        (self.work / "raw").mkdir(exist_ok=True)
        if not all(path.exists() for _, _, path in self.each("raw")):
            for split, source in (("valid", text.valid), ("test", text.test)):
                if source is not None:
                    report(f"reading {source[0].name} and {source[1].name}")
                    self._write(self.paths("raw", split), read_pairs(source, empty_lines=False))
            self._gather_train(text)

    def _gather_train(self, text: ParallelText) -> None:
        sources = itertools.chain.from_iterable(
            read_pairs(paths, empty_lines=True) for paths in text.train
        )
        pairs = track(sources, "reading training text", unit="pairs")
        if text.valid is not None:
            self._write(self.paths("raw", "train"), pairs)
            return
        with writing(*self.paths("raw", "valid")) as held_out:

            def rest() -> Iterator[tuple[bytes, bytes]]:
                for number, pair in enumerate(pairs, start=1):
                    if number % VALID_EVERY:
                        yield pair
                    else:
                        for file, line in zip(held_out, pair, strict=True):
                            file.write(line)

            self._write(self.paths("raw", "train"), rest())

    @staticmethod
    def _write(paths: Paths, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        count = 0
        with writing(*paths) as (source, target):
            for source_line, target_line in pairs:
                source.write(source_line)
                target.write(target_line)
                count += 1
        if not count:
            raise DataError(f"{paths[0].name} and {paths[1].name} have no lines")

    def tokenise(self) -> None:
        for (split, language, target), (_, _, raw) in zip(
            self.each("tokens"), self.each("raw"), strict=True
        ):
            build = functools.partial(tokeniser, language)
            self._map(build, raw, target, f"tokenising {split}.{language}")

    def learn(self) -> None:
        """Learn one byte-pair encoding from the words of both sides."""
        if (self.work / "codes").exists():
            return
        report(f"learning {self.merges} merges")
        counts: collections.Counter[str] = collections.Counter()
        for path in self.paths("tokens", "train"):
            with path.open(encoding="utf-8", newline="\n") as text:
                counts += count_words(text)
        write_codes(self.work / "codes", counts, self.merges)

    def apply(self) -> None:
        for (split, language, target), (_, _, tokens) in zip(
            self.each("pieces"), self.each("tokens"), strict=True
        ):
            build = functools.partial(splitter, self.work / "codes")
            self._map(build, tokens, target, f"splitting {split}.{language}")

    def check_lengths(self, text: ParallelText) -> None:
        """Check the lengths of given validation and test sets; cleaning handles other splits."""
        for split, given in (("valid", text.valid), ("test", text.test)):
            for source, pieces in zip(given or (), self.paths("pieces", split), strict=False):
                with pieces.open(encoding="utf-8", newline="\n") as lines:
                    for number, line in enumerate(lines, start=1):
                        if (count := len(line.split())) > LONGEST:
                            raise DataError(
                                f"{source}, line {number}: {count} subwords, but must have at "
                                f"most {LONGEST}; split the line"
                            )

    def _map(
        self, build: Callable[[], LineFunction], source: Path, target: Path, label: str
    ) -> None:
        """Apply a function to every line of a file, in parallel and in order."""
        if target.exists():
            return
        total = count_lines(source)
        with (
            source.open(encoding="utf-8", newline="\n") as lines,
            writing(target) as (out,),
            parallel_map(build, self.workers) as apply,
        ):
            # Show progress for long files only.
            mapped = apply(lines)
            if total >= 20 * LINES_AT_ONCE:
                mapped = track(mapped, label, unit="lines", total=total)
            for line in mapped:
                out.write(line.encode() + b"\n")

    def clean(self, splits: Iterable[str]) -> dict[str, dict[str, int]]:
        """Write cleaned/ and kept/ (raw text of kept pairs); return counts by verdict."""
        found = {}
        kept_raw = []
        for split in SPLITS:
            pieces = self.paths("pieces", split)
            if split not in splits:
                flags = bytearray(b"\1") * count_lines(pieces[0])
            else:
                flags, verdicts = keep_flags(pieces, self.cleaning)
                found[split] = {"pairs": len(flags), **dict(sorted(verdicts.items()))}
                if not any(flags):
                    raise DataError(f"cleaning keeps no pair of {split}: {found[split]}")
            kept_raw.append((split, flags))
        self._write_kept("pieces", "cleaned", kept_raw)
        self._write_kept("raw", "kept", [(s, flags) for s, flags in kept_raw if s != "train"])
        return found

    def _write_kept(
        self, step: str, target_step: str, flags: Iterable[tuple[str, bytearray]]
    ) -> None:
        (self.work / target_step).mkdir(exist_ok=True)
        for split, kept in flags:
            both = zip(self.paths(step, split), self.paths(target_step, split), strict=True)
            for source, target in both:
                with source.open("rb") as lines, writing(target) as (out,):
                    out.writelines(itertools.compress(lines, kept))

    def binarise(
        self, folder: Folder, origin: Mapping[str, Any], measured: Mapping[str, Any]
    ) -> None:
        """Run fairseq-preprocess and move the finished folder.

        measured: entries of data.json, among them those of the cleaning.
        """
        built = self.work / "binarised"
        shutil.rmtree(built, ignore_errors=True)
        source, target = self.languages
        arguments = ["--source-lang", source, "--target-lang", target]
        for split in SPLITS:
            arguments += [f"--{split}pref", f"cleaned/{split}"]
        arguments += ["--destdir", built.name, "--workers", str(self.workers)]
        command = preprocess(self.work, arguments, self.workers)
        about = {
            **measured,
            **self._describe(built),
            "codes": {"merges": self.merges, "sha256": sha256(self.work / "codes")},
            "command": command,
        }
        (self.work / "kept").rename(built / "raw")
        (self.work / "codes").rename(built / "codes")
        sizes = ", ".join(f"{lang} {size}" for lang, size in about["dictionary_size"].items())
        train = measured["cleaning"]["train"]
        summary = (
            f"{train['kept']} of {train['pairs']} training pairs kept; "
            f"symbols in the dictionaries: {sizes}"
        )
        folder.finish(built, origin, about, summary)

    def _describe(self, built: Path) -> dict[str, Any]:
        splits: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
        raw: dict[str, dict[str, Any]] = {"valid": {}, "test": {}}
        known = {
            language: set(read_dictionary(built / f"dict.{language}.txt"))
            for language in self.languages
        }
        for split, language, path in self.each("cleaned"):
            splits[split][language] = describe(measure(path), known[language])
        for split, language, path in self.each("kept"):
            if split in raw:
                raw[split][language] = {"lines": count_lines(path), "sha256": sha256(path)}
        sizes = {lang: len(words) + len(SPECIAL_SYMBOLS) for lang, words in known.items()}
        return {"raw": raw, "splits": splits, "dictionary_size": sizes}


def tokeniser(language: str) -> LineFunction:
    """Return the function that tokenises a line of raw text."""
    return Moses(language).tokenise


def splitter(codes: Path) -> LineFunction:
    """Return the function that splits a line of tokens into subwords."""
    return Codes.read(codes).split
