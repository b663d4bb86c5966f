"""``fairseq-pe prepare <what> [<source>]``: data folders from corpora."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS
from fairseq_plugins.common.parser import Parser

PROGRAM = "fairseq-pe prepare"
# What a script of scripts/ calls: the module with main(argv), and the words before its options.
PREPARATIONS = {
    "prepare_toy": ("fairseq_plugins.data.prepare", "toy"),
    "prepare_toy_mlm": ("fairseq_plugins.data.prepare_mlm", "toy"),
    "prepare_toy_mt": ("fairseq_plugins.translation.prepare", "toy"),
    "prepare_toy_glue": ("fairseq_plugins.glue.prepare_generated",),
    "prepare_toy_squad": ("fairseq_plugins.evaluation.squad_command", "toy"),
    "prepare_wikitext2": ("fairseq_plugins.data.prepare", "wikitext2"),
    "prepare_wikitext103": ("fairseq_plugins.data.prepare", "wikitext103"),
    "prepare_text_mlm": ("fairseq_plugins.data.prepare_mlm", "text"),
    "prepare_wikitext103_mlm": ("fairseq_plugins.data.prepare_mlm", "wikitext103"),
    "prepare_gpt2_bpe": ("fairseq_plugins.data.prepare_mlm", "gpt2_bpe"),
    "prepare_parallel": ("fairseq_plugins.translation.prepare", "files"),
    "prepare_wmt14_en_de": ("fairseq_plugins.translation.prepare", "wmt14"),
    "prepare_glue": ("fairseq_plugins.glue.prepare",),
    "prepare_squad": ("fairseq_plugins.evaluation.squad_command", "prepare"),
    "prepare_start": ("fairseq_plugins.cli.prepare_start",),
}
ABOUT = {
    "prepare_toy": "a generated language in which order matters; all is in here",
    "prepare_toy_mlm": "the same in pieces",
    "prepare_toy_mt": "a generated pair of languages",
    "prepare_toy_glue": "two generated tasks of GLUE's kind",
    "prepare_toy_squad": "generated questions",
    "prepare_wikitext2": "WikiText-2, downloaded or --from DIR",
    "prepare_wikitext103": "WikiText-103, downloaded or --from DIR",
    "prepare_text_mlm": "any plain text --from DIR, of language models and masked ones alike",
    "prepare_wikitext103_mlm": "WikiText-103 in GPT-2's pieces",
    "prepare_gpt2_bpe": "GPT-2's pieces",
    "prepare_parallel": "any pair of text files --from DIR",
    "prepare_wmt14_en_de": "WMT14 English-German, downloaded or --from DIR",
    "prepare_glue": "GLUE, downloaded or --from DIR",
    "prepare_squad": "SQuAD, downloaded or --from DIR",
    "prepare_start": "a published model to start from, installed or --from DIR",
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
        f"  {' '.join(typed.split()[1:]):<18} {ABOUT[script]}"
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
    module, *words = PREPARATIONS[script]
    return int(import_module(module).main([*words, *given[count:]]))
