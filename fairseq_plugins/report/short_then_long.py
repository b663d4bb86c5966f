"""Sentences on short samples in the BERT paper's Figure 7."""

from fairseq_plugins.analysis.sentences import summarise
from fairseq_plugins.common.pages import Section
from fairseq_plugins.statistics.comparisons import mean
from fairseq_plugins.statistics.judged import JudgedTable

SHORT = "short_"  # metrics of fine-tuning before the longest samples


def short_sample_sentences(judged: JudgedTable) -> list[Section]:
    """Return the section; [] for tables without such columns or rows."""
    table, sentences = judged.table, []
    for attention in table.attentions:
        for column in table.columns:
            rows = judged.rows(attention, column.metric)
            if not column.metric.startswith(SHORT) or table.reference not in rows:
                continue
            if why := judged.no_row_above_floor(attention, column):
                sentences.append(f"{why[0].upper()}{why[1:]}: these numbers decide nothing.")
                continue
            found = {row: mean(seeds.values()) for row, seeds in rows.items()}
            least = found.pop(table.reference)
            if not found:
                continue
            text = summarise(
                f"{column.label}, is above that of `{table.reference}` ({least:.{column.digits}f})",
                {row: (own > least, f"{own:.{column.digits}f}") for row, own in found.items()},
            )
            once = all(len(seeds) == 1 for seeds in rows.values())
            sentences.append(
                f"{text} With one seed no difference has an interval." if once else text
            )
    return [Section("What is seen", [" ".join(sentences)])] if sentences else []
