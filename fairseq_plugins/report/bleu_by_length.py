"""The figure of BLEU by source length."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure as Picture

from fairseq_plugins.common.files import write_json
from fairseq_plugins.common.pictures import save_picture
from fairseq_plugins.papers.extrapolation import BUCKETS
from fairseq_plugins.papers.tables import Figure, Table
from fairseq_plugins.records.results import Result
from fairseq_plugins.report.figure import stem, summary
from fairseq_plugins.report.row_panels import add_legend, draw_rows, labels_of, make_panels, styles
from fairseq_plugins.statistics.comparisons import gather
from fairseq_plugins.statistics.series import Lines, bucket_lines


def draw_bleu_by_length(
    folder: Path, table: Table, figure: Figure, scale: str, results: Sequence[Result]
) -> None:
    """Draw a panel for each attention as PNG and SVG, and write a JSON of the numbers."""
    base = stem(folder, table, figure, scale)
    sentences = results[0]["metrics"]["sentences"]
    numbers = {
        "what": "BLEU of all sentences and by the words of the source, by row and attention: "
        "mean, standard deviation and number of seeds; sentences: how many there are",
        "sentences": sentences,
        "rows": {
            f"{row}-{attention}": {
                column.label: summary(cell[column.metric])
                for column in table.columns
                if column.metric in cell
            }
            for (row, attention), cell in sorted(gather(results, table.columns).items())
        },
    }
    write_json(base.with_suffix(".json"), numbers)
    picture = bleu_picture(table, bucket_lines(results), sentences)
    picture.suptitle(f"{table.source}, scale {scale}")
    save_picture(picture, base)


def bleu_picture(table: Table, lines: Lines, sentences: Mapping[str, int]) -> Picture:
    """Draw means over seeds by bucket, without empty buckets and attentions."""
    labels = labels_of(table, lines, [*table.attentions, *table.extra_attentions])
    picture, (panels, legends) = make_panels(labels, 1, sharey="row")
    drawn = styles({row for row, _ in lines})
    shown = sorted({x for line in lines.values() for x, _ in line})
    ticks = [f"{name}\n{sentences[name]} sentences" for name in (BUCKETS[int(x)] for x in shown)]
    for panel, legend, attention in zip(panels, legends, labels, strict=True):
        draw_rows(panel, table, lines, attention, drawn)
        panel.set_title(f"{attention} attention")
        panel.set_xticks(shown, ticks)
        panel.set_xlabel("words of the source, as tokenised")
        panel.grid(alpha=0.3)
        add_legend(legend, panel)
    panels[0].set_ylabel("BLEU")
    return picture
