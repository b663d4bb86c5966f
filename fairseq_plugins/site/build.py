"""The builder of the site: pages from templates, and static files."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from fairseq_plugins.common.files import read_bytes, write_bytes, write_text
from fairseq_plugins.common.parallel import map_in_processes
from fairseq_plugins.common.provenance import commit as commit_of
from fairseq_plugins.encodings import ENCODINGS
from fairseq_plugins.papers.bert_correlations import PROPERTIES, TABLES
from fairseq_plugins.report.baselines import baselines_section
from fairseq_plugins.report.captions import caption
from fairseq_plugins.report.claims_page import LARGEST, LEGEND, by_chance
from fairseq_plugins.report.correlations import Correlations
from fairseq_plugins.report.render import comparisons
from fairseq_plugins.site import charts, markdown
from fairseq_plugins.site.claims import claim_views
from fairseq_plugins.site.compare import compare_data
from fairseq_plugins.site.encodings import encoding_page, encoding_views, look
from fairseq_plugins.site.figures import FigureView, figure_views, ranking, results_of
from fairseq_plugins.site.runs import KINDS, CellView, by_training, script, table_cells, typed
from fairseq_plugins.site.speed import machines, table9, timing_command
from fairseq_plugins.site.tables import baseline_texts, side_by_side, site_lines
from fairseq_plugins.statistics.table_results import Evidence, TableResults
from fairseq_plugins.statistics.verdicts import Word

STATIC = Path(__file__).parent / "static"
DOCS = "../docs/docs/encodings.html"  # of `make docs`, from the site that `make report` makes
MARKER = "made-by-fairseq-plugins"  # marks a folder that may be overwritten


SECTIONS = {  # pages and titles of the navigation
    "index.html": "Claims",
    "tables.html": "Tables",
    "compare.html": "Compare",
    "encodings.html": "Encodings",
    "figures.html": "Figures",
    "speed.html": "Speed",
}


def environment() -> Environment:
    """Make the template environment, with escaping of all values not marked safe."""
    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    found.filters.update(markdown=markdown.to_html, inline=markdown.inline, broken=_broken)
    found.filters.update(by_training=by_training)
    return found


def _broken(name: str) -> Markup:
    """Let a long name break after its underscores, but not within a word."""
    return escape(name).replace("_", Markup("_<wbr>"))


class Site:
    """The site's folder while its pages are written."""

    def __init__(self, evidence: Evidence, folder: Path) -> None:
        self.evidence, self.folder = evidence, folder
        self.lines = {one.page: site_lines(one) for one in evidence.tables}
        self.templates = environment()
        self.templates.globals.update(
            sections=SECTIONS,
            encodings=frozenset(ENCODINGS),
            encoding_page=encoding_page,
            commit=commit_of(evidence.root),
            timing_command=timing_command,
            docs_page=DOCS if (folder / DOCS).is_file() else "",
            typed=typed,
            lines=self.lines,
        )
        self.pages: list[str] = []
        self.figures: Sequence[FigureView] = figure_views(evidence)
        self.runs = {one.page: table_cells(one) for one in evidence.tables if one.shown}

    def write(self, page: str, template: str, **values: Any) -> None:
        text = self.templates.get_template(template).render(page=page, **values)
        write_text(self.folder / page, text)
        self.pages.append(page)


def build(
    evidence: Evidence,
    folder: Path,
    say: Callable[[str], None] = print,
    pictures: Sequence[str] | None = None,
) -> list[str]:
    """Build the site in a folder, in place of an earlier one; return the names of its pages.

    pictures: encodings with pictures; None for all.

    Raises:
        ValueError: the folder holds something else.
    """
    check_output(folder)
    if folder.exists():
        shutil.rmtree(folder)
    write_text(folder / MARKER, "")
    site = Site(evidence, folder)
    for part in (_claims, _tables, _compare, _figures, _speed):
        part(site)
    _encodings(site, sorted(ENCODINGS) if pictures is None else pictures)
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            target = folder / "static" / path.relative_to(STATIC)
            is_packed = path.suffix == ".gz"
            write_bytes(target.with_suffix("") if is_packed else target, read_bytes(path))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{len(site.pages)} pages, {size / 1e6:.1f} MB: {folder / 'index.html'}")
    return site.pages


def check_output(folder: Path) -> None:
    """Raise ValueError unless the folder is new, empty or an earlier site."""
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not (folder / MARKER).is_file():
        raise ValueError(f"--output must be a new folder or a report, but {folder} is neither")


