"""Learning of byte-pair encodings, identical to subword-nmt's to the last byte, but faster.

Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units": repeatedly
merge the most frequent pair of adjacent symbols into one symbol; ties go to the alphabetically last
pair.

subword-nmt compares all frequent pairs before every merge. Here pairs wait in a queue ordered by
count, and only pairs changed by a merge are queued again. Counting follows subword-nmt, with its
few inexact cases (see `_Counts`), so that both produce the same codes.
"""

import bisect
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.progress import track
from fairseq_plugins.data.codes import WORD_END

VERSION = "#version: 0.2"  # codes format: the end-of-word mark belongs to the last character
FEWEST = 2  # minimum count of a pair to be merged
_SWEEP_EVERY = 100  # number of merges between sweeps of rare pairs

Pair = tuple[str, str]
Symbols = tuple[str, ...]


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count the space-separated words of lines."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.strip("\r\n ").split(" "))
    del counts[""]
    return counts


def write_codes(path: Path, counts: Mapping[str, int], merges: int) -> None:
    """Learn up to ``merges`` merges of counted words and write them as a codes file.

    Raises DataError: there is no word or nothing to merge; subword-nmt rejects empty codes.
    """
    if not counts:
        raise DataError("the training text has no words")
    learned = track(learn_merges(counts, merges), "learning", unit="merges", total=merges)
    with writing(path) as (codes,):
        codes.write(f"{VERSION}\n".encode())
        empty = codes.tell()
        codes.writelines(f"{first} {second}\n".encode() for first, second in learned)
        if codes.tell() == empty:
            raise DataError(f"no pair of characters occurs {FEWEST} times in the training text")


def learn_merges(counts: Mapping[str, int], merges: int) -> Iterator[Pair]:
    """Yield up to ``merges`` merges in order, fewer if no further pair occurs `FEWEST` times.

    Args:
        counts: count of each word; `WORD_END` is appended to its last character.
        merges: maximum number of merges.
    """
    words = _Words(counts)
    if not words.pairs.counts:
        return  # words of one character
    for number in range(merges):
        best = words.pairs.most_frequent(number)
        if best is None:
            return
        yield best
        words.merge(best)
        if number % _SWEEP_EVERY == 0:
            words.pairs.set_aside()


