"""`proctor compare`: compare runs, or the levels of a factor within one run; `proctor rank` and `power`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.comparing import (
    FAIL,
    INCONCLUSIVE,
    CompareQuery,
    Comparison,
    Rank,
    Ranking,
    columns_of,
    compare_runs,
    gate_of,
    power_of_runs,
    rank_runs,
    stop_lines,
)
from proctor.api.deprecated import OLD_NAMES_OF_COMPARISONS, with_old_names
from proctor.cli import output
from proctor.cli.output import (
    Columns,
    Json,
    Working,
    count,
    print_json,
    print_note,
    print_result,
    print_table,
    printable,
    write_file,
)
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.formatting import rank as place
from proctor.json_values import camel_document
from proctor.metric import METRICS_HELP, find_metric
from proctor.report.comparison import comparison_data, comparison_document, comparison_junit, figure
from proctor.report.result_sections import model_remarks

compare_app = typer.Typer(add_completion=False)
FORMATS = ("text", "md", "html", "json", "junit")


@compare_app.command()
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FILE…",
            help="Runs, evaluations, or files of results (CSV, JSONL, Parquet); the first is the baseline.",
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Metric: {METRICS_HELP}. Repeatable.",
            metavar="METRIC",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Compare the levels of a factor of one run: model, agent, …", metavar="FACTOR")
    ] = "",
    against: Annotated[
        str, typer.Option(help="Baseline level with --by (default: the first in the plan).", metavar="LEVEL")
    ] = "",
    pair: Annotated[
        str,
        typer.Option(
            help="Pair results by item, task, scenario, or session (default: auto).", metavar="UNIT"
        ),
    ] = "",
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help='Required difference, candidate − baseline: "success>=-0.02", "cost<=10%". Repeatable.',
            metavar="GATE",
        ),
    ] = None,
    column: Columns = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also compare scores of different versions of an evaluator.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also print all metrics, methods, disagreements, and notes.")
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="text, md, html, json, or junit.", metavar="FORMAT")
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Output file of --format (default: standard output).", metavar="FILE"),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with plots.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown.", metavar="FILE")] = None,
    as_json: Json = False,
) -> int:
    """Compare runs with a baseline, paired by task, with confidence intervals.

    Exit codes with gates: 0 when all pass, 1 on a regression, 4 when inconclusive (not enough data).

    Example:  proctor compare baseline-1 change-2 --gate "score:Builtin.Helpfulness>=-0.02"
    """
    query = CompareQuery(tuple(runs), by=by, pair=pair, against=against)
    query.check()
    if format_ not in FORMATS:
        raise UsageError(f"there is no format {format_}\nThere are: {', '.join(FORMATS)}.")
    gates = [gate_of(each) for each in gate or ()]
    if format_ == "junit" and not gates:
        raise UsageError("a JUnit file holds the verdicts of gates\nPass at least one --gate.")
    with terminal_context(context.obj) as ctx, Working("comparing"):
        comparison = compare_runs(
            ctx, query, metrics=metric or (), gates=gates, mixed=mixed, columns=columns_of(column)
        )
    for path, kind in ((html, "html"), (markdown, "md")):
        if path is not None:
            _write(path, _formatted(comparison, kind))
    if out is not None:
        _write(out, _formatted(comparison, format_))
    if as_json:
        print_json(with_old_names(comparison_data(comparison), OLD_NAMES_OF_COMPARISONS))
    elif out is None and format_ != "text":
        print(_formatted(comparison, format_))
    elif out is None:
        print_result(comparison_document(comparison), has_details=details)
    return {FAIL: output.SOME_DID_NOT, INCONCLUSIVE: output.INCONCLUSIVE}.get(
        comparison.verdict, output.SUCCEEDED
    )


def _formatted(comparison: Comparison, kind: str) -> str:
    # Loads templates, which a comparison at the terminal does not need.
    from proctor.report import as_markdown
    from proctor.report.render import document_html

    if kind == "text":
        raise UsageError("--out needs a format of files\nPass --format md, html, json, or junit.")
    document = with_old_names(comparison_data(comparison), OLD_NAMES_OF_COMPARISONS)
    formats: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(document, indent=2, allow_nan=False),
        "md": lambda: as_markdown.render(comparison_document(comparison)),
        "html": lambda: document_html(comparison_document(comparison)),
        "junit": lambda: comparison_junit(comparison),
    }
    return formats[kind]()


def _write(path: Path, text: str) -> None:
    write_file(path, text)
    print_note(f"wrote {printable(path)}")


rank_app = typer.Typer(add_completion=False)
power_app = typer.Typer(add_completion=False)


@rank_app.command()
def rank(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(metavar="RUN|FILE…", help="Runs, or files of results: CSV, JSONL, Parquet."),
    ],
    by: Annotated[str, typer.Option(help="Rank the levels of this factor.", metavar="FACTOR")] = "model",
    metric: Annotated[
        str,
        typer.Option(help=f"{METRICS_HELP}.", metavar="METRIC"),
    ] = "success",
    column: Columns = None,
    as_json: Json = False,
) -> int:
    """Rank models, or the levels of any factor, with rank intervals over all pairs.

    Two share a rank when their tasks cannot tell them apart. With repeats, the order of reliability (pass^k)
    stands beside the order of accuracy.

    Example:  proctor rank nightly-42 leaderboard.csv --by model
    """
    with terminal_context(context.obj) as ctx, Working("ranking"):
        ranking = rank_runs(ctx, sources, by=by, metric=metric, columns=columns_of(column))
    for run, unranked in ranking.unranked.items():
        print_note(printable(f"note: {run}: {_left_out(ranking, run, unranked)}"))
    if as_json:
        print_json(camel_document(ranking.ranks))
        return output.SUCCEEDED
    _print_ranks(ranking)
    for state in ranking.stops:
        print_note("note: a run that stops early by its results: ordinary intervals are too narrow")
        for line in stop_lines(state):
            print_note(printable(line))
    return output.SUCCEEDED


def _print_ranks(ranking: Ranking) -> None:
    results, ranked, by, metric = ranking.results, ranking.ranks, ranking.by, ranking.metric
    if results.stand_ins:
        names = printable(", ".join(results.stand_ins))
        print_note(f"note: mock results ({names}): draw no conclusions about real agents or models")
    for remark in model_remarks(results):
        print_note(f"note: {printable(remark)}")
    for run, left in results.unfinished.items():
        print_note(f"note: {printable(run)} has {count(left, 'item')} without a result: ranks will change")
    reliable = {each.name: each for each in ranking.by_reliability}
    with_errors = {each.name: each for each in ranking.with_failed_errors}
    heads = ["RANK", by.upper(), metric.upper(), "95% CI", "SEM"]
    heads += ["ERRORS AS FAILURES"] if with_errors else []
    heads += ["TASKS", "RUNS", *([f"PASS^{ranking.k}", f"RANK BY PASS^{ranking.k}"] if reliable else [])]
    rows = []
    for rank in ranked:
        row: list[object] = [
            _place(rank),
            rank.name,
            figure(rank.value, metric),
            _range(rank, metric),
            "–" if rank.sem is None else figure(rank.sem, metric),
        ]
        if with_errors:
            other = with_errors[rank.name]
            row.append(f"{figure(other.value, metric)} ({_range(other, metric)})")
        row += [rank.tasks, rank.runs]
        if reliable:
            other = reliable[rank.name]
            row += [figure(other.value, metric), _place(other)]
        rows.append(tuple(row))
    print_table(heads, rows)
    what = "typical values; less is better" if find_metric(metric).is_skewed else "means over tasks"
    together = f"; rank intervals hold for all {len(ranked)} together at 95%" if len(ranked) > 1 else ""
    print_note(f"{what}{together}, for tasks like these")
    if ranking.errors:
        print_note(f"note: {count(ranking.errors, 'item')} with infrastructure errors excluded")
    if with_errors and list(with_errors) != [each.name for each in ranked]:
        print_note("note: errors decide the order: it differs when they count as failures")
    for rank in ranked:
        if rank.note:
            print_note(f"note: {printable(rank.name)}: {printable(rank.note)}")


def _left_out(ranking: Ranking, run: str, unranked: int) -> str:
    """Why items of a run have no rank, and what they could be ranked by."""
    reason = f"{count(unranked, 'item')} without {ranking.by} {'is' if unranked == 1 else 'are'} not ranked"
    return f"{reason}; all of its items have: {', '.join([*ranking.factors_of(run), 'run'])} (--by)"


def _place(rank: Rank) -> str:
    return place(rank.rank, rank.rank_low, rank.rank_high)


def _range(rank: Rank, metric: str) -> str:
    if rank.low is None and rank.high is None:
        return "not enough data"
    low, high = figure(rank.low, metric), figure(rank.high, metric)
    return f"{low} to {'no upper limit' if rank.high is None else high}"


@power_app.command()
def power(
    context: typer.Context,
    baseline: Annotated[
        str, typer.Option(help="Run, or file of results, to take the variance from.", metavar="RUN|FILE")
    ],
    detect: Annotated[
        float, typer.Option(help="Difference to detect: 0.05 is five percentage points.", metavar="NUMBER")
    ],
    candidate: Annotated[
        str, typer.Option(help="Second run: take the variance of the differences.", metavar="RUN|FILE")
    ] = "",
    metric: Annotated[str, typer.Option(help="success or score:EVALUATOR.", metavar="METRIC")] = "success",
    power_: Annotated[float, typer.Option("--power", help="Chance to detect it.", metavar="NUMBER")] = 0.8,
    column: Columns = None,
    as_json: Json = False,
) -> int:
    """Say how many tasks and repeats a comparison needs to detect a difference, and what this run could show.

    Example:  proctor power --baseline nightly-42 --detect 0.05
    """
    names = [baseline, *([candidate] if candidate else [])]
    with terminal_context(context.obj) as ctx:
        analysis = power_of_runs(
            ctx, names, metric=metric, detect=detect, power=power_, columns=columns_of(column)
        )
    tasks, detectable = analysis.tasks, analysis.detectable
    if as_json:
        print_json(
            {
                "baseline": baseline,
                "candidate": candidate or None,
                "metric": metric,
                "detect": detect,
                "power": power_,
                "tasks": tasks,
                "unit": analysis.unit,
                "detectable": detectable,
                "designs": [
                    {"repeats": design.repeats or 1, "tasks": design.tasks, "note": design.note}
                    for design in analysis.designs
                ],
                "note": analysis.note,
            }
        )
        return output.SUCCEEDED
    could = (
        ""
        if detectable is None
        else f"; it could have shown a difference of {find_metric(metric).say_change(detectable).lstrip('+')}"
    )
    print(
        f"{printable(baseline)}: {_units(tasks, analysis.unit)}{could} ({power_:.0%} power, 95% confidence)"
    )
    rows = [
        (design.repeats or 1, "–" if design.tasks is None else f"{design.tasks:,}", printable(design.note))
        for design in analysis.designs
    ]
    change = find_metric(metric).say_change(abs(detect)).lstrip("+")
    if analysis.unit == "task":
        print(f"Tasks needed to detect {change}, paired by task:")
        print_table(("REPEATS", "TASKS", "NOTE"), rows)
    else:
        (needed,) = [design.tasks for design in analysis.designs]
        number = "more than can be computed" if needed is None else _units(needed, analysis.unit)
        print(f"Needed to detect {change}: {number}")
    if analysis.note:
        print_note(f"note: {printable(analysis.note)}")
    return output.SUCCEEDED


def _units(number: int, unit: str) -> str:
    """`12 tasks`, `1 pair of runs`."""
    return count(number, unit) if unit != "pair of runs" else f"{count(number, 'pair')} of runs"


apps = {"compare": compare_app, "rank": rank_app, "power": power_app}
