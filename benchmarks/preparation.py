"""Tokenising, learning merges and applying them, relative to the libraries for it.

The text is generated with Zipf frequencies. One process, one thread, empty caches in each turn.
Results that must be equal are compared before timing.
"""

import contextlib
import functools
import importlib.metadata
import io
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.context import ROOT, Context, Settings
from benchmarks.record import Found
from benchmarks.reference import Mismatch
from benchmarks.runner import Case
from fairseq_plugins.common import provenance
from fairseq_plugins.data.codes import SEPARATOR, WORD_END, Codes
from fairseq_plugins.data.merges import count_words, learn_merges, write_codes
from fairseq_plugins.translation.moses import Moses

OURS, SACREMOSES, SUBWORD_NMT, TOKENIZERS = "ours", "sacremoses", "subword-nmt", "tokenizers"
# This project's timed files.
_SOURCES = ("data/codes.py", "data/merges.py", "translation/moses.py")
# Words for which tokenisers have rules.
_MARKED = ("Mr.", "don't", "well-known", "1,300", "3.5", "(so", "said)", '"no"', "U.S.")
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Text:
    """What the steps are given: lines, tokenised ones, a number of merges and a file of them."""

    raw: Sequence[str]
    tokens: Sequence[str]
    merges: int
    codes: Path


Timed = Callable[[], Sequence[object]]


def versions() -> Settings:
    """Return the digest of the timed files, and the versions of the libraries."""
    paths = [ROOT / "fairseq_plugins" / name for name in _SOURCES]
    peers = {name: version_of(name) for name in (SACREMOSES, SUBWORD_NMT, TOKENIZERS)}
    return {"source": provenance.digest(ROOT, paths), "peers": peers}


def preparation(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds and lines per second of each step and library, and ratios of ours."""
    raw = generate_text(settings["seed"], settings["lines"], settings["words"])
    moses = Moses("en")
    tokens = [moses.tokenise(line) for line in raw]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread like the others
    with TemporaryDirectory() as folder:
        text = Text(raw, tokens, settings["merges"], Path(folder) / "codes")
        write_codes(text.codes, count_words(tokens), text.merges)
        for step in STEPS:
            case = _case(step, text, found)
            yield case
            for key in case.starts:
                speed = settings["lines"] / found.medians[key]
                found.values[f"{key}, lines per second"] = round(speed, 1)


def generate_text(seed: int, lines: int, words: int) -> list[str]:
    """Generate sentences of invented words with frequencies 1 / rank, punctuation and numbers."""
    rng = random.Random(seed)
    letters, weights = "etaoinshrdlucmfwgypbvk", [1 / n for n in range(2, 24)]
    stems = ["".join(rng.choices(letters, weights, k=rng.randint(1, 4))) for _ in range(words // 8)]
    known = ["".join(rng.choices(stems, k=rng.randint(1, 3))) for _ in range(words)]
    for rank, word in zip(range(20, words, 97), itertools.cycle(_MARKED), strict=False):
        known[rank] = word
    frequencies = [1 / rank for rank in range(1, words + 1)]
    text = []
    for _ in range(lines):
        sentence = rng.choices(known, frequencies, k=rng.randint(4, 40))
        sentence[len(sentence) // 2] += ","
        text.append(" ".join(sentence).capitalize() + rng.choice(".....?!"))
    return text


def version_of(name: str) -> str | None:
    """Return the version of a library, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _case(step: str, text: Text, found: Found) -> Case:
    """Compare the implementations of a step; raise Mismatch if ours differs."""
    start = {f"{step} {name}": functools.partial(one, text) for name, one in STEPS[step].items()}
    if version_of(TOKENIZERS) is None and (missing := f"{step} {TOKENIZERS}") in start:
        del start[missing]
        found.skipped[missing] = f"{TOKENIZERS} is not installed"
    ours = f"{step} {OURS}"
    results = {key: one()() for key, one in start.items()}
    for key, result in results.items():
        if key != _DIFFERS and result != results[ours]:
            raise Mismatch(
                f"{step}: {OURS} does not give what {key.removeprefix(f'{step} ')} gives"
            )
        shared = len(set(result) & set(results[ours])) / len(set(results[ours]))
        found.values[f"{key}, share of ours"] = round(shared, 4)
    others = [key for key in start if key != ours]
    ratios = {f"{ours}/{key.removeprefix(f'{step} ')}": (ours, key) for key in others}
    return Case(starts=start, ratios=ratios)


def _tokenise(text: Text) -> Timed:
    moses = Moses("en")
    return lambda: [moses.tokenise(line) for line in text.raw]


def _tokenise_by_sacremoses(text: Text) -> Timed:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalise, tokenise = MosesPunctNormalizer("en").normalize, MosesTokenizer("en").tokenize
    return lambda: [tokenise(normalise(line), True, True) for line in text.raw]


def _learn(text: Text) -> Timed:
    return lambda: [*learn_merges(count_words(text.tokens), text.merges)]


def _learn_by_subword_nmt(text: Text) -> Timed:
    from subword_nmt.learn_bpe import learn_bpe

    def learn() -> Pairs:
        codes = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()):  # progress bar
            learn_bpe(text.tokens, codes, text.merges)
        return _read_pairs(codes.getvalue())

    return learn


