"""The generated tasks for fairseq's sentence_prediction: the Python behind prepare_toy_glue.sh.

python -m fairseq_plugins.glue.prepare_generated --bpe DIR [options]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.glue.generated import EXAMPLES, VERSION, write_tasks
from fairseq_plugins.glue.prepare import Options, prepare
from fairseq_plugins.glue.tasks import TOY_GLUE


def prepare_toy_glue(output: Path, bpe: Path, *, seed: int, examples: Mapping[str, int]) -> None:
    """Make output/Order and output/Place, as `prepare` makes GLUE's tasks."""
    with TemporaryDirectory() as temporary:
        source = Path(temporary) / f"embedded-glue-v{VERSION}-s{seed}"
        source.mkdir()
        write_tasks(source, seed=seed, examples=examples)
        prepare(TOY_GLUE, output, Options(bpe, seed=seed), [source])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="prepare_toy_glue.sh", description="Make the generated tasks' data folders."
    )
    parser.add_argument(
        "--bpe", type=Path, default=Path("data", "toy-mlm", "bpe"), metavar="DIR",
        help="pieces of the pre-training (default: data/toy-mlm/bpe in the repository)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path("data", "toy-glue"), metavar="DIR",
        help="where Order/ and Place/ are made (default: data/toy-glue in the repository)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="another seed, other examples")
    for split, count in EXAMPLES.items():
        parser.add_argument(
            f"--{split}-examples", type=int, default=count, metavar="N",
            help=f"examples of {split}.tsv (default: {count})",
        )  # fmt: skip
    args = parser.parse_args(arguments)
    examples = {split: getattr(args, f"{split}_examples") for split in EXAMPLES}
    return exit_status(
        "prepare",
        lambda: prepare_toy_glue(args.output, args.bpe, seed=args.seed, examples=examples),
    )


if __name__ == "__main__":
    sys.exit(main())
