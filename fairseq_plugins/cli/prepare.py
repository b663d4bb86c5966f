"""``fairseq-pe prepare <what> [<source>]``: data folders from corpora."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS
from fairseq_plugins.common.parser import Parser

PROGRAM = "fairseq-pe prepare"
# By script of scripts/: what it calls, a module of the package with main(argv) and the words before
# its options; and the data that it makes.
PREPARATIONS = {
    "prepare_toy": ("data.prepare toy", "a generated language in which word order matters"),
    "prepare_toy_mlm": ("data.prepare_mlm toy", "the same in subwords"),
    "prepare_toy_mt": ("translation.prepare toy", "a generated pair of languages"),
    "prepare_toy_glue": ("glue.prepare_generated", "two generated tasks of GLUE's kind"),
    "prepare_toy_squad": ("evaluation.squad_command toy", "generated questions"),
    "prepare_wikitext2": ("data.prepare wikitext2", "WikiText-2, downloaded or --from DIR"),
    "prepare_wikitext103": ("data.prepare wikitext103", "WikiText-103, downloaded or --from DIR"),
    "prepare_text_mlm": ("data.prepare_mlm text", "any text --from DIR, for all language models"),
    "prepare_wikitext103_mlm": ("data.prepare_mlm wikitext103", "WikiText-103 in GPT-2's subwords"),
    "prepare_gpt2_bpe": ("data.prepare_mlm gpt2_bpe", "GPT-2's BPE"),
    "prepare_parallel": ("translation.prepare files", "any pair of text files --from DIR"),
    "prepare_wmt14_en_de": ("translation.prepare wmt14", "WMT14, downloaded or --from DIR"),
    "prepare_glue": ("glue.prepare", "GLUE, downloaded or --from DIR"),
    "prepare_squad": ("evaluation.squad_command prepare", "SQuAD, downloaded or --from DIR"),
    "prepare_start": ("cli.prepare_start", "a published model, installed or --from DIR"),
}
# One folder serves language models and masked ones.
SAME: dict[tuple[str, ...], tuple[str, ...]] = {
    ("lm", "text"): ("mlm", "text"),
    ("toy", "lm"): ("toy",),
}


def find(words: Sequence[str]) -> tuple[str, int] | None:
    """Find the longest known command that words begin with, and the number of its words."""
    known = {tuple(typed.split()[1:]): script for script, typed in PROGRAM_COMMANDS.items()}
    for count in (2, 1):
        head = tuple(words[:count])
        if (script := known.get(SAME.get(head, head))) and len(head) == count:
            return script, count
    return None


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of `prepare`, whose subcommands have their own options."""
    lines = [
        f"  {' '.join(typed.split()[1:]):<18} {PREPARATIONS[script][1]}"
        for script, typed in PROGRAM_COMMANDS.items()
    ]
    about = "Prepare a data folder, by default below data/, or a published model:"
    parser = Parser(
        prog=PROGRAM,
        description="\n".join([about, "", *lines]),
        epilog=f"`{PROGRAM} lm wikitext2 --help` shows the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    firsts = dict.fromkeys(typed.split()[1] for typed in [*PROGRAM_COMMANDS.values(), "prepare lm"])
    parser.add_argument("what", choices=[*firsts])
    parser.add_argument(
        "source", nargs="?", metavar="source", help="corpus, for kinds with several (see above)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the data that the first words name; return the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    found = find(given)
    if found is None:
        parser = get_parser()
        args, _ = parser.parse_known_args(given[:2])
        sources = ", ".join(
            " ".join(typed.split()[1:])
            for typed in PROGRAM_COMMANDS.values()
            if typed.split()[1] == args.what or (args.what, *typed.split()[2:]) in SAME
        )
        parser.error(f"which {args.what}? There is: {sources}")
    script, count = found
    module, *words = PREPARATIONS[script][0].split()
    return int(import_module(f"fairseq_plugins.{module}").main([*words, *given[count:]]))
