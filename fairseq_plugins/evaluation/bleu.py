"""BLEU on detokenised text, by sacrebleu, and how fairseq-generate's output becomes such text.

References are raw text: what a data folder keeps in raw/, never what was tokenised for training.

python -m fairseq_plugins.evaluation.bleu OUTPUT --data DIR [--subset test] scores what
fairseq-generate printed.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.codes import SEPARATOR, join_pieces
from fairseq_plugins.translation.moses import Moses

# Marks that Moses' tokeniser or the pieces leave in many lines; raw text has hardly any.
_PROCESSED = re.compile(rf"(^| )@-@( |$)|{SEPARATOR} ")
_TOLERATED = 0.05  # of the lines, as those that are about such marks


def score(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Corpus BLEU (0..100) and sacrebleu's signature: tokenisation, case, smoothing, version.

    Raises:
        ValueError: lists of different length or without a line, or references that were tokenised.
    """
    from sacrebleu.metrics import BLEU

    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} hypotheses and {len(references)} references")
    if not references:
        raise ValueError("there is no reference to score against")
    marked = [number for number, line in enumerate(references, start=1) if _PROCESSED.search(line)]
    if len(marked) > _TOLERATED * len(references):
        number = marked[0]
        raise ValueError(
            f"reference {number} is not raw text but tokenised: {references[number - 1]!r}"
        )
    metric = BLEU()
    bleu = metric.corpus_score(list(hypotheses), [list(references)]).score
    return bleu, str(metric.get_signature())


def read_references(data: Path, split: str, language: str) -> list[str]:
    """The raw lines of a split that a data folder keeps.

    Raises:
        ValueError: for a folder without them.
    """
    path = data / "raw" / f"{split}.{language}"
    if not path.is_file():
        raise ValueError(f"{path} is not there: a reference must be the raw text")
    return read_text(path)


def read_text(path: Path) -> list[str]:
    """Lines of a text file; only a line feed ends one."""
    text = path.read_bytes().decode()
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_generated(output: Path, language: str, count: int | None = None) -> list[str]:
    """Detokenised hypotheses from what fairseq-generate printed, in the order of the data.

    output: a file with its lines `D-<index> <score> <text>`, the best of each beam first; pieces
    may still be split. count: how many there must be.

    Raises:
        ValueError: naming the file and the first sentence without a hypothesis.
    """
    found: dict[int, str] = {}
    for line in output.read_bytes().decode().split("\n"):
        if line.startswith("D-"):
            name, _, text = line.split("\t", 2)
            found.setdefault(int(name.removeprefix("D-")), text)
    expected = (max(found) + 1 if found else 0) if count is None else count
    absent = next((i for i in range(expected) if i not in found), None)
    if absent is not None or not expected:
        raise ValueError(
            f"{output}: no hypothesis of sentence {absent or 0}; {len(found)} of "
            f"{expected or 'any'} are there"
        )
    if len(found) > expected:
        raise ValueError(f"{output}: {len(found)} hypotheses for {expected} sentences")
    moses = Moses(language)
    return [moses.detokenise(join_pieces(found[i])) for i in range(expected)]


def score_output(output: Path, data: Path, subset: str) -> dict[str, object]:
    """BLEU of fairseq-generate's output for a subset of a prepared folder.

    Raises:
        ValueError: see `read_references`, `read_generated` and `score`.
    """
    language = json.loads((data / "data.json").read_text())["request"]["target"]
    references = read_references(data, subset, language)
    bleu, signature = score(read_generated(output, language, len(references)), references)
    return {"bleu": round(bleu, 4), "signature": signature, "sentences": len(references)}


def run_command(
    program: str,
    score_subset: Callable[[Path, Path, str], dict[str, object]],
    arguments: Sequence[str] | None,
) -> int:
    """Print as JSON what a function scores of fairseq-generate's output; return the exit status.

    Args:
        program: name for messages.
        score_subset: gets the output, the prepared folder and the subset's name.
        arguments: of the command line; None for those of this process.
    """
    parser = Parser(prog=program)
    parser.add_argument("output", type=Path, help="what fairseq-generate printed")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="prepared folder")
    parser.add_argument("--subset", default="test", help="valid or test (default)")
    args = parser.parse_args(arguments)
    return exit_status(
        args.program, lambda: print(json.dumps(score_subset(args.output, args.data, args.subset)))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command("python -m fairseq_plugins.evaluation.bleu", score_output, arguments)


if __name__ == "__main__":
    sys.exit(main())
