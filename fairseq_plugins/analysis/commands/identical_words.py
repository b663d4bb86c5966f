"""``... analysis identical-words --path CHECKPOINT --data DIR``."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.analysis import LENGTH, WORDS
from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.seeds import parse_seed


def get_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="identical-words",
        description="Properties of the first layer's attention to sentences that repeat a word, as "
        "JSON; of a translation model, the encoder's. The direction balance of a causal model is "
        "infinite, which no JSON can hold: it is null, and named under `infinite`.",
    )
    add = parser.add_argument
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help="of any of our models")
    add("--data", type=Path, required=True, metavar="DIR", help="with the dictionaries")
    add("--output", type=Path, metavar="FILE", help="also write the weights (T, T) as .npy")
    add("--words", type=int, default=WORDS, metavar="N", help=f"drawn (default: {WORDS})")
    longest = f"of a sentence (default: {LENGTH}, or all that the model can read if that is less)"
    add("--length", type=int, metavar="N", help=longest)
    add("--seed", type=parse_seed, default=1, help="of the words, and of encodings that draw")
    add("--cpu", action="store_true", help="even where there is a GPU")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Probe a checkpoint; the exit status."""
    args = get_parser().parse_args(argv)
    return exit_status("analysis identical-words", lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    import numpy as np  # here, since these take seconds, which --help must not

    from fairseq_plugins.analysis.identical_words import probe
    from fairseq_plugins.analysis.indicators import infinite, measure

    found = probe(
        args.path,
        args.data,
        words=args.words,
        length=args.length,
        seed=args.seed,
        cpu=args.cpu,
    )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        np.save(args.output, found.weights.float().numpy())
    reader = found.reader
    facts = {"words": found.words, "length": len(found.weights), "model": reader.family}
    metrics = measure(found.weights, reader.begins, reader.ends)
    print(json.dumps({"metrics": metrics, "infinite": infinite(found.weights), **facts}))
