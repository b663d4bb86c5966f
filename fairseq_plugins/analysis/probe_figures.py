"""Figures of a first layer's scores in "On Position Embeddings in BERT": 2, 9, 10 and 11."""

from collections.abc import Sequence

import torch

from fairseq_plugins.analysis import LENGTH
from fairseq_plugins.analysis.correspondence import (
    input_projections,
    position_correlation,
    split_first_layer,
)
from fairseq_plugins.analysis.figure_files import SCALES, Made, Panel, draw_panels
from fairseq_plugins.analysis.identical_words import Probe, draw_words, probe_reader
from fairseq_plugins.analysis.indicators import infinite, measure
from fairseq_plugins.analysis.position_vectors import by_offset
from fairseq_plugins.analysis.readers import KINDS
from fairseq_plugins.analysis.subjects import Sizes, Subject, require
from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.tables import markdown_table
from fairseq_plugins.papers.bert_families import COLUMNS, TABLE_7

APPENDIX_J = 100  # words of the paper's Figure 11


def position_positions(subjects: Sequence[Subject], sizes: Sizes) -> Made:
    """Figure 9 and Eq. 7: P W_Q W_K^T P^T, mean over heads, and what makes their scores."""
    panels, numbers, lines = [], {}, []
    for subject in subjects:
        if subject.reader is not None and subject.reader.is_causal:
            # Its hidden keys have scores of -inf, which have no variance to share out.
            raise OptionError(
                f"figure 9 needs models that hide no key, but {subject.label} is a causal "
                f"{subject.reader.family}"
            )
    for subject in subjects:
        reader, rows = subject.reader, subject.absolute(sizes.length or LENGTH)
        if reader is None or rows is None:
            continue
        q, k, heads = input_projections(reader)
        with torch.no_grad():
            own = position_correlation(rows.to(q), q, k, heads).mean(0).double().cpu()
        panels.append(Panel(subject.label, own))
        words = draw_words(reader.dictionary, sizes.words or APPENDIX_J, sizes.seed)
        draw = torch.Generator().manual_seed(sizes.seed)
        tokens = words[torch.randint(len(words), (4, len(rows)), generator=draw)]
        tokens[:, : reader.begins] = reader.dictionary.bos()
        shares = split_first_layer(reader, tokens.to(q.device)).shares()
        numbers[subject.label] = {"position_position": own, "shares_of_scores": shares}
        lines.append([subject.label, *(f"{share:.3f}" for share in shares.values())])
    require(panels, 9, "a checkpoint with an absolute encoding")
    header = ["", "word-word", "word-position", "position-word", "position-position", "rest"]
    return Made(
        draw_panels(panels),
        numbers,
        [
            "What makes scores differ between keys, by Eq. 7, in the first layer and at random "
            "words of the dictionary: covariance of each term with the score, as a share of its "
            "variance, both pooled over heads, queries and samples. Normalisations between "
            "embedding and projection are counted in, which Eq. 7 leaves out. *Rest* is what acts "
            "inside the attention.",
            SCALES,
            markdown_table(header, lines, left=1),
        ],
    )


def identical_words(subjects: Sequence[Subject], sizes: Sizes) -> Made:
    """Figures 2 and 11: scores before the softmax over 100 words, beside the weights after it."""
    panels, numbers, lines = [], {}, []
    for subject, seen in _probes(subjects, sizes, 11):
        panels.append(Panel(f"{subject.label}: scores", seen.scores))
        panels.append(Panel(f"{subject.label}: weights", seen.weights.sqrt()))
        inner = slice(seen.reader.begins, len(seen.scores) - seen.reader.ends)
        offsets = by_offset(seen.scores[inner, inner])
        middle = len(offsets) // 2
        beside = offsets[middle - 1 : middle + 2 : 2]
        # A causal model hides the next word, so that its only neighbour is the one before.
        band = float(offsets[middle] - beside[beside.isfinite()].mean())
        numbers[subject.label] = {
            "words": seen.words,
            "scores": seen.scores,
            "weights": seen.weights,
            "scores_by_offset": offsets,
            "band": band,
            "relative": subject.relative_kind(),
        }
        lines.append([subject.label, str(seen.words), f"{band:+.3f}"])
    header = ["", "words", "score of itself less that of its neighbours"]
    return Made(
        draw_panels(panels),
        numbers,
        [
            "Left: scaled scores before the softmax, as Appendix J has them; right: the weights "
            "after it, darker by their square root. Mean over heads of the first layer and words.",
            SCALES,
            markdown_table(header, lines, left=1),
            "Below 0 the diagonal is a white band: a word looks at itself less than beside it.",
        ],
    )


def families(subjects: Sequence[Subject], sizes: Sizes) -> Made:
    """Figure 10 and Table 7: models that mask, that predict, and that translate."""
    panels, numbers, lines = [], {}, []
    for name, printed in TABLE_7.items():
        lines.append([f"{name} (paper)", "", *(_number(value) for value in printed)])
    for subject, seen in _probes(subjects, sizes, 10):
        reader = seen.reader
        metrics = measure(seen.weights, reader.begins, reader.ends)
        endless = infinite(seen.weights)
        values = [float("inf") if column in endless else metrics[column] for column in COLUMNS]
        panels.append(Panel(subject.label, seen.weights.sqrt()))
        numbers[subject.label] = {
            "model": reader.family,
            "kind": KINDS[reader.family],
            "metrics": metrics,
            "infinite": endless,
            "words": seen.words,
            "weights": seen.weights,
        }
        lines.append([f"**{subject.label}**", KINDS[reader.family], *map(_number, values)])
    header = ["model", "kind", *COLUMNS.values()]
    return Made(
        draw_panels(panels),
        numbers,
        [
            "Weights of the first layer's attention to sentences that repeat a word, darker by "
            "their square root. In a causal model nothing that succeeds is attended to: its "
            "direction balance is infinite (`inf`, as in the paper), and of the two sequences that "
            "monotonicity has for each query, the one that looks ahead is 0 throughout, which "
            "counts as in order.",
            SCALES,
            markdown_table(header, lines, left=2),
        ],
    )


def _probes(subjects: Sequence[Subject], sizes: Sizes, figure: int) -> list[tuple[Subject, Probe]]:
    asked = [(s, s.reader) for s in subjects if s.reader is not None]
    return [
        (
            subject,
            probe_reader(
                reader, words=sizes.words or APPENDIX_J, length=sizes.length, seed=sizes.seed
            ),
        )
        for subject, reader in require(asked, figure, "a checkpoint")
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
