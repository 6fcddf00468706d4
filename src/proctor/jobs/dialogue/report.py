"""The analysis of a simulation as text, Markdown and HTML, and its figures on the page of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from proctor.document import (
    Chart,
    Details,
    Document,
    Figure,
    FigureList,
    Section,
    Sentence,
    numeric,
    prose,
    table,
)
from proctor.formatting import UNKNOWN, chance, figure, limits_text, percent, plural
from proctor.item import FINISHED
from proctor.jobs.dialogue.results import (
    DESIGN,
    measure_rows,
    measures,
    plain_cell,
    results_of,
    score_scales,
)
from proctor.json_values import JsonMap
from proctor.metric import measure_title
from proctor.report import as_markdown
from proctor.report.charts import Bar, bars
from proctor.report.panels import HeatCell, TableRow, dot_table, heat_map
from proctor.report.render import (
    PageFiles,
    document_html,
    method_text,
    report_files,
    sample_text,
)
from proctor.stats.crossing import cells_of
from proctor.store import StoreReader
from proctor.validity import rule_text

DRAWN_CELLS = 40
SHOWN_SCORES = 4
"""Scores on the page of a run; the analysis has all."""
DRAWN_MAPS = 6
"""Maximum number of heat maps for each measure."""


def dialogue_html(document: JsonMap) -> str:
    """The analysis as one self-contained HTML file."""
    return document_html(analysis_report(document))


def dialogue_files(document: JsonMap) -> PageFiles:
    """The analysis in Markdown and HTML, and the files of its figures by name."""
    return report_files(analysis_report(document), methods=methods_paragraph(document))


def dialogue_text(document: JsonMap) -> str:
    """The analysis as text for a terminal, without plots."""
    return as_markdown.render(replace(analysis_report(document), method=""))


def analysis_report(analysis: Mapping[str, Any]) -> Document:
    """The analysis as a document: each measure with its plots, means, sources of variance and effects."""
    left_out, mocks = analysis["left_out"], ", ".join(analysis["stand_ins"])
    excluded = f", {left_out} broken off and excluded" if left_out else ""
    excluded += f", {_exclusions(analysis)}" if analysis.get("exclude_when") else ""
    mock = f"Mock data: uses scripted or replayed models ({mocks}). Draw no conclusions about real models."
    return Document(
        title=f"Dialogues: {analysis['name']}",
        subtitle=f"{plural(analysis['sessions'], 'session')}{excluded}",
        warnings=[mock] if mocks else [],
        sections=[
            *(_measure(each) for each in analysis["measures"]),
            Sentence(text=str(analysis["rule"])),
        ],
        method=methods_paragraph(analysis),
    )


def _measure(measure: Mapping[str, Any]) -> Details:
    name, overall, cells = measure["measure"], measure["overall"], measure["cells"]
    missing = f", missing in {measure['missing']}" if measure["missing"] else ""
    notes = " ".join(text for text in (overall["note"], measure["note"] and f"{measure['note']}.") if text)
    figures = f"{figure(overall['value'])} (95% CI {around(overall)}, n = {overall['n']}{missing})"
    means = [
        (
            cell["client"],
            cell["therapist"],
            *cell["settings"].values(),
            cell["mean"]["n"],
            figure(cell["mean"]["value"]),
            around(cell["mean"]),
            figure(cell["std"]),
        )
        for cell in cells
    ]
    sources = [
        (
            source["source"],
            source["levels"] or UNKNOWN,
            "not enough data" if source["variance"] is None else figure(source["variance"]),
            around(source),
            UNKNOWN if source["share"] is None else f"{source['share']:.0%}",
            source["note"],
        )
        for source in measure["components"]
    ]
    effects = [
        (
            effect["contrast"],
            figure(effect["value"]),
            around(effect),
            chance(effect["p_corrected"]),
            effect["method"],
            effect["note"],
        )
        for effect in measure["effects"]
    ]
    about = numeric("Levels", "Estimate", "95% CI", "Share")
    change = numeric("Difference", "95% CI", "p (Bonferroni)")
    return Details(
        title=name,
        sections=[
            Sentence(text=f"Overall {figures}. {notes}".strip()),
            *_heat_maps(name, cells),
            *_means(name, cells),
            *_shares(name, measure["components"], overall["n"]),
            table(
                ["Client", "Therapist", *cells[0]["settings"], *numeric("n", "Mean", "95% CI", "Std")], means
            ),
            table(["Source of variance", *about, prose("Note")], sources),
            table([str(measure.get("by", "")), *change, "Method", prose("Note")], effects),
        ],
    )


def around(estimate: Mapping[str, Any]) -> str:
    """A confidence interval as text; without one, what it would need."""
    return limits_text(estimate["low"], estimate["high"], estimate.get("needs"), "dialogue")


def results_view(read: StoreReader, run_id: str) -> Document:
    """Client × therapist heat maps of the scores, or of the turns without any, and their distributions."""
    # Late: it loads numpy.
    import numpy as np

    from proctor.report.result_sections import distribution

    results = list(results_of(read, run_id))
    rows = measure_rows(results)
    if not rows:
        return Document()
    scores = [name for name in measures(rows) if name != "num_turns"][:SHOWN_SCORES]
    sections: list[Section] = []
    scales = score_scales(results)
    for measure in scores or ["num_turns"]:
        scale = scales.get(measure)
        cells = [plain_cell(asdict(cell)) for cell in cells_of(DESIGN, rows, measure, declared=scale)]
        sections += _heat_maps(measure, cells)
    for measure in (*scores, "num_turns"):
        values = np.asarray([row[measure] for row in rows if row.get(measure) is not None], dtype=np.float64)
        if len(np.unique(values)) > 1:
            score = measure.removeprefix("score.") if measure.startswith("score.") else ""
            sections.append(distribution(measure_title(measure), values, unit="dialogue", score=score))
    excluded = sum(result["status"] in FINISHED for result in results) - len(rows)
    remarks = [f"{plural(excluded, 'dialogue')} broken off and excluded."] if excluded else []
    return Document(sections=sections, remarks=remarks)


def _cell_figure(cell: Mapping[str, Any]) -> Figure:
    mean = cell["mean"]
    return Figure(
        label=" × ".join((cell["client"], cell["therapist"], *cell["settings"].values())),
        text=figure(mean["value"]),
        value=mean["value"],
        low=mean["low"],
        high=mean["high"],
        n=mean["n"],
        unit="dialogue",
        note=mean["note"],
        items={"factor": [f"client={cell['client']}", f"therapist={cell['therapist']}"]},
    )


def _heat_maps(measure: str, cells: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Client by therapist, for each combination of the other settings."""
    charts: list[Chart] = []
    settings = list(dict.fromkeys(tuple(cell["settings"].items()) for cell in cells))
    for setting in settings[:DRAWN_MAPS]:
        chosen = [
            cell
            for cell in cells
            if tuple(cell["settings"].items()) == setting and cell["mean"]["value"] is not None
        ]
        clients = list(dict.fromkeys(cell["client"] for cell in chosen))
        therapists = list(dict.fromkeys(cell["therapist"] for cell in chosen))
        if len(chosen) < 2:
            continue
        where = ", ".join(f"{name} = {value}" for name, value in setting)
        title = f"{measure_title(measure)} by client and therapist" + (f": {where}" if where else "")
        marks = FigureList()
        svg = heat_map(
            title,
            {(cell["client"], cell["therapist"]): HeatCell.of(_cell_figure(cell), marks) for cell in chosen},
            rows=clients,
            columns=therapists,
            row_axis="client",
            column_axis="therapist",
            say=figure,
        )
        caption = f"{_about(chosen)} Color: the mean."
        charts.append(Chart(title=title, svg=svg, marks=marks.figures, caption=caption))
    return charts


