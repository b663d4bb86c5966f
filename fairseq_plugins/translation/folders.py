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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from fairseq_plugins.data.options import FEWEST_MERGES, check_at_least
from fairseq_plugins.data.workers import LineBuilder, LineFunction, parallel_map
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

PREPARATION_VERSION = 2  # increase when a request gives other files
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
class Settings:
    """Settings of the preparation: number of merges, cleaning, number of processes.

    force: whether to replace a folder of other text or settings.

    Raises:
        OptionError: a number is out of range.
    """

    merges: int
    cleaning: Cleaning = field(default_factory=Cleaning)
    workers: int = 1
    force: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, workers=self.workers)
        check_at_least(FEWEST_MERGES, merges=self.merges)

    def folder(self, output: Path, corpus: Mapping[str, Any], languages: tuple[str, str]) -> Folder:
        request = {
            "preparation": PREPARATION_VERSION,
            **corpus,
            "source": languages[0],
            "target": languages[1],
            "merges": self.merges,
            "cleaning": asdict(self.cleaning),
        }
        return Folder(output, request, files_of(languages), force=self.force)


@dataclass(frozen=True)
class ParallelBuild:
    """The steps of a preparation."""

    work: Path  # folder of the steps' files
    languages: tuple[str, str]  # source and target, as in fairseq's options
    settings: Settings

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
        if all(path.exists() for _, _, path in self.each("raw")):
            return
        for split, source in (("valid", text.valid), ("test", text.test)):
            if source is not None:
                report(f"reading {source[0].name} and {source[1].name}")
                self._write(read_pairs(source, empty_lines=False), self.paths("raw", split))
        sources = itertools.chain.from_iterable(
            read_pairs(paths, empty_lines=True) for paths in text.train
        )
        pairs = track(sources, "reading training text", unit="pairs")
        held_out = () if text.valid else self.paths("raw", "valid")
        self._write(pairs, self.paths("raw", "train"), held_out)

    @staticmethod
    def _write(
        pairs: Iterable[tuple[bytes, bytes]], paths: Paths, held_out: Sequence[Path] = ()
    ) -> None:
        """Write pairs of lines to `paths`, but every `VALID_EVERY`-th to `held_out` if given."""
        count = 0
        with writing(*paths, *held_out) as files:
            for number, pair in enumerate(pairs, start=1):
                is_held_out = bool(held_out) and number % VALID_EVERY == 0
                for file, line in zip(files[2:] if is_held_out else files[:2], pair, strict=True):
                    file.write(line)
                count += not is_held_out
        if not count:
            raise DataError(f"{paths[0].name} and {paths[1].name} have no lines")

    def tokenise(self) -> None:
        builds = {code: functools.partial(tokeniser, code) for code in self.languages}
        self._map("raw", "tokens", builds, "tokenising")

    def learn(self) -> None:
        """Learn one byte-pair encoding from the words of both sides."""
        if (self.work / "codes").exists():
            return
        report(f"learning {self.settings.merges} merges")
        counts: collections.Counter[str] = collections.Counter()
        for path in self.paths("tokens", "train"):
            with path.open(encoding="utf-8", newline="\n") as text:
                counts += count_words(text)
        write_codes(self.work / "codes", counts, self.settings.merges)

    def apply(self) -> None:
        build = functools.partial(splitter, self.work / "codes")
        self._map("tokens", "pieces", dict.fromkeys(self.languages, build), "splitting")

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
        self, step: str, target_step: str, builds: Mapping[str, LineBuilder], label: str
    ) -> None:
        """Apply a language's function to every line of its files, in parallel and in order."""
        both = zip(self.each(step), self.each(target_step), strict=True)
        for (split, language, source), (_, _, target) in both:
            if target.exists():
                continue
            with (
                source.open(encoding="utf-8", newline="\n") as lines,
                writing(target) as (out,),
                parallel_map(builds[language], self.settings.workers) as apply,
            ):
                what, total = f"{label} {split}.{language}", count_lines(source)
                shown = track(apply(lines), what, unit="lines", total=total, lasting=False)
                out.writelines(line.encode() + b"\n" for line in shown)

    def clean(self, splits: Iterable[str]) -> dict[str, dict[str, int]]:
        """Write cleaned/ and kept/ (raw text of kept pairs); return counts by verdict."""
        found = {}
        for split in SPLITS:
            kept: Iterable[int] = itertools.repeat(1)
            if split in splits:
                flags, verdicts = keep_flags(self.paths("pieces", split), self.settings.cleaning)
                found[split] = {"pairs": len(flags), **dict(sorted(verdicts.items()))}
                if not any(flags):
                    raise DataError(f"cleaning keeps no pair of {split}: {found[split]}")
                kept = flags
            self._write_kept("pieces", "cleaned", split, kept)
            if split != "train":
                self._write_kept("raw", "kept", split, kept)
        return found

    def _write_kept(self, step: str, target_step: str, split: str, kept: Iterable[int]) -> None:
        (self.work / target_step).mkdir(exist_ok=True)
        both = zip(self.paths(step, split), self.paths(target_step, split), strict=True)
        for source, target in both:
            with source.open("rb") as lines, writing(target) as (out,):
                out.writelines(itertools.compress(lines, kept))

    def binarise(
        self, folder: Folder, origin: Mapping[str, Any], measured: Mapping[str, Any]
    ) -> None:
        """Run fairseq-preprocess and move the finished folder.

        measured: entries of data.json, including the counts of the cleaning.
        """
        built = self.work / "binarised"
        shutil.rmtree(built, ignore_errors=True)
        source, target = self.languages
        arguments = ["--source-lang", source, "--target-lang", target]
        for split in SPLITS:
            arguments += [f"--{split}pref", f"cleaned/{split}"]
        arguments += ["--destdir", built.name, "--workers", str(self.settings.workers)]
        command = preprocess(self.work, arguments, self.settings.workers)
        about = {
            **measured,
            **self._describe(built),
            "codes": {"merges": self.settings.merges, "sha256": sha256(self.work / "codes")},
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
        known = {
            language: set(read_dictionary(built / f"dict.{language}.txt"))
            for language in self.languages
        }
        splits, raw = {}, {}
        for split in SPLITS:
            cleaned = zip(self.languages, self.paths("cleaned", split), strict=True)
            splits[split] = {lang: describe(measure(path), known[lang]) for lang, path in cleaned}
            if split != "train":
                kept = zip(self.languages, self.paths("kept", split), strict=True)
                raw[split] = {
                    lang: {"lines": count_lines(path), "sha256": sha256(path)}
                    for lang, path in kept
                }
        sizes = {lang: len(words) + len(SPECIAL_SYMBOLS) for lang, words in known.items()}
        return {"raw": raw, "splits": splits, "dictionary_size": sizes}


def tokeniser(language: str) -> LineFunction:
    """Return the function that tokenises a line of raw text."""
    return Moses(language).tokenise


def splitter(codes: Path) -> LineFunction:
    """Return the function that splits a line of tokens into subwords."""
    return Codes(codes).split
