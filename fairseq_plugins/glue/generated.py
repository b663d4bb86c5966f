"""Two generated tasks in GLUE's layout whose labels depend on word order.

Order: a pattern ("threefold de go ba de go ba ."), right, or with its two parts exchanged ("go ba
    threefold de go ba de ."), wrong. Both classes have the same word frequencies.
Place: a sign among meaningless beats; the score is its position, 0 at the first word, 5 at the
    last.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random

from fairseq_plugins.data import lexicon
from fairseq_plugins.data.options import check_counts
from fairseq_plugins.data.sentences import pattern

VERSION = 1  # increase when a seed gives other text
EXAMPLES = {"train": 2_000, "dev": 400}
SHORTEST, LONGEST = 6, 20  # words of a sentence of Place


def order(rng: Random) -> tuple[str, str]:
    """Generate a sentence and its label."""
    *words, stop = pattern(rng).tokens
    if rng.random() < 0.5:
        return " ".join((*words, stop)), "right"
    cut = rng.randrange(1, len(words))
    return " ".join((*words[cut:], *words[:cut], stop)), "wrong"


def place(rng: Random) -> tuple[str, str]:
    """Generate a sentence and its score from 0 to 5."""
    words = rng.choices(lexicon.BEATS, k=rng.randint(SHORTEST, LONGEST))
    index = rng.randrange(len(words))
    words[index] = lexicon.AGAIN
    return " ".join(words), f"{5 * index / (len(words) - 1):.3f}"


WRITERS = {"Order": order, "Place": place}


def write_tasks(output: Path, *, seed: int, examples: Mapping[str, int]) -> None:
    """Write <task>/<split>.tsv with the columns sentence and label into an existing folder.

    examples: number of examples by split. Each split and task has its own random stream.

    Raises:
        OptionError: a split without examples.
    """
    check_counts("examples", examples)
    for task, write in WRITERS.items():
        folder = output / task
        folder.mkdir()
        for split, count in examples.items():
            rng = Random(f"{seed}/{task}/{split}")
            lines = ["sentence\tlabel", *("\t".join(write(rng)) for _ in range(count))]
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.tsv").write_text(text, encoding="utf-8", newline="\n")
