"""MkDocs: below its heading on docs/encodings.md, a picture of what each encoding does.

The repository has some in docs/pictures; the others are drawn for the site, in half a minute. The
environment variable SITE_PICTURES names a folder to keep them in: what is there is not drawn again.
`python docs/site_pictures.py FOLDER` draws them.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path("docs", "pictures")


def on_files(files: Files, config: Any) -> Files:
    """Add what is drawn, by a process of its own, since imports of encodings silence logging."""
    kept = os.environ.get("SITE_PICTURES")
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, folder],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
        for path in sorted(Path(folder).iterdir()):
            name = (PICTURES / path.name).as_posix()
            files.append(File.generated(config, name, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Show each picture where its encoding is defined, once a reader comes there.

    Beside it a link to the encoding's page on the site of results, where that is made already.
    """
    if page.file.src_uri != "docs/encodings.md":
        return markdown
    report = Path(config["site_dir"]).parent / "report"

    def shown(heading: re.Match[str]) -> str:
        name = heading[1]
        picture = f"![What {name} does](pictures/{name}.png){{loading=lazy}}"
        path = f"encoding-{name}.html"
        link = f'<a href="../../report/{path}">Its numbers and charts</a>'
        return "\n\n".join([heading[0], picture, *([link] if (report / path).is_file() else [])])

    return re.sub(r"^### `(\w+)`$", shown, markdown, flags=re.MULTILINE)


def draw_missing(folder: Path) -> None:
    """Draw each encoding without a picture in the repository or the folder, as <name>.png there.

    No SVG, which would take as long again.
    """
    import torch

    from fairseq_plugins.analysis import picture, picture_files
    from fairseq_plugins.encodings import ENCODINGS

    torch.set_num_threads(1)
    for name in sorted(ENCODINGS):
        if not any((place / f"{name}.png").is_file() for place in (ROOT / PICTURES, folder)):
            seen = picture.observe(name, picture.build(name), length=picture.LENGTH)
            drawn = picture_files.draw(seen)
            drawn.savefig(folder / f"{name}.png", dpi=picture_files.DPI)


if __name__ == "__main__":
    draw_missing(Path(sys.argv[1]))
