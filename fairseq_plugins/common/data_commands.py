"""Commands that make each folder below data/, shown where one is missing."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.root import IS_CHECKOUT

# Subcommands of `fairseq-pe` that replace scripts in an installed package.
PROGRAM_COMMANDS = {
    "prepare_toy": "prepare toy",
    "prepare_toy_mlm": "prepare toy mlm",
    "prepare_toy_mt": "prepare toy mt",
    "prepare_toy_glue": "prepare toy glue",
    "prepare_toy_squad": "prepare toy squad",
    "prepare_wikitext2": "prepare lm wikitext2",
    "prepare_wikitext103": "prepare lm wikitext103",
    "prepare_text_mlm": "prepare mlm text",
    "prepare_wikitext103_mlm": "prepare mlm wikitext103",
    "prepare_gpt2_bpe": "prepare mlm pieces",
    "prepare_parallel": "prepare mt files",
    "prepare_wmt14_en_de": "prepare mt wmt14",
    "prepare_glue": "prepare glue",
    "prepare_squad": "prepare squad",
    "prepare_start": "prepare start",
}


def typed_command(command: str) -> str:
    """Return a command of scripts/ as typed here: with `fairseq-pe` if there is no checkout."""
    script, *rest = command.split(" ", 1)
    if IS_CHECKOUT or not script.startswith("scripts/"):
        return command
    name = Path(script).stem
    return " ".join(["fairseq-pe", PROGRAM_COMMANDS.get(name, f"table {name}"), *rest])


# Examples of each GLUE task at scale mini.
MINI_EXAMPLES = 640
MINI_DEVELOPMENT_EXAMPLES = 500
# Most examples of LRPE's tables at scales mini and small, and those held out for model selection.
MID_EXAMPLES = 8_000
SMALL_EXAMPLES = 20_000
HELD_OUT = 300


def _short_squad(novels: str) -> str:
    """Return the command for SQuAD in windows of 128 with the tokenizer of a folder of novels."""
    return (
        f"scripts/prepare_squad.sh --from DIR --bpe data/{novels}/bpe "
        "--max-length 128 --stride 64 --max-query-length 40"
    )


# Most examples of each GLUE task with the tokenizer of the published start.
PUBLISHED_EXAMPLES = 4_500
_START = "--tokenizer checkpoints/start"

_SQUAD = {
    "toy-squad-v{}": "scripts/prepare_toy_squad.sh",
    "squad-v{}-mini": _short_squad("novels-mini"),
    "squad-v{}-start": (
        f"scripts/prepare_squad.sh --from DIR {_START} "
        "--max-length 256 --stride 128 --max-query-length 40"
    ),
    "squad-v{}-small": _short_squad("novels-small"),
    "squad-v{}": "scripts/prepare_squad.sh --bpe data/gpt2_bpe",
}
_BY_FOLDER: dict[str, tuple[str, ...]] = {
    "toy": ("scripts/prepare_toy.sh",),
    "wikitext-2-mini": ("scripts/prepare_wikitext2.sh",),
    "wikitext-103": ("scripts/prepare_wikitext103.sh",),
    "toy-mlm": ("scripts/prepare_toy_mlm.sh",),
    "novels-mini": (
        "scripts/prepare_text_mlm.sh --from DIR --merges 300 --evaluation-lines 200 "
        "--output data/novels-mini",
    ),
    "novels-1000": (
        "scripts/prepare_text_mlm.sh --from DIR --merges 1000 --evaluation-lines 200 "
        "--output data/novels-1000",
    ),
    # For causal and masked language models.
    "novels-small": (
        "scripts/prepare_text_mlm.sh --from DIR --merges 8000 --evaluation-lines 2000 "
        "--output data/novels-small",
    ),
    "wikitext-103-mlm": ("scripts/prepare_gpt2_bpe.sh", "scripts/prepare_wikitext103_mlm.sh"),
    "toy-mt": ("scripts/prepare_toy_mt.sh",),
    "multi30k-en-de": (
        "scripts/prepare_parallel.sh --from DIR --src en --tgt de "
        "--test-prefix test_2016_flickr --output data/multi30k-en-de",
    ),
    "mid-en-de": (
        "scripts/prepare_parallel.sh --from DIR --src en --tgt de --merges 8000 "
        "--output data/mid-en-de",
    ),
    "wmt14-en-de": ("scripts/prepare_wmt14_en_de.sh",),
    "toy-glue": ("scripts/prepare_toy_glue.sh",),
    "glue-mini": (
        "scripts/prepare_glue.sh --from DIR --bpe data/novels-mini/bpe "
        f"--max-train {MINI_EXAMPLES} --max-valid {MINI_DEVELOPMENT_EXAMPLES} "
        "--output data/glue-mini",
    ),
    "glue-1000": (
        "scripts/prepare_glue.sh --from DIR --bpe data/novels-1000/bpe "
        f"--max-train {MID_EXAMPLES} --held-out {HELD_OUT} --output data/glue-1000",
    ),
    "novels-start": (
        "scripts/prepare_start.sh",
        f"scripts/prepare_text_mlm.sh --from DIR {_START} --evaluation-lines 300 "
        "--output data/novels-start",
    ),
    "glue-start": (
        f"scripts/prepare_glue.sh --from DIR {_START} --disjoint "
        "--tasks SST-2,MRPC,STS-B,QQP,MNLI,QNLI,RTE,WNLI "
        f"--max-train {PUBLISHED_EXAMPLES} --output data/glue-start",
        # All of CoLA: its sentences are short, and labels depend on word order.
        f"scripts/prepare_glue.sh --from DIR {_START} --tasks CoLA --output data/glue-start",
    ),
    "glue-small": (
        "scripts/prepare_glue.sh --from DIR --bpe data/novels-small/bpe "
        f"--max-train {SMALL_EXAMPLES} --held-out {HELD_OUT} --output data/glue-small",
    ),
    "glue": ("scripts/prepare_glue.sh --bpe data/gpt2_bpe",),
    **{
        folder.format(version): (
            f"{command} --version {version} --output data/{folder.format(version)}",
        )
        for folder, command in _SQUAD.items()
        for version in ("1.1", "2.0")
    },
}
COMMANDS = {folder: tuple(map(typed_command, commands)) for folder, commands in _BY_FOLDER.items()}


def commands_for(path: str | Path) -> Sequence[str]:
    """Return the commands that make the data folder of a file or name; empty if unknown."""
    parts = Path(path).parts
    names = (name for above, name in itertools.pairwise(parts) if above == "data")
    return next((COMMANDS[name] for name in names if name in COMMANDS), ())