def _claims(site: Site) -> None:
    views = claim_views(site.evidence)
    shown = Counter(view.best.verdict.word for view in views)
    site.write(
        "index.html",
        "claims.html",
        views=views,
        counts={word: shown[word] for word in Word},
        legend=[by_chance(view.best.verdict for view in views), LARGEST, *LEGEND],
        scales=list(dict.fromkeys(one.scale for view in views for one in view.shown)),
        left_out=[(one, text) for one in site.evidence.tables for text in one.left_out],
        lost=site.evidence.left_out,
    )
    for view in views:
        site.write(view.page, "claim.html", view=view)


def _tables(site: Site) -> None:
    further = _correlations(site.evidence)
    site.write("tables.html", "tables.html", tables=site.evidence.tables, further=further)
    for view, tables in further:
        words = {"view": view, "tables": tables, "properties": PROPERTIES}
        site.write(view.page, "correlations.html", **words)
    for one in site.evidence.tables:
        lines = site.lines[one.page]
        rows = list(dict.fromkeys(row for row, _ in one.runs))
        attentions = list(dict.fromkeys(attention for _, attention in one.runs))
        runs = site.runs.get(one.page)
        site.write(
            one.page,
            "table.html",
            found=one,
            own=lines,
            attentions=list(dict.fromkeys(line.attention for line in lines)),
            kinds=sorted({line.kind for line in lines}),
            rows=side_by_side(one, lines),
            baselines=baseline_texts(one),
            about=caption(
                one.table,
                one.recipe_scale,
                one.shown,
                is_study=one.study is not None,
                missing_rows=one.missing_rows,
            ),
            comparisons=comparisons(one.judged),
            baseline_sections=baselines_section(one.judged),
            ranking=ranking(one),
            shared=runs,
            script=script(one, rows, attentions, sorted({run["seed"] for run in one.shown}))
            if one.shown
            else "",
        )
        for cell in runs.cells if runs else ():
            _cell(site, one, cell)


def _correlations(evidence: Evidence) -> list[tuple[Correlations, list[TableResults]]]:
    """Return Table 5 of the BERT paper at every scale with enough rows, each with its tables."""
    every = [Correlations(scale, numbers) for scale, numbers in evidence.numbers.items()]
    return [
        (one, [found for table in TABLES if (found := evidence.find(table.name, one.scale))])
        for one in every
        if any(found.estimate for found in one.ours.values())
    ]


def _cell(site: Site, found: TableResults, cell: CellView) -> None:
    curves = {
        f"seed {run.seed}, {name}": points
        for run in cell.runs
        for name, points in run.curves.items()
    }
    of_validation = [name for name in curves if name.endswith(KINDS["valid"])]
    chart = charts.lines(curves, x="updates", y="loss", shown=of_validation) if curves else None
    site.write(cell.page, "cell.html", found=found, cell=cell, chart=chart)


def _compare(site: Site) -> None:
    data = htmlsafe_json_dumps(compare_data(site.evidence, site.runs), separators=(",", ":"))
    write_text(site.folder / "static" / "compare-data.js", f"window.compareData = {data};\n")
    encodings = sorted({row for one in site.evidence.tables for row, _ in one.runs})
    site.write("compare.html", "compare.html", encodings=encodings)


def _encodings(site: Site, names: Sequence[str]) -> None:
    looks = dict(zip(names, map_in_processes(look, names), strict=True))
    views = encoding_views(site.evidence, site.lines, looks)
    kinds = sorted({view.kind for view in views})
    site.write("encodings.html", "encodings.html", views=views, kinds=kinds)
    for view in views:
        site.write(view.page, "encoding.html", view=view)


def _figures(site: Site) -> None:
    site.write("figures.html", "figures.html", views=site.figures, same=same_charts(site.figures))
    for path in dict.fromkeys(path for view in site.figures for path in view.pictures):
        write_bytes(site.folder / "drawn" / path, read_bytes(results_of(site.evidence.root) / path))


def same_charts(views: Sequence[FigureView]) -> dict[str, str]:
    """Map the name of each chart that repeats an earlier one to the earlier one's name."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for view in views:
        for number, (_, content) in enumerate(view.panels, start=1):
            name = f"{view.name}-{number}"
            known = first.setdefault(json.dumps(content), name)
            if known != name:
                same[name] = known
    return same


def _speed(site: Site) -> None:
    site.write(
        "speed.html",
        "speed.html",
        machines=machines(site.evidence),
        table9=table9(site.evidence),
        lost=site.evidence.left_out,
    )
