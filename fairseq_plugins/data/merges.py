"""Learning of byte-pair encodings, identical to subword-nmt's to the last byte, but faster.

Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units": repeatedly
merge the most frequent pair of adjacent symbols into one symbol; ties go to the alphabetically last
pair.

subword-nmt compares all frequent pairs before every merge. Here pairs wait in a queue ordered by
count, and only pairs changed by a merge are queued again. Counting is subword-nmt's.
"""

import bisect
import heapq
from collections import Counter, defaultdict
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
    from subword_nmt import learn_bpe  # slow to import; --help stays fast

    words = [((*word[:-1], word[-1] + WORD_END), count) for word, count in counts.items()]
    found, places = learn_bpe.get_pair_statistics(words)
    if not found:
        return  # words of one character
    aside = defaultdict(int, found)  # counts of all pairs, outdated for those in `pairs`
    pairs = _FrequentPairs(found, max(found.values()) / 10)
    for number in range(merges):
        best = pairs.most_frequent()
        if best is None:  # subword-nmt's thresholds affect how pairs are counted
            learn_bpe.prune_stats(pairs, aside, pairs.least)
            best = max(aside, key=lambda pair: (aside[pair], pair))
            pairs = _FrequentPairs(aside, aside[best] * number / (number + 10000.0))
            learn_bpe.prune_stats(pairs, aside, pairs.least)
        if pairs[best] < FEWEST:
            return
        yield best
        changes = learn_bpe.replace_pair(best, words, places)
        learn_bpe.update_pair_statistics(best, changes, pairs, places)
        pairs[best] = 0
        if number % _SWEEP_EVERY == 0:
            learn_bpe.prune_stats(pairs, aside, pairs.least)


class _FrequentPairs(dict[Pair, int]):
    """Counts of pairs, with a queue by count, then by reverse alphabetical order.

    subword-nmt sets rare pairs aside until no frequent pair is left. A pair that occurs again
    meanwhile restarts from zero: increases replace its old count, decreases are subtracted from it.
    So pairs that arise in two ways may be undercounted. All codes of subword-nmt have this
    property.
    """

    def __init__(self, counts: Mapping[Pair, int], least: float) -> None:
        super().__init__(counts)
        self.least = least
        self._changed = set(counts)  # pairs to be queued
        self._queued: dict[int, list[Pair]] = {}  # by count, which may be outdated
        self._heap: list[int] = []  # of the same counts, negative
        self._sorted = 0  # the count whose pairs are in order

    def __missing__(self, pair: Pair) -> int:
        return 0

    def __setitem__(self, pair: Pair, count: int) -> None:
        super().__setitem__(pair, count)
        self._changed.add(pair)

    def _queue_changed(self) -> None:
        for pair in self._changed:
            count = self[pair]
            if count < self.least:
                continue
            if count not in self._queued:
                self._queued[count] = [pair]
                heapq.heappush(self._heap, -count)
            elif count == self._sorted:
                bisect.insort(self._queued[count], pair)
            else:
                self._queued[count].append(pair)
        self._changed.clear()

    def most_frequent(self) -> Pair | None:
        """Return the pair to merge, without removing it; None if none is frequent."""
        self._queue_changed()
        while self._heap:
            count = -self._heap[0]
            pairs = self._queued[count]
            if count != self._sorted:
                pairs.sort()
                self._sorted = count
            while pairs:
                if self[pairs[-1]] == count:
                    return pairs[-1]
                pairs.pop()
            heapq.heappop(self._heap)
            del self._queued[count]
            self._sorted = 0
        return None
