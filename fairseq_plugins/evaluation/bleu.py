"""BLEU of fairseq-generate's output, detokenised, by sacrebleu against raw references.

``token_bleu`` compares tokens, as fairseq-generate and many papers do.

python -m fairseq_plugins.evaluation.bleu OUTPUT --data DIR [--subset test]
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import decoded, require_object
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.codes import SEPARATOR, join_pieces
from fairseq_plugins.data.options import check_file, check_folder
from fairseq_plugins.translation.moses import Moses

# Marks of Moses' tokeniser and of subwords, which raw text hardly has.
_PROCESSED = re.compile(rf"(^| )@-@( |$)|{SEPARATOR} ")
_TOLERATED = 0.05  # share of raw lines that may have such marks
# sacrebleu's tokenisers of languages without spaces between words; its default would match whole
# sentences. Its own for Japanese needs a dictionary that is not installed.
TOKENISERS = {"zh": "zh", "yue": "zh", "ja": "char"}


def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[float, str]:
    """Compute corpus BLEU (0..100) of text in a language, and sacrebleu's signature.

    Raises:
        ValueError: lists of different length, no line, or tokenised references.
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
    metric = BLEU(tokenize=TOKENISERS.get(language, "13a"))
    bleu = metric.corpus_score(list(hypotheses), [list(references)]).score
    return bleu, str(metric.get_signature())


def token_bleu(output: Path) -> float:
    """Compute corpus BLEU (0..100) of tokens, from what fairseq-generate printed.

    Hypotheses (lines `D-`) and references (lines `T-`) are tokenised, with subwords joined.

    Raises:
        ValueError: a sentence without one of the two.
    """
    from sacrebleu.metrics import BLEU

    references = read_lines(output, "T")
    hypotheses = read_lines(output, "D", len(references))
    both = [[join_pieces(line) for line in lines] for lines in (hypotheses, references)]
    # "force", since sacrebleu warns of text that looks tokenised.
    return float(BLEU(tokenize="none", force=True).corpus_score(both[0], [both[1]]).score)


def read_references(data: Path, split: str, language: str) -> list[str]:
    """Read the raw lines of a split from a data folder.

    Raises:
        ValueError: the folder has none.
    """
    path = data / "raw" / f"{split}.{language}"
    if not path.is_file():
        raise ValueError(f"{path} does not exist: the references must be raw text")
    return read_text(path)


def read_text(path: Path) -> list[str]:
    """Read lines, ended by line feeds alone."""
    with path.open("rb") as lines:
        return [line.rstrip("\r\n") for line in decoded(lines, path)]


def read_lines(output: Path, prefix: str, count: int | None = None) -> list[str]:
    """Read the texts of fairseq-generate's lines `<prefix>-<index> ... <text>`, by index.

    Of several lines with one index, the first counts: it is the best of the beam.

    output: fairseq-generate's output. count: number of sentences; None to accept any.

    Raises:
        ValueError: sentences are missing, or too many.
    """
    found: dict[int, str] = {}
    with output.open("rb") as lines:
        for line in decoded(lines, output):
            if match := re.match(rf"{prefix}-(\d+)\t", line):
                found.setdefault(int(match[1]), line.removesuffix("\n").split("\t", 2)[-1])
    expected = (max(found) + 1 if found else 0) if count is None else count
    absent = next((i for i in range(expected) if i not in found), None)
    if absent is not None or not expected:
        raise ValueError(
            f"{output}: no line {prefix}-{absent or 0}; {len(found)} of "
            f"{expected or 'any'} sentences found"
        )
    if len(found) > expected:
        raise ValueError(f"{output}: {len(found)} lines {prefix}- for {expected} sentences")
    return [found[i] for i in range(expected)]


def read_generated(output: Path, language: str, count: int | None = None) -> list[str]:
    """Read fairseq-generate's hypotheses, subwords joined and detokenised; see `read_lines`."""
    moses = Moses(language)
    return [moses.detokenise(join_pieces(line)) for line in read_lines(output, "D", count)]


def read_pairs(output: Path, data: Path, subset: str) -> tuple[list[str], list[str], str]:
    """Read hypotheses, references and their language; see `read_generated`, `read_references`."""
    language = read_languages(data)[1]
    references = read_references(data, subset, language)
    return read_generated(output, language, len(references)), references, language


def read_languages(data: Path) -> tuple[str, str]:
    """Return source and target language of a prepared folder.

    Raises:
        DataError: it is damaged, or not of translation.
    """
    request = require_object(data / "data.json").get("request", {})
    if not {"source", "target"} <= {*request}:
        raise DataError(f"--data must be a folder of translation, but {data} is not.")
    return request["source"], request["target"]


def score_output(output: Path, data: Path, subset: str) -> dict[str, object]:
    """Compute BLEU of fairseq-generate's output for a subset of a prepared folder.

    Raises:
        ValueError: see `read_references`, `read_generated`, `score` and `token_bleu`.
    """
    hypotheses, references, language = read_pairs(output, data, subset)
    bleu, signature = score(hypotheses, references, language)
    return {
        "bleu": round(bleu, 4),
        "token_bleu": round(token_bleu(output), 4),
        "signature": signature,
        "sentences": len(references),
    }


def score_command(
    program: str, score_subset: Callable[[Path, Path, str], dict[str, object]]
) -> Callable[..., int]:
    """Return the main function of a command that prints a score as JSON.

    Args:
        program: program name for messages.
        score_subset: computes the score from fairseq-generate's output, a prepared folder and a
            subset.
    """

    def get_parser() -> argparse.ArgumentParser:
        parser = Parser(prog=program)
        add = parser.add_argument
        add("output", type=Path, metavar="OUTPUT", help="fairseq-generate's output")
        add("--data", type=Path, required=True, metavar="DIR", help="prepared folder")
        add("--subset", default="test", help="valid or test (default)")
        return parser

    def run(args: argparse.Namespace) -> None:
        check_file(args.output, "OUTPUT")
        check_folder(args.data, "--data")
        print(json.dumps(score_subset(args.output, args.data, args.subset)))

    return command(get_parser, run)


main = score_command("python -m fairseq_plugins.evaluation.bleu", score_output)

if __name__ == "__main__":
    sys.exit(main())
