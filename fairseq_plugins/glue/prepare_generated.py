"""Two generated tasks in GLUE's layout whose labels depend on word order, and their preparation.

Order: a pattern ("threefold de go ba de go ba ."), right, or with its two parts exchanged ("go ba
    threefold de go ba de ."), wrong. Both classes have the same word frequencies.
Place: a sign among meaningless beats; the score is its position, 0 at the first word, 5 at the
    last.

python -m fairseq_plugins.glue.prepare_generated --bpe DIR [options] (scripts/prepare_toy_glue.sh)
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data import lexicon, options
from fairseq_plugins.data.sentences import pattern
from fairseq_plugins.glue.prepare import Options, prepare
from fairseq_plugins.glue.tasks import TOY_GLUE

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
    options.check_counts("examples", examples)
    for task, write in WRITERS.items():
        folder = output / task
        folder.mkdir()
        for split, count in examples.items():
            rng = Random(f"{seed}/{task}/{split}")
            lines = ["sentence\tlabel", *("\t".join(write(rng)) for _ in range(count))]
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.tsv").write_text(text, encoding="utf-8", newline="\n")


def prepare_toy_glue(
    output: Path, bpe: Path, *, seed: int, examples: Mapping[str, int], force: bool = False
) -> None:
    """Make output/Order and output/Place, as `prepare` does for GLUE."""
    with TemporaryDirectory() as temporary:
        source = Path(temporary) / f"embedded-glue-v{VERSION}-s{seed}"
        source.mkdir()
        write_tasks(source, seed=seed, examples=examples)
        prepare(TOY_GLUE, output, Options(bpe, seed=seed, force=force), [source])


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog=options.program("prepare_toy_glue"),
        description="Make the generated tasks' data folders.",
    )
    options.add_tokenizer(parser, "the pre-training's tokenizer", "toy-mlm/bpe")
    options.add_output(parser, "toy-glue", "where Order/ and Place/ are made")
    options.add_seed(parser, "examples")
    options.add_counts(parser, "examples", EXAMPLES, "examples of {split}.tsv")
    options.add_force(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Generate and prepare both tasks."""
    options.call(prepare_toy_glue, args, examples=options.counts_from(args, "examples", EXAMPLES))


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
