"""Choice of the examples of a split: samples, held-out parts and disjoint sets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.glue.read import Example, SplitText
from fairseq_plugins.glue.tasks import HELD_OUT


def without_seen(train: SplitText, others: Sequence[SplitText]) -> SplitText:
    """Drop training examples whose first sentence is in another set."""
    seen = {example.sentences[0] for other in others for example in other.examples}
    kept = [example for example in train.examples if example.sentences[0] not in seen]
    return replace(train, examples=tuple(kept))


def sample(examples: Sequence[Example], most: int | None, seed: str) -> tuple[Example, ...]:
    """Sample at most `most` examples by the seed, in their order."""
    if most is None or most >= len(examples):
        return tuple(examples)
    chosen = Random(seed).sample(range(len(examples)), most)
    return tuple(examples[i] for i in sorted(chosen))


def hold_out(
    train: SplitText, count: int, seed: str, classes: Iterable[str] = ()
) -> dict[str, SplitText]:
    """Split the training set into `train` and `held_out` with `count` examples.

    Each of the `classes` keeps an example to train on, in exchange for one of another class.

    Raises:
        OptionError: `count` is not below the number of examples.
    """
    total = len(train.examples)
    if count >= total:
        raise OptionError(
            f"--held-out must be below the {total} training examples taken of {train.file}, "
            f"but is {count}"
        )
    chosen = set(Random(f"{seed}/{HELD_OUT}").sample(range(total), count))
    labels = [example.label for example in train.examples]
    for label in classes:
        own = [i for i in range(total) if labels[i] == label]
        if not own or not chosen.issuperset(own):
            continue
        left = Counter(labels[i] for i in range(total) if i not in chosen)
        others = [i for i in range(total) if i not in chosen and left[labels[i]] > 1]
        chosen.remove(own[0])
        chosen |= {*Random(f"{seed}/{label}").sample(others, min(1, len(others)))}
    parts: dict[str, list[Example]] = {"train": [], HELD_OUT: []}
    for number, example in enumerate(train.examples):
        parts[HELD_OUT if number in chosen else "train"].append(example)
    return {name: replace(train, examples=tuple(examples)) for name, examples in parts.items()}
