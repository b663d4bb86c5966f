"""`fairseq-pe table pages`, `claims` and `recipes`: commands on the existing results."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import add_folder_options, apply_folder_options, root_folder
from fairseq_plugins.papers import SCALE_NAMES

CLAIMS = "claims"  # of the papers, compared with the results of all tables
PAGES = "pages"  # of all tables, and of the claims
RECIPES = "recipes"  # of results, each stored once
DESCRIPTIONS = {
    CLAIMS: "Compares the papers' claims with the results of all tables, and writes claims.md and "
    "claims.json beside them. Trains nothing.",
    PAGES: "Writes the page and the figures of every table, scale and study with results, the BERT "
    "paper's Table 5, and the claims; use it after copying results from another machine, or after "
    "an update. Trains nothing.",
    RECIPES: "Writes results of earlier versions again, each recipe once in a folder `recipes` "
    "beside them in place of a copy in every file. Numbers and provenance stay as they are. Older "
    "files are read without this too; it can be run again at any time. Trains nothing.",
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
    elif word == PAGES:
        _write_pages(root)
    else:
        _store_recipes(root / results)
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


def _store_recipes(results: Path) -> None:
    from fairseq_plugins.records.recipe_files import fault_of, store_recipes

    written, saved = 0, 0
    for path in sorted(results.rglob("*-s*.json")):
        try:
            if fault := fault_of(path):
                raise ValueError(fault)
            before = path.stat().st_size
            if store_recipes(path):
                written, saved = written + 1, saved + before - path.stat().st_size
        except (OSError, ValueError) as error:
            _warn(f"Left as it is: {path} ({error})")
    print(f"{written} results written again, {saved:,} bytes smaller without their recipes")


def _write_claims(root: Path, say: Callable[[str], None]) -> None:
    from fairseq_plugins.report.claims_page import PAGE, write_claims

    for scale, words in write_claims(root, say).items():
        print(f"{scale}: {', '.join(f'{count} {word}' for word, count in sorted(words.items()))}")
    print(f"All of them: {root_folder('results') / PAGE}.md")
