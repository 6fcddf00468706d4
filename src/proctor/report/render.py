"""Renders a document as one HTML file, and the figures of a summary as JSON (`proctor report --format json`).

The HTML is self-contained: no script, no external resource, and a content security policy that forbids
both. It follows the reader's light or dark mode, and prints.

The portable report is the same with a compact table of all items as data and one script, whose digest the
policy names: it filters the items, loads nothing, and opens by a double click, also from a mail.
"""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from proctor import formatting
from proctor.document import Chart, Details, Document, Section
from proctor.formatting import printable
from proctor.json_values import JsonMap, JsonObject, camel_document
from proctor.report import as_markdown, run_charts, svg
from proctor.report.as_markdown import PLOTS
from proctor.report.run_charts import limits, places
from proctor.report.svg import COLORS, STYLE, as_file, wrapped
from proctor.results.summary import Summary
from proctor.stats.intervals import Estimate
from proctor.store import StoreReader
from proctor.store.item_lists import outcomes
from proctor.store.items import ItemOutcome
from proctor.store.reader import ItemFilter
from proctor.store.tables import ItemRow

if TYPE_CHECKING:
    from jinja2 import Environment

    from proctor.stats.figures import FactorFigures, Figures, PassAtK

_TEMPLATES = (
    "report.css",
    "benchmark.html.j2",
    "document.html.j2",
)


TONES = {"good": "success", "bad": "fail", "open": "timeout"}
"""The class of a status in the style sheet, by tone."""


def document_html(document: Document) -> str:
    """A document as one HTML file that needs nothing else."""
    return page("document.html.j2", d=document, tones=TONES)


def page(template: str, **values: Any) -> str:
    """Render an HTML page with the style sheet and the digest for its content security policy."""
    style = f"{svg.COLORS}{_template('report.css')}{svg.STYLE}"
    source = _environment(escaped=True).get_template(template)
    return source.render(style=Markup(style), digest=_sha256(style), **values)


@cache
def _environment(*, escaped: bool) -> "Environment":
    # Late: most commands that may write a report write none.
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({name: _template(name) for name in _TEMPLATES}),
        autoescape=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        name: getattr(formatting, name)
        for name in ("whole", "short", "percent", "usd", "seconds", "milliseconds", "moment", "one_line")
    }
    environment.filters["md"] = formatting.in_markdown
    environment.filters["zip"] = zip
    environment.globals |= {
        "plural": formatting.plural,
        "interval": formatting.interval,
        "limits": limits,
        "places": places,
        "usd": formatting.usd,
        "seconds": formatting.seconds,
        "figure": formatting.figure,
        "order": run_charts.ORDER,
    }
    return environment