class _Queue:
    """Priority queue of pairs by count, then by reverse alphabetical order.

    Entries may be outdated; `first` skips those whose count has changed.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, list[Pair]] = {}  # by count
        self._counts: list[int] = []  # a heap of the same counts, negative
        self._sorted = 0  # the count whose pairs are in order

    def push(self, pair: Pair, count: int) -> None:
        pairs = self._pairs.get(count)
        if pairs is None:
            self._pairs[count] = [pair]
            heapq.heappush(self._counts, -count)
        elif count == self._sorted:
            bisect.insort(pairs, pair)
        else:
            pairs.append(pair)

    def first(self, counts: Mapping[Pair, int]) -> Pair | None:
        """Return the first pair whose entry has its current count, without removing it."""
        while self._counts:
            count = -self._counts[0]
            pairs = self._pairs[count]
            if count != self._sorted:
                pairs.sort()
                self._sorted = count
            while pairs:
                if counts.get(pairs[-1]) == count:
                    return pairs[-1]
                pairs.pop()
            heapq.heappop(self._counts)
            del self._pairs[count]
            self._sorted = 0
        return None


class _Counts:
    """Counts of pairs in the text, as subword-nmt counts them.

    Rare pairs are set aside until no frequent pair is left. A pair that occurs again meanwhile
    restarts from zero: increases replace its old count, decreases are subtracted from it. So pairs
    that arise in two ways may be undercounted. All codes of subword-nmt have this property.

    Attributes:
        counts: counts of frequent pairs and of those changed since the last sweep.
        least: minimum count of frequent pairs.
    """

    def __init__(self, counts: dict[Pair, int]) -> None:
        self.counts = counts
        self._aside = dict(counts)
        self.least = max(counts.values(), default=0) / 10
        self._queue = _Queue()
        self.queue(counts)

    def queue(self, pairs: Iterable[Pair]) -> None:
        """Queue pairs whose count changed."""
        for pair in pairs:
            count = self.counts[pair]
            if count >= self.least:
                self._queue.push(pair, count)

    def most_frequent(self, number: int) -> Pair | None:
        """Return the pair for merge ``number`` (from 0); None if rarer than `FEWEST`."""
        pair = self._queue.first(self.counts)
        if pair is None:
            pair = self._bring_back(number)
        return pair if self.counts[pair] >= FEWEST else None

    def _bring_back(self, number: int) -> Pair:
        """Return the most frequent of all pairs and lower the threshold."""
        self.set_aside()
        best = max(self._aside, key=lambda pair: (self._aside[pair], pair))
        # subword-nmt's threshold, which affects how pairs are counted.
        self.least = self._aside[best] * number / (number + 10000.0)
        self.counts = {pair: n for pair, n in self._aside.items() if n >= self.least}
        self._queue = _Queue()
        self.queue(self.counts)
        return best

    def set_aside(self) -> None:
        """Move rare pairs out of ``counts``."""
        rare = [(pair, count) for pair, count in self.counts.items() if count < self.least]
        for pair, count in rare:
            del self.counts[pair]
            self._aside[pair] = count if count >= 0 else self._aside.get(pair, 0) + count


class _Words:
    """The distinct words as symbols, and an index of the words containing each pair."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._symbols: list[Symbols] = [(*word[:-1], word[-1] + WORD_END) for word in counts]
        self._frequency = list(counts.values())
        # subword-nmt's regular expressions treat white space within a word as a symbol boundary.
        self._spaced = {i for i, word in enumerate(counts) if word.split() != [word]}
        self._places: dict[Pair, dict[int, int]] = {}  # pair -> word -> how often
        totals: dict[Pair, int] = {}
        for i, (symbols, frequency) in enumerate(zip(self._symbols, self._frequency, strict=True)):
            for pair in itertools.pairwise(symbols):
                totals[pair] = totals.get(pair, 0) + frequency
                places = self._places.setdefault(pair, {})
                places[i] = places.get(i, 0) + 1
        self.pairs = _Counts(totals)

    def merge(self, pair: Pair) -> None:
        """Merge a pair everywhere and update the counts of adjacent pairs."""
        places, self._places[pair] = self._places[pair], {}
        first, second = pair
        merged = first + second
        changed: dict[Pair, int] = {}
        for i, times in places.items():
            if times < 1:
                continue
            old = self._symbols[i]
            indices = _find(first, second, old)
            new = self._replace(i, pair, indices)
            self._symbols[i] = new
            self._count(_removed_pairs(pair, old, indices), i, -1, changed)
            self._count(_added_pairs(merged, new), i, 1, changed)
        counts = self.pairs.counts
        for other, change in changed.items():
            counts[other] = counts.get(other, 0) + change
        counts[pair] = 0
        self.pairs.queue(changed)

    def _replace(self, i: int, pair: Pair, indices: list[int]) -> Symbols:
        if i in self._spaced:
            pattern = rf"(?<!\S){re.escape(' '.join(pair))}(?!\S)"
            merged = "".join(pair)
            text = re.sub(pattern, lambda _: merged, " ".join(self._symbols[i]))
            return tuple(text.split(" "))
        symbols = list(self._symbols[i])
        for position in reversed(indices):
            symbols[position : position + 2] = ["".join(pair)]
        return tuple(symbols)

    def _count(self, pairs: list[Pair], i: int, sign: int, changed: dict[Pair, int]) -> None:
        change = sign * self._frequency[i]
        for pair in pairs:
            changed[pair] = changed.get(pair, 0) + change
            places = self._places.setdefault(pair, {})
            times = places.get(i, 0) + sign
            if times:
                places[i] = times
            else:
                del places[i]


def _find(first: str, second: str, symbols: Symbols) -> list[int]:
    """Return the indices of a pair, from the left and without overlaps."""
    indices, i, last = [], 0, len(symbols) - 1
    while i < last:
        if symbols[i] == first and symbols[i + 1] == second:
            indices.append(i)
            i += 1
        i += 1
    return indices


def _removed_pairs(pair: Pair, old: Symbols, indices: list[int]) -> list[Pair]:
    """Return the pairs removed by a merge; one between two merged pairs counts once."""
    removed: list[Pair] = []
    for i in indices:
        if i:
            removed.append((old[i - 1], old[i]))
        if i < len(old) - 2 and old[i + 2 : i + 4] != pair:
            removed.append((old[i + 1], old[i + 2]))
    return removed


def _added_pairs(merged: str, new: Symbols) -> list[Pair]:
    """Return the pairs added by a merge; one of two merged symbols counts once."""
    added: list[Pair] = []
    last = len(new) - 1
    for i, symbol in enumerate(new):
        if symbol == merged:
            if i:
                added.append((new[i - 1], symbol))
            if i < last and new[i + 1] != merged:
                added.append((symbol, new[i + 1]))
    return added
