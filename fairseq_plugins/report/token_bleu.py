"""Validation BLEU of translation models, as SacreBLEU and of tokens (LRPE, Table 4)."""

from fairseq_plugins.common.pages import Section
from fairseq_plugins.common.tables import DASH, markdown_table
from fairseq_plugins.papers.lrpe import TABLE_4
from fairseq_plugins.statistics.comparisons import gather, mean, rows_of
from fairseq_plugins.statistics.judged import JudgedTable


def valid_bleu_both_ways(judged: JudgedTable) -> list[Section]:
    """Return the section with the rows whose results have both; [] without such results."""
    columns = (TABLE_4.column("valid_bleu"), TABLE_4.column("valid_token_bleu"))
    results = [one for one in judged.results if one["metrics"].get(columns[1].metric) is not None]
    if judged.table.name != TABLE_4.name or not results:
        return []
    cells = gather(results, columns)
    lines = []
    for attention in dict.fromkeys(attention for _, attention in cells):
        sacre, tokens = (rows_of(cells, attention, column.metric) for column in columns)
        for row in sorted(sacre):
            printed = judged.table.row(row).paper.get(attention, {}).get(columns[0].metric)
            lines.append(
                [
                    f"`{row}`",
                    attention,
                    printed.text(columns[0].digits) if printed else DASH,
                    f"{mean(tokens[row].values()):.2f}",
                    f"{mean(sacre[row].values()):.2f}",
                ]
            )
    head = ["Method", "attention", "paper, of tokens", "ours, of tokens", "ours, SacreBLEU"]
    table = markdown_table(head, lines, left=2)
    return [Section("BLEU of the validation set, of tokens and as SacreBLEU", [table])]