def _learn_by_tokenizers(text: Text) -> Timed:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    size = len(_letters(text)) + text.merges

    def learn() -> Pairs:
        tokenizer = Tokenizer(models.BPE(end_of_word_suffix=WORD_END))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, end_of_word_suffix=WORD_END, show_progress=False
        )
        tokenizer.train_from_iterator(text.tokens, trainer)
        found = json.loads(tokenizer.to_str())["model"]["merges"]
        return [(first, second) for first, second in found]

    return learn


def _apply(text: Text) -> Timed:
    split = Codes(text.codes).split
    return lambda: [split(line) for line in text.tokens]


def _apply_by_subword_nmt(text: Text) -> Timed:
    from subword_nmt.apply_bpe import BPE

    with text.codes.open(encoding="utf-8", newline="\n") as lines:
        split = BPE(lines).process_line
    return lambda: [split(line) for line in text.tokens]


def _apply_by_tokenizers(text: Text) -> Timed:
    from tokenizers import Tokenizer, models, pre_tokenizers

    merges = _read_pairs(text.codes.read_text(encoding="utf-8"))
    subwords = [*sorted(_letters(text)), *itertools.chain(*merges), *map("".join, merges)]
    vocabulary = {subword: i for i, subword in enumerate(dict.fromkeys(subwords))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix=WORD_END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def join(found: Sequence[str]) -> str:
        ends = (p.removesuffix(WORD_END) if p.endswith(WORD_END) else p + SEPARATOR for p in found)
        return " ".join(ends)

    return lambda: [join(one.tokens) for one in tokenizer.encode_batch([*text.tokens])]


def _letters(text: Text) -> set[str]:
    words = {word for line in text.tokens for word in line.split(" ")}
    return {c for word in words for c in word[:-1]} | {word[-1] + WORD_END for word in words}


def _read_pairs(codes: str) -> Pairs:
    pairs = (line.split(" ") for line in codes.splitlines()[1:])
    return [(first, second) for first, second in pairs]


# Untimed set-ups that return the timed function, by step and implementation.
STEPS: dict[str, dict[str, Callable[[Text], Timed]]] = {
    "tokenise": {OURS: _tokenise, SACREMOSES: _tokenise_by_sacremoses},
    "learn": {
        OURS: _learn,
        SUBWORD_NMT: _learn_by_subword_nmt,
        TOKENIZERS: _learn_by_tokenizers,
    },
    "apply": {
        OURS: _apply,
        SUBWORD_NMT: _apply_by_subword_nmt,
        TOKENIZERS: _apply_by_tokenizers,
    },
}
_DIFFERS = f"learn {TOKENIZERS}"  # breaks ties differently, and so learns other merges
