"""Preparation of the generated tasks (scripts/prepare_toy_glue.sh).

python -m fairseq_plugins.glue.prepare_generated --bpe DIR [options]
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import data_folder
from fairseq_plugins.data import options
from fairseq_plugins.glue.generated import EXAMPLES, VERSION, write_tasks
from fairseq_plugins.glue.prepare import Options, prepare
from fairseq_plugins.glue.tasks import TOY_GLUE


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
    options.add_tokenizer(
        parser, "the pre-training's tokenizer", default=data_folder("toy-mlm") / "bpe"
    )
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
