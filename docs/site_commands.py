"""MkDocs: the help of every command on docs/commands.md, as the parsers print it.

`python docs/site_commands.py` prints that part of the page.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = "<!-- commands -->"
WIDTH = 100  # columns
# Tables have nearly the same options: this one's are shown in full, of the others what differs.
FIRST_TABLE = ("table", "table2")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the commands, made by a process of their own, since some of them silence logging."""
    if page.file.src_uri != "docs/commands.md":
        return markdown
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)},
        capture_output=True,
        text=True,
        check=True,
    )
    return markdown.replace(PLACE, done.stdout)


def every_command() -> list[tuple[str, ...]]:
    """The words of each command and of each that is within one, in the order of the page."""
    from fairseq_plugins.__main__ import COMMANDS
    from fairseq_plugins.cli.analyse import get_parser
    from fairseq_plugins.cli.table_options import SCRIPTS
    from fairseq_plugins.cli.train_table import CLAIMS, PAPER
    from fairseq_plugins.common.data_commands import PROGRAM_COMMANDS

    (choices,) = (action.choices for action in get_parser()._actions if action.dest == "command")
    within = {
        "prepare": [tuple(typed.split()) for typed in PROGRAM_COMMANDS.values()],
        "table": [("table", name) for name in (*SCRIPTS, CLAIMS, PAPER)],
        "analyse": [("analyse", name) for name in choices or ()],
    }
    return [(), *(words for name in COMMANDS for words in ((name,), *within.get(name, ())))]


def help_of(words: tuple[str, ...]) -> str:
    """What the command prints for --help."""
    from fairseq_plugins.__main__ import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


def section(words: tuple[str, ...], shown: str, first_table: str) -> str:
    """A heading with the help below it; of tables like the first one only what that has not."""
    title = f"{'###' if len(words) > 1 else '##'} `{' '.join(['fairseq-pe', *words])}`"
    known = options(first_table)
    own = [option for option in options(shown) if option not in known]
    shared = len(options(shown)) - len(own)
    if words == FIRST_TABLE or shared < len(known) / 2:
        return f"{title}\n\n```text\n{shown}```"
    about = " ".join(shown.split("\n\n")[1].split())
    about = re.sub(r"(results/\S+)(?=[,.])", r"`\1`", about)
    differs = ", but for:\n\n```text\n" + "\n".join(own) + "\n```" if own else "."
    return f"{title}\n\n{about}\n\nOptions as of `{' '.join(FIRST_TABLE)}`{differs}"


def options(shown: str) -> list[str]:
    """The paragraph of each option in a help."""
    return [one.rstrip() for one in re.findall(r"^  -.*\n(?: {6,}.*\n)*", shown, re.MULTILINE)]


if __name__ == "__main__":
    first = help_of(FIRST_TABLE)
    print("\n\n".join(section(words, help_of(words), first) for words in every_command()))
