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

from benchmarks.context import Context, Settings
from benchmarks.record import LINES_PER_SECOND, ROOT, Found
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
class Peer:
    """An implementation of a step.

    Attributes:
        start: untimed setup, which returns the timed function.
        same: whether the result must equal this project's.
    """

    start: Callable[[], Callable[[], Sequence[object]]]
    same: bool = True


def versions() -> Settings:
    """Return the digest of the timed files, and the versions of the libraries."""
    paths = [ROOT / "fairseq_plugins" / name for name in _SOURCES]
    peers = {name: _version(name) for name in (SACREMOSES, SUBWORD_NMT, TOKENIZERS)}
    return {"source": provenance.digest(ROOT, paths), "peers": peers}


def preparation(settings: Settings, context: Context, found: Found) -> Iterator[Case]:
    """Seconds and lines per second of each step and library, and ratios of ours."""
    raw = generate_text(settings["seed"], settings["lines"], settings["words"])
    moses = Moses("en")
    tokens = [moses.tokenise(line) for line in raw]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread like the others
    with TemporaryDirectory() as folder:
        codes = Path(folder) / "codes"
        write_codes(codes, count_words(tokens), settings["merges"])
        parts = {
            "tokenise": _tokenising(raw),
            "learn": _learning(tokens, settings["merges"]),
            "apply": _applying(tokens, codes),
        }
        for part, peers in parts.items():
            case = _case(part, peers, found)
            yield case
            for key in case.runs:
                speed = settings["lines"] / found.medians[key]
                found.values[f"{key}{LINES_PER_SECOND}"] = round(speed, 1)


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


def _version(name: str) -> str | None:
    """Return the version of a library, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _case(part: str, peers: dict[str, Peer], found: Found) -> Case:
    """Compare the implementations of a step; raise Mismatch if ours differs."""
    there = {}
    for name, peer in peers.items():
        if name == TOKENIZERS and _version(name) is None:
            found.skipped[f"{part} {name}"] = f"{name} is not installed"
        else:
            there[f"{part} {name}"] = peer
    ours = f"{part} {OURS}"
    results = {key: peer.start()() for key, peer in there.items()}
    for key, result in results.items():
        if there[key].same and result != results[ours]:
            name = key.removeprefix(f"{part} ")
            raise Mismatch(f"{part}: {OURS} does not give what {name} gives")
        shared = len(set(result) & set(results[ours])) / len(set(results[ours]))
        found.values[f"{key}, share of ours"] = round(shared, 4)
    ready: dict[str, Callable[[], Sequence[object]]] = {}

    def prepare(key: str) -> None:
        ready[key] = there[key].start()

    return Case(
        {key: functools.partial(lambda key: ready[key](), key) for key in there},
        {f"{ours}/{key.removeprefix(part).strip()}": (ours, key) for key in there if key != ours},
        prepare={key: functools.partial(prepare, key) for key in there},
    )


def _tokenising(raw: Sequence[str]) -> dict[str, Peer]:
    def ours() -> Callable[[], list[str]]:
        moses = Moses("en")
        return lambda: [moses.tokenise(line) for line in raw]

    def theirs() -> Callable[[], list[str]]:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        normalise, tokenise = MosesPunctNormalizer("en").normalize, MosesTokenizer("en").tokenize
        return lambda: [tokenise(normalise(line), True, True) for line in raw]

    return {OURS: Peer(ours), SACREMOSES: Peer(theirs)}


def _learning(tokens: Sequence[str], merges: int) -> dict[str, Peer]:
    def ours() -> Pairs:
        return list(learn_merges(count_words(tokens), merges))

    def theirs() -> Pairs:
        from subword_nmt.learn_bpe import learn_bpe

        codes = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()):  # progress bar
            learn_bpe(tokens, codes, merges)
        lines = codes.getvalue().splitlines()[1:]
        return [(pair[0], pair[1]) for pair in (line.split(" ") for line in lines)]

    return {
        OURS: Peer(lambda: ours),
        SUBWORD_NMT: Peer(lambda: theirs),
        # It breaks ties differently, and so learns other merges.
        TOKENIZERS: Peer(lambda: _other_learner(tokens, merges), same=False),
    }


def _letters(tokens: Sequence[str]) -> set[str]:
    words = {word for line in tokens for word in line.split(" ")}
    return {c for word in words for c in word[:-1]} | {word[-1] + WORD_END for word in words}


def _other_learner(tokens: Sequence[str], merges: int) -> Callable[[], Pairs]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    letters = _letters(tokens)

    def learn() -> Pairs:
        tokenizer = Tokenizer(models.BPE(end_of_word_suffix=WORD_END))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=len(letters) + merges,
            min_frequency=2,
            end_of_word_suffix=WORD_END,
            show_progress=False,
        )
        tokenizer.train_from_iterator(tokens, trainer)
        found = json.loads(tokenizer.to_str())["model"]["merges"]
        return [(first, second) for first, second in found]

    return learn


def _applying(tokens: Sequence[str], codes: Path) -> dict[str, Peer]:
    def ours() -> Callable[[], list[str]]:
        split = Codes.read(codes).split
        return lambda: [split(line) for line in tokens]

    def theirs() -> Callable[[], list[str]]:
        from subword_nmt.apply_bpe import BPE

        with codes.open(encoding="utf-8", newline="\n") as lines:
            split = BPE(lines).process_line
        return lambda: [split(line) for line in tokens]

    other = Peer(lambda: _other_splitter(tokens, codes))
    return {OURS: Peer(ours), SUBWORD_NMT: Peer(theirs), TOKENIZERS: other}


def _other_splitter(tokens: Sequence[str], codes: Path) -> Callable[[], list[str]]:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pairs = [line.split(" ") for line in codes.read_text(encoding="utf-8").splitlines()[1:]]
    letters = _letters(tokens)
    subwords = dict.fromkeys([*sorted(letters), *(subword for pair in pairs for subword in pair)])
    subwords.update(dict.fromkeys("".join(pair) for pair in pairs))
    model = models.BPE(
        vocab={subword: i for i, subword in enumerate(subwords)},
        merges=[(first, second) for first, second in pairs],
        end_of_word_suffix=WORD_END,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def join(found: Sequence[str]) -> str:
        ends = (p.removesuffix(WORD_END) if p.endswith(WORD_END) else p + SEPARATOR for p in found)
        return " ".join(ends)

    return lambda: [join(one.tokens) for one in tokenizer.encode_batch(list(tokens))]
