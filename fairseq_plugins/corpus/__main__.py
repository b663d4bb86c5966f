"""`python -m fairseq_plugins.corpus --output DIR [--seed 1] [--train-sentences N] ...`."""

import argparse
import sys
from pathlib import Path

from fairseq_plugins.corpus.files import add_arguments, sentences_from, write_corpus


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins.corpus", description="Write the embedded corpus."
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to write")
    add_arguments(parser)
    args = parser.parse_args()
    try:
        about = write_corpus(args.output, seed=args.seed, sentences=sentences_from(args))
    except (ValueError, OSError) as error:
        print(f"corpus: error: {error}", file=sys.stderr)
        return 1
    for split, facts in about["splits"].items():
        print(f"{split}: {facts['sentences']} sentences, {facts['words']} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
