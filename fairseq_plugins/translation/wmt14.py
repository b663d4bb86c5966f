"""WMT14 English-German: its texts, and how to find or download them.

The training text is Europarl v7, Common Crawl and News Commentary v9, in this order; the test set
is newstest2014 with all 3,003 sentences. Only the test archive has a published checksum (md5, in
sacrebleu); for the others the sha256 is recorded.
"""

import re
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import UNPACKING_ERRORS, find_packed, reading, writing
from fairseq_plugins.data.archives import check_size
from fairseq_plugins.data.download import CHUNK_BYTES, download
from fairseq_plugins.data.folders import report
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import check_folder
from fairseq_plugins.translation.parallel import ParallelText, Paths, count_lines

_SEGMENT = re.compile(r"<seg.*?>(.*)</seg>.*?")


@dataclass(frozen=True)
class Member:
    """A pair of texts in an archive; `names` are the paths of source and target in it."""

    archive: str
    url: str
    names: tuple[str, str]
    md5: str | None = None
    lines: int | None = None

    @property
    def plain_names(self) -> tuple[str, str]:
        """Return the names of the unpacked files."""
        source, target = (PurePosixPath(name).name for name in self.names)
        return source, target


@dataclass(frozen=True)
class ArchivedCorpus:
    """Parallel text published as archives; training texts in order."""

    name: str
    languages: tuple[str, str]
    train: Sequence[Member]
    test: Member

    @property
    def members(self) -> list[Member]:
        return [*self.train, self.test]


_STATMT = "https://www.statmt.org"


def _train(stem: str, archive: str, year: str) -> Member:
    return Member(archive, f"{_STATMT}/{year}/{archive}", (f"{stem}.en", f"{stem}.de"))


WMT14_EN_DE = ArchivedCorpus(
    name="wmt14-en-de",
    languages=("en", "de"),
    train=(
        _train("training/europarl-v7.de-en", "training-parallel-europarl-v7.tgz", "wmt13"),
        _train("commoncrawl.de-en", "training-parallel-commoncrawl.tgz", "wmt13"),
        _train("training/news-commentary-v9.de-en", "training-parallel-nc-v9.tgz", "wmt14"),
    ),
    test=Member(
        "test-full.tgz",
        f"{_STATMT}/wmt14/test-full.tgz",
        ("test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm"),
        md5="a8cd784e006feb32ac6f3d9ec7eb389a",
        lines=3003,
    ),
)


class ArchivedText:
    """The texts of a corpus in a folder: plain, .xz, .gz, SGM, or in archives."""

    def __init__(self, corpus: ArchivedCorpus, folder: Path) -> None:
        self.corpus, self.folder = corpus, folder

    def _plain(self, member: Member) -> Paths | None:
        """Find both texts outside an archive; a test set may be called newstest2014.en."""
        found = []
        for name, language in zip(member.plain_names, self.corpus.languages, strict=True):
            stem = re.sub(r"-\w+-(src|ref)\.\w+\.sgm$", f".{language}", name)
            paths = (find_packed(self.folder / sub, name, stem) for sub in ("", "training"))
            found.append(next(filter(None, paths), None))
        source, target = found
        return (source, target) if source and target else None

    def require(self) -> None:
        """Raise DataError that lists the missing texts."""
        check_folder(self.folder)
        absent = [
            f"{' and '.join(member.plain_names)} (or {member.archive})"
            for member in self.corpus.members
            if self._plain(member) is None and not (self.folder / member.archive).is_file()
        ]
        if absent:
            raise DataError(f"--from {self.folder} does not hold {'; '.join(absent)}")

    def inputs(self) -> list[Path]:
        """List the input files as stored."""
        found: list[Path] = []
        for member in self.corpus.members:
            plain = self._plain(member)
            found += plain if plain else [self.folder / member.archive]
        return found

    def unpack(self, work: Path) -> ParallelText:
        """Unpack archives and SGM files into `work` and return the paths of all texts.

        Raises:
            DataError: an archive is damaged or incomplete, or the test set has a wrong length.
        """
        work.mkdir(exist_ok=True)
        train = [self._readable(member, work) for member in self.corpus.train]
        test = self._readable(self.corpus.test, work)
        for path in test:
            lines, expected = count_lines(path), self.corpus.test.lines
            if expected not in (None, lines):
                raise DataError(f"{path.name}: expected {expected} lines, found {lines}")
        return ParallelText(train, None, test)

    def _readable(self, member: Member, work: Path) -> Paths:
        paths = self._plain(member)
        if paths is None:
            paths = work / member.plain_names[0], work / member.plain_names[1]
            if not all(path.exists() for path in paths):
                report(f"unpacking {member.archive}")
                extract(self.folder / member.archive, dict(zip(member.names, paths, strict=True)))
        source, target = (
            plain_from_sgm(path, work) if ".sgm" in path.suffixes else path for path in paths
        )
        return source, target


def fetch(corpus: ArchivedCorpus, folder: Path) -> dict[str, str]:
    """Download missing archives; return the sha256 of each by name."""
    for member in corpus.members:
        target = folder / member.archive
        download(member.url, target, member.md5, instead="--from DIR")
    return {member.archive: sha256(folder / member.archive) for member in corpus.members}


def extract(archive: Path, wanted: dict[str, Path]) -> None:
    """Write the wanted members of a tar archive to the given files, and nothing else."""
    absent = set(wanted)
    try:
        with tarfile.open(archive, "r|*") as stream:
            for entry in stream:
                name = entry.name.removeprefix("./")
                if name in absent and entry.isfile():
                    check_size(entry.size, f"{name} in {archive}")
                    content = stream.extractfile(entry)
                    assert content is not None
                    with writing(wanted[name]) as (out,):
                        shutil.copyfileobj(content, out, CHUNK_BYTES)
                    absent.remove(name)
                if not absent:
                    return
    except (*UNPACKING_ERRORS, tarfile.TarError) as error:
        raise DataError(f"{archive} is damaged: {error}") from error
    raise DataError(f"{archive} does not hold {', '.join(sorted(absent))}")


def plain_from_sgm(path: Path, work: Path) -> Path:
    """Write the segments of an SGM file as lines, read as sacrebleu does."""
    target = work / path.name.partition(".sgm")[0]
    with reading(path) as lines, writing(target) as (out,):
        for line in lines:
            if line.startswith(b"<seg "):
                segment = _SEGMENT.sub(r"\1", line.decode())
                out.write(re.sub(r"\s+", " ", segment.strip()).encode() + b"\n")
    return target