def _about(cells: Sequence[Mapping[str, Any]]) -> str:
    """What the means of a figure are, with their method and n."""
    methods = (cell["mean"].get("method", "") for cell in cells if cell["mean"]["low"] is not None)
    sizes = sample_text([cell["mean"]["n"] for cell in cells], "dialogue", "combination")
    return f"Mean of the finished dialogues of a combination; {method_text(methods)}; {sizes}."


def _means(measure: str, cells: Sequence[Mapping[str, Any]]) -> list[Chart]:
    known = [cell for cell in cells if cell["mean"]["value"] is not None]
    if not known:
        return []
    marks = FigureList()
    rows = [
        TableRow(
            cells=[cell["client"], cell["therapist"], *map(str, cell["settings"].values())],
            entry=Bar.of(_cell_figure(cell), marks),
        )
        for cell in known[:DRAWN_CELLS]
    ]
    title = f"{measure_title(measure)} by combination"
    more = f" The first {DRAWN_CELLS} of {len(known)} combinations." if len(known) > DRAWN_CELLS else ""
    headings = ["client", "therapist", *known[0]["settings"]]
    svg = dot_table(title, headings, rows, axis=measure_title(measure))
    return [Chart(title=title, svg=svg, marks=marks.figures, caption=f"{_about(known)}{more}")]


def _exclusions(document: Mapping[str, Any]) -> str:
    """What `exclude_when` has excluded, with the numbers of dialogues before and after."""
    rule = rule_text(document["exclude_when"])
    excluded, left = len(document["excluded"]), document["sessions"]
    return f"{excluded} of {left + excluded} excluded by exclude_when ({rule}), {left} analyzed"


def methods_paragraph(document: Mapping[str, Any]) -> str:
    """How the dialogues were made and analyzed, as a paragraph for a paper."""
    from proctor import __version__

    cells = document["measures"][0]["cells"] if document["measures"] else []
    clients, therapists = ({cell[side] for cell in cells} for side in ("client", "therapist"))
    sizes = sample_text([cell["mean"]["n"] for cell in cells], "dialogue", "combination")
    left_out = f"; {document['left_out']} that were broken off are excluded" if document["left_out"] else ""
    left_out += f"; {_exclusions(document)}" if document.get("exclude_when") else ""
    measures = ", ".join(each["measure"] for each in document["measures"])
    mocks = document["stand_ins"]
    sentences = [
        f"We simulated dialogues of {plural(len(clients), 'client')} with "
        f"{plural(len(therapists), 'therapist')} ({sizes}{left_out}). Measures: {measures}.",
        "Means have 95% confidence intervals for dialogues like these: with these roles, profiles, and "
        "settings. Those of shares between 0 and 1 stay within them.",
        "Variance components come from a random-effects model: mean squares with generalized pivotal "
        "intervals for balanced data, otherwise restricted maximum likelihood.",
        "Differences between levels come from a mixed model in which the other factors are a sample; "
        "intervals and p values of all of them are Bonferroni-corrected.",
        f"The dialogues used mock models ({', '.join(mocks)}): they say nothing about real ones."
        if mocks
        else "",
        f"Dialogues and analysis: Proctor {__version__}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _shares(measure: str, components: Sequence[Mapping[str, Any]], n: int) -> list[Chart]:
    known = [
        Bar(label=each["source"], value=each["share"]) for each in components if each["share"] is not None
    ]
    if not known:
        return []
    title = f"{measure_title(measure)}: share of the variance"
    caption = f"Variance components of a random-effects model; n = {plural(n, 'dialogue')}."
    return [Chart(title=title, svg=bars(title, known, top=1.0, say=percent), caption=caption)]
