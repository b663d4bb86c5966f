"""What the documents show to be typed, and their site, as `make docs` builds it.

A block that begins with `# needs ...` takes what it names, and words in capitals are the reader's
to fill in; all other commands run as they stand in a clone.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
_NEEDS = "# needs "


@dataclass(frozen=True)
class Command:
    """Its words; what its block needs; and, of a transcript, the lines that it prints."""

    page: str
    words: tuple[str, ...]
    needs: str
    printed: tuple[str, ...] = ()

    @property
    def is_to_be_filled_in(self) -> bool:
        """Whether it has a word in capitals, or leaves some out."""
        return any(re.search(r"(^|=)[A-Z]{2,}$|^\.\.\.$", word) for word in self.words)

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def commands(page: str) -> Iterator[Command]:
    """Those in a page's blocks of shell and, behind `$`, in its transcripts."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = block.partition("\n")[0]
        needs = first.removeprefix(_NEEDS) if first.startswith(_NEEDS) else ""
        if kind == "sh":
            yield from _typed(page, block, needs)
        elif not kind:
            for typed, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                yield Command(page, tuple(shlex.split(typed)), needs, tuple(shown.splitlines()))


def _typed(page: str, block: str, needs: str) -> Iterator[Command]:
    for line in block.replace("\\\n", " ").replace("$version", "2.0").splitlines():
        for part in line.split(" && "):
            if words := shlex.split(part, comments=True):
                yield Command(page, tuple(words), needs)


def in_python(words: tuple[str, ...]) -> tuple[str, list[str]]:
    """The module that a command runs, and the words behind it."""
    program, *rest = words
    if program == "fairseq-pe":
        return "fairseq_plugins", rest
    if program == "scripts/convert_roberta.py":
        return "fairseq_plugins", ["convert", *rest]
    if program.startswith("scripts/"):
        text = (ROOT / program).read_text()
        (line,) = re.findall(r'exec "\$PYTHON" -m (.*) "\$@"', text)
        module, *first = line.split()
        return module, [*first, *rest]
    assert (program, rest[0]) == ("python", "-m"), f"a test must know {program}"
    return rest[1], rest[2:]


def build_documentation(folder: Path, pictures: Path | None = None) -> str:
    """Build the site, strictly; what was printed.

    pictures: a folder with pictures of encodings, where those that are missing are drawn; without
    one all of them are drawn, in half a minute.
    """
    kept = {"SITE_PICTURES": str(pictures)} if pictures else {}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