@cache
def _template(name: str) -> str:
    return files("proctor.report").joinpath("templates", name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_METHODS = {
    "plus": "the plus interval within the scale",
    "Wilson": "Wilson",
    "Student's t": "Student's t",
}


def method_text(methods: Iterable[str], *, prefix: str = "95% CI: ") -> str:
    """The methods of the intervals of a figure, in words."""
    names = [_METHODS.get(method, method) for method in dict.fromkeys(methods) if method]
    return f"{prefix}{' or '.join(names)}" if names else "without intervals, which need more runs"


def sample_text(counts: Sequence[int], unit: str, group: str, *, total: bool = True) -> str:
    """The sizes of the samples of a figure: `n = 12 runs per variation, 24 in all`."""
    low, high = min(counts, default=0), max(counts, default=0)
    number = formatting.plural(high, unit) if low == high else f"{low:,} to {formatting.plural(high, unit)}"
    everything = f", {sum(counts):,} in all" if total and len(counts) > 1 else ""
    return f"n = {number} per {group}{everything}"


FIGURES = "figures"
"""The folder beside a report with its plots for print."""
PageFiles = dict[str, str]
"""Contents of files by name."""


def with_files(document: Document, *, methods: str = "") -> tuple[Document, PageFiles]:
    """A document whose charts have files, numbered in order, and these files by name.

    Each chart is there as a plot for screens and as SVG for print; `captions.md` has the captions.
    """
    files: PageFiles = {}
    captions = list[str]()

    def named(sections: Sequence[Section]) -> list[Section]:
        return [_named(section) for section in sections]

    def _named(section: Section) -> Section:
        if isinstance(section, Details):
            return replace(section, sections=named(section.sections))
        if not isinstance(section, Chart):
            return section
        caption = section.text
        name = f"{len(captions) + 1:02d}-{_slug(section.title)}"
        files[f"{PLOTS}/{name}.svg"] = as_file(section.svg)
        files[f"{FIGURES}/{name}.svg"] = print_svg(section.svg, caption)
        captions.append(f"**{name}**: {formatting.in_markdown(caption, 2000)}\n")
        return replace(section, file=name)

    filed = replace(document, sections=named(document.sections))
    if captions:
        about = [f"## Methods\n\n{formatting.in_markdown(methods, 5000)}\n"] if methods else []
        files[f"{FIGURES}/captions.md"] = "\n".join(["# Captions\n", *captions, *about])
    return filed, files


def report_files(document: Document, *, methods: str) -> PageFiles:
    """The report of an analysis in Markdown and HTML, and the figures beside it."""
    filed, files = with_files(document, methods=methods)
    reports = {"analysis-report.md": as_markdown.render(filed), "analysis-report.html": document_html(filed)}
    return {**reports, **files}


MM_PER_UNIT = 0.25
"""In print: 720 units are 180 mm, the text width of most journals, and labels have 8.5 points."""
CAPTION_SIZE, CAPTION_LINE = 11.0, 14.5
MARGIN = 8.0
"""Around a figure, in units."""


def print_svg(plot: str, caption: str) -> str:
    """A plot as an SVG file in the size it has in print, with its caption below it."""
    head, _, marks = plot.partition(">")
    width, height = _size(head)
    lines = wrapped(caption, width, CAPTION_SIZE)
    whole = height + 10 + CAPTION_LINE * len(lines)
    texts = "".join(
        f'<text x="0" y="{height + 16 + CAPTION_LINE * number:.1f}" class="c-caption">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    box = f"{-MARGIN:g} {-MARGIN:g} {width + 2 * MARGIN:g} {whole + 2 * MARGIN:g}"
    head = re.sub(r'viewBox="[^"]*"', f'viewBox="{box}"', head)
    across, down = ((side + 2 * MARGIN) * MM_PER_UNIT for side in (width, whole))
    marks = marks.removesuffix("</svg>")
    return (
        f'{head} width="{across:.2f}mm" height="{down:.2f}mm"><title>{escape(caption)}</title>'
        f"<style>{_style()}</style>{marks}{texts}</svg>\n"
    )


def _size(head: str) -> tuple[float, float]:
    _, _, width, height = re.search(r'viewBox="([^"]*)"', head)[1].split()  # type: ignore[index]
    return float(width), float(height)


@cache
def _style() -> str:
    """The style sheet of plots in the colors of light mode, without what fits them to a page.

    Colors are written out: programs that convert SVG know no variables.
    """
    light = COLORS.partition("@media")[0]
    colors = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", light))
    style = re.sub(r"\.chart(?:\.c-wide)? \{[^}]*\}", "", STYLE.partition("@media")[0])
    style = re.sub(r"var\((--[\w-]+)\)", lambda match: colors[match[1]], style)
    return (
        f"{style}.chart {{ font-family: Helvetica, Arial, sans-serif; background: #fff; }} "
        f".chart .c-caption {{ font-size: {CAPTION_SIZE:g}px; }}"
    )


def write_pages(target: Path, pages: PageFiles) -> list[Path]:
    """Write a report and its figures into the folder of an analysis; the files."""
    for folder in (PLOTS, FIGURES):
        # Plots of an earlier report would be misleading.
        shutil.rmtree(target / folder, ignore_errors=True)
        (target / folder).mkdir(parents=True)
    for name, content in pages.items():
        (target / name).write_text(content, encoding="utf-8")
    return [target / name for name in pages]


def _slug(caption: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:60].strip("-")


TEXT_CHARACTERS = 2000
"""Kept of each prompt, answer, error and check output."""
ITEMS_PER_QUERY = 500
ITEM_COLUMNS = ("id", "status", "reason", "prompt", "agent", "model", "repeat", "answer", "check", "error")
ITEM_NUMBERS = ("seconds", "tokens", "cost")
_POLICY = re.compile(r'(http-equiv="Content-Security-Policy" content="[^"]*style-src \'sha256-[^\']+\')')


def portable(report: str, read: StoreReader, run_id: str) -> str:
    """A static HTML report of a run, with its items."""
    script = _template("portable.js")
    data = json.dumps(items_table(read, run_id), ensure_ascii=False, separators=(",", ":"))
    # Nothing in the data can end the element that holds it.
    island = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    style = _template("portable.css")
    allowed = f" 'sha256-{_sha256(style)}'; script-src 'sha256-{_sha256(script)}'"
    head, count = _POLICY.subn(rf"\1{allowed}", report, count=1)
    assert count == 1, "a report has a content security policy"
    section = (
        f'<section id="items-section"><h2 id="items">Items</h2><div id="item-explorer"></div></section>\n'
        f'<script type="application/json" id="item-data">{island}</script>\n<script>{script}</script>\n'
    )
    before, main, after = head.rpartition("</main>")
    styled = before.replace("</head>", f"<style>{style}</style>\n</head>", 1)
    return f"{styled}{section}{main}{after}"


def items_table(read: StoreReader, run_id: str) -> JsonObject:
    """All items of a run by column. Texts are numbers of a list: most occur many times."""
    texts: dict[str, int] = {"": 0}
    columns: dict[str, list[object]] = {name: [] for name in (*ITEM_COLUMNS, *ITEM_NUMBERS)}
    factors: dict[str, list[object]] = {}
    scores: dict[str, list[object]] = {}

    def number(text: str) -> int:
        return texts.setdefault(printable(text[:TEXT_CHARACTERS], lines=True), len(texts))

    count = 0
    for row, outcome in _items(read, run_id):
        values = {
            **{name: row[name] for name in ("id", "status", "reason", "prompt", "agent", "model", "error")},
            "answer": outcome.answer,
            "check": outcome.check_output,
            "repeat": str(row["repeat"]),
        }
        for name in ITEM_COLUMNS:
            columns[name].append(number(str(values[name])))
        columns["seconds"].append(_seconds(row))
        columns["tokens"].append(row["tokensTotal"])
        columns["cost"].append(row["costUsd"])
        for name, level in json.loads(row["factors"]).items():
            if name not in ITEM_COLUMNS:
                _padded(factors.setdefault(name, []), count).append(number(str(level)))
        for name, score in outcome.scores.items():
            value = score["value"] if score["value"] is not None else printable(score["label"], lines=True)
            _padded(scores.setdefault(name, []), count).append(value)
        count += 1
    for column in (*factors.values(), *scores.values()):
        _padded(column, count)
    return {
        "run": run_id,
        "count": count,
        "texts": list(texts),
        "columns": columns,
        "factors": factors,
        "scores": scores,
    }


def _padded(column: list[object], length: int) -> list[object]:
    column.extend([None] * (length - len(column)))
    return column


def _items(read: StoreReader, run_id: str) -> Iterator[tuple[ItemRow, ItemOutcome]]:
    offset = 0
    while page := read.items(run_id, ItemFilter(), limit=ITEMS_PER_QUERY, offset=offset):
        sessions = [row["sessionId"] for row in page if row["sessionId"]]
        known = outcomes(read, sessions, characters=TEXT_CHARACTERS)
        for row in page:
            yield row, known.get(row["sessionId"] or "", ItemOutcome())
        offset += len(page)


def _seconds(row: ItemRow) -> float | None:
    if not row["startedAt"] or not row["finishedAt"]:
        return None
    span = datetime.fromisoformat(row["finishedAt"]) - datetime.fromisoformat(row["startedAt"])
    return round(span.total_seconds(), 3)


def figures_document(summary: Summary) -> dict[str, object]:
    """The documented JSON of a report: overall, by factor, ranks, flaky tasks, and reasons of failures."""
    batch, figures = (summary.batches[0] if summary.batches else None), summary.figures
    row: JsonMap = dict(batch.row) if batch else {}
    served = {each.requested: dict(each.answered) for each in figures.served}
    return {
        **{name: row.get(name) for name in ("runId", "job", "status", "createdAt", "finishedAt")},
        "unfinished": figures.unfinished,
        **({"stopWhen": batch.stop_when} if batch and batch.stop_when else {}),
        "mocks": list(figures.stand_ins),
        **({"otherModels": [asdict(each) for each in figures.answered]} if figures.answered else {}),
        **({"choice": camel_document(summary.choice)} if summary.choice else {}),
        **({"servedModels": served} if served else {}),
        **({"agentVersions": list(figures.agent_versions)} if figures.agent_versions else {}),
        "costUsd": summary.cost.known_usd,
        **({"costIsLowerBound": True} if summary.cost.crashes and summary.cost.known_usd else {}),
        "tokensTotal": summary.tokens["total"],
        **level_document(figures.overall),
        "factors": {each.name: factor_document(each) for each in figures.factors},
        "flakyTaskCount": figures.flaky_count,
        "flakyTasks": [
            {"task": task.words, "by": task.group, "successes": task.successes, "runs": task.runs}
            for task in figures.flaky
        ],
        "failureReasons": dict(figures.reasons),
        "paretoFront": list(figures.front),
    }


def factor_document(factor: "FactorFigures") -> dict[str, object]:
    """One factor: its levels by name, and their ranks by success and by pass^k."""
    return {
        "levels": {each.name: level_document(each) for each in factor.levels},
        "tooManyLevels": factor.is_too_many,
        "ranks": camel_document(factor.ranks),
        "ranksByPassHatK": {"k": factor.k, "ranks": camel_document(factor.reliability)},
        "paretoFront": list(factor.front),
        "errorsDecideOrder": factor.errors_decide,
    }


def level_document(level: "Figures") -> dict[str, object]:
    """The figures of one group of items."""
    return {
        "counts": dict(level.counts),
        **({"unchecked": level.unchecked} if level.unchecked else {}),
        "success": estimate_document(level.success),
        "successWithErrors": estimate_document(level.with_errors),
        "passAtK": _of_k(level.pass_at),
        "passHatK": _of_k(level.pass_hat),
        "cost": estimate_document(level.cost_usd),
        "typicalCost": estimate_document(level.typical_cost_usd),
        "seconds": estimate_document(level.seconds),
        "typicalSeconds": estimate_document(level.typical_seconds),
        "costPerSuccess": estimate_document(level.cost_per_success_usd),
        "scores": {name: estimate_document(one) for name, one in level.scores.items()},
        "metrics": {name: estimate_document(one) for name, one in level.metrics.items()},
    }


def estimate_document(estimate: Estimate) -> dict[str, object]:
    """An estimate with its interval, what the interval is about, and what limits it."""
    return {
        "value": estimate.value,
        "sem": estimate.sem,
        "low": estimate.low,
        "high": estimate.high,
        "level": estimate.level,
        "scope": estimate.scope,
        "tasks": estimate.n,
        "runs": estimate.runs,
        "leftOut": estimate.left_out,
        "method": estimate.method,
        "note": estimate.note,
    }


def _of_k(entries: "Sequence[PassAtK]") -> list[dict[str, object]]:
    names = ("value", "sem", "low", "high", "tasks", "leftOut")
    documents = [(entry.k, estimate_document(entry.estimate)) for entry in entries]
    return [{"k": k, **{name: document[name] for name in names}} for k, document in documents]
