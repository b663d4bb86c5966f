"""Published word-level corpora: their expected content, and reading and checking of raw files.

A corpus is a value of `PublishedCorpus`, so adding one needs no code.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import PACKED, find_packed, reading
from fairseq_plugins.data.archives import Zip
from fairseq_plugins.data.download import download
from fairseq_plugins.data.folders import SPLITS, report
from fairseq_plugins.data.measure import MeasuredText, copy_and_measure


@dataclass(frozen=True)
class ExpectedFile:
    """Expected statistics of a raw file; None if not fixed.

    Releases of the same text may order articles of the training file differently, which changes the
    hash, so training files are checked by size: words and lines without end-of-sentence tokens, and
    types, the number of distinct words.
    """

    lines: int
    words: int | None = None
    bytes: int | None = None
    types: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class PublishedCorpus:
    """A corpus of `wiki.<split>.<suffix>` files, published as one zip."""

    name: str  # also of the folder in the zip
    url: str  # address of the zip
    zip_md5: str | None  # None if none is published
    # Expected, with fairseq's four special symbols and padding to a multiple of 8; None: not fixed.
    dictionary_size: int | None
    files: Mapping[str, ExpectedFile]  # by split
    suffix: str = "tokens"  # ending of the file names

    def file_name(self, split: str) -> str:
        return f"wiki.{split}.{self.suffix}"

    @property
    def zip_name(self) -> str:
        return f"{self.name}-v1.zip"

    def download(self, root: Path, url: str | None) -> Path:
        """Download the zip, by default from its own address, to `downloads` in `root`."""
        path = root / "downloads" / self.zip_name
        return download(url or self.url, path, self.zip_md5)

    def origin(self, source: Path | None, url: str | None) -> dict[str, str]:
        """Return the source of the text: an address, or a folder's name.

        Only the name, since data.json is copied into results, which are shared.
        """
        return {"from": source.resolve().name} if source else {"url": url or self.url}


# Merity et al. 2016. The original address is gone; the default is the first author's mirror. The
# md5 sums are those of the original zips in torchtext.
WIKITEXT_2 = PublishedCorpus(
    name="wikitext-2",
    url="https://wikitext.smerity.com/wikitext-2-v1.zip",
    zip_md5="542ccefacc6c27f945fb54453812b3cd",
    dictionary_size=33_280,  # 33,277 types, one of them <unk>, + 4 specials
    files={
        "train": ExpectedFile(36_718, 2_051_910, bytes=10_797_148, types=33_277),
        "valid": ExpectedFile(
            3_760,
            213_886,
            bytes=1_121_681,
            sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        ),
        "test": ExpectedFile(
            4_358,
            241_211,
            bytes=1_256_449,
            sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        ),
    },
)
WIKITEXT_103 = PublishedCorpus(
    name="wikitext-103",
    url="https://wikitext.smerity.com/wikitext-103-v1.zip",
    zip_md5="9ddaacaf6af0710eda8c456decff7832",
    dictionary_size=267_744,  # 267,734 types, one of them <unk>, + 4 specials + 7 of padding
    files={
        "train": ExpectedFile(1_801_350, 101_425_671, types=267_734),
        "valid": ExpectedFile(
            3_760,
            213_886,
            bytes=1_142_309,
            sha256="9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
        ),
        "test": ExpectedFile(
            4_358,
            241_211,
            bytes=1_281_077,
            sha256="56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
        ),
    },
)
# The same text before rare words were replaced by <unk>, for subwords.
WIKITEXT_103_RAW = PublishedCorpus(
    name="wikitext-103-raw",
    url="https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
    zip_md5=None,
    dictionary_size=None,
    files={split: ExpectedFile(facts.lines) for split, facts in WIKITEXT_103.files.items()},
    suffix="raw",
)


def check(text: MeasuredText, expected: ExpectedFile, name: str) -> None:
    """Raise DataError naming the file and every differing value."""
    differing = [
        f"{fact}: expected {value}, found {getattr(text, fact)}"
        for fact, value in vars(expected).items()
        if value not in (None, getattr(text, fact))
    ]
    if differing:
        raise DataError(f"{name} is not the published file: " + "; ".join(differing))


class RawSource:
    """The raw files of a corpus in a folder (plain, compressed, or the zip) or in a zip.

    Only expected members of a zip are read, and written under names chosen here.
    """

    def __init__(self, location: Path, corpus: PublishedCorpus):
        if not location.exists():
            raise DataError(f"--from must be an existing folder or zip, but is {location}")
        self.location = location
        self.corpus = corpus
        path = location / corpus.zip_name if location.is_dir() else location
        self._zip = Zip(path) if path.is_file() else None

    def _find(self, split: str) -> tuple[str, AbstractContextManager[IO[bytes]]] | None:
        """Return the name of a split's file or zip member, and a context that opens it."""
        name = self.corpus.file_name(split)
        if self.location.is_dir() and (path := find_packed(self.location, name)):
            return path.name, reading(path)
        member = f"{self.corpus.name}/{name}"
        return (member, self._zip.open(member)) if self._zip and member in self._zip else None

    def require(self) -> None:
        """Raise DataError naming the missing splits."""
        absent = [self.corpus.file_name(s) for s in SPLITS if self._find(s) is None]
        if absent:
            raise DataError(
                f"{self.location} does not hold {', '.join(absent)} "
                f"({PACKED}, or in {self.corpus.zip_name})"
            )

    def unpack(self, target: Path) -> dict[str, MeasuredText]:
        """Write the checked raw files into an existing folder; return statistics by split."""
        self.require()
        texts = {}
        for split in SPLITS:
            source = self._find(split)
            assert source is not None
            name, opening = source
            report(f"reading and checking {name}")
            try:
                with opening as lines:
                    texts[split] = copy_and_measure(lines, target / self.corpus.file_name(split))
            except UnicodeDecodeError as error:
                raise DataError(f"{name} in {self.location} is damaged: {error}") from error
            check(texts[split], self.corpus.files[split], name)
        return texts
