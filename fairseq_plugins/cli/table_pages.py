"""`fairseq-pe table pages` and `claims`: commands on the existing results."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import add_folder_options, apply_folder_options, root_folder
from fairseq_plugins.papers import SCALE_NAMES

CLAIMS = "claims"  # of the papers, compared with the results of all tables
PAGES = "pages"  # of all tables, and of the claims
DESCRIPTIONS = {
    CLAIMS: "Compares the papers' claims with the results of all tables, and writes claims.md and "
    "claims.json beside them. Trains nothing.",
    PAGES: "Writes the page and the figures of every table, scale and study with results, the BERT "
    "paper's Table 5, and the claims; use it after copying results from another machine, or after "
    "an update. Trains nothing.",
}


def run(word: str, arguments: Sequence[str], root: Path) -> int:
    """Run one of these commands; return the exit status."""
    parser = Parser(prog=f"fairseq-pe table {word}", description=DESCRIPTIONS[word])
    add_folder_options(parser, ["results"])
    apply_folder_options(parser.parse_args(arguments))
    results = root_folder("results")
    if not (root / results).is_dir():
        parser.error(f"`--results` must be a folder with results, but {results} is none.")
    if word == CLAIMS:
        _write_claims(root, lambda text: _warn(f"Left out: {text}"))
    else:
        _write_pages(root)
    return 0


def _warn(text: str) -> None:
    print(text, file=sys.stderr)


def _write_pages(root: Path) -> None:
    from fairseq_plugins.report.page import write_correlations_page, write_table_pages

    for page in write_table_pages(root, _warn):
        print(page)
    for scale in SCALE_NAMES:
        if correlations := write_correlations_page(root, scale):
            print(correlations)
    _write_claims(root, lambda _: None)  # the tables have printed what is left out


def _write_claims(root: Path, say: Callable[[str], None]) -> None:
    from fairseq_plugins.report.claims_page import PAGE, write_claims

    for scale, words in write_claims(root, say).items():
        print(f"{scale}: {', '.join(f'{count} {word}' for word, count in sorted(words.items()))}")
    print(f"All of them: {root_folder('results') / PAGE}.md")
