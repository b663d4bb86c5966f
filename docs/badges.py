"""Badges of the README, from pyproject.toml: `python docs/badges.py` writes docs/badges/*.svg."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "badges"
_PYTHON = "Programming Language :: Python :: 3."
_CHARACTER, _MARGIN = 6.6, 7.0  # pixels
_BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{left}: {right}">
<title>{left}: {right}</title>
<clipPath id="round"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#round)">
<rect width="{middle}" height="20" fill="#555"/>
<rect x="{middle}" width="{rest}" height="20" fill="#1769aa"/>
</g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{of_left}" y="14">{left}</text>
<text x="{of_right}" y="14">{right}</text>
</g>
</svg>
"""


def badges() -> dict[str, str]:
    """Return the SVG of each badge by its file's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [f"3.{one.removeprefix(_PYTHON)}" for one in project["classifiers"] if _PYTHON in one]
    texts = {
        "version": project["version"],
        "python": " | ".join(pythons),
        "licence": project["license"],
    }
    return {f"{left}.svg": draw(left, right) for left, right in texts.items()}


def draw(left: str, right: str) -> str:
    """Draw a badge with two texts."""
    middle, rest = (round(_CHARACTER * len(text) + 2 * _MARGIN) for text in (left, right))
    return _BADGE.format(
        left=left,
        right=right,
        width=middle + rest,
        middle=middle,
        rest=rest,
        of_left=middle / 2,
        of_right=middle + rest / 2,
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in badges().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
