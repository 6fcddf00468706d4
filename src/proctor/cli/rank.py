"""`proctor rank` and `proctor power`: order models by a metric, and how many tasks a difference needs."""

from collections.abc import Sequence
from typing import Annotated

import typer

from proctor.api.analysis import power_of
from proctor.api.sources import load_sources
from proctor.cli import output
from proctor.cli.output import (
    Columns,
    Json,
    columns_of,
    count,
    print_json,
    print_note,
    print_table,
    printable,
)
from proctor.cli.run import terminal_context
from proctor.report.comparison import figure
from proctor.stats.comparison import SKEWED
from proctor.stats.figures import rank_levels
from proctor.stats.ranking import Rank
from proctor.stats.results import Results

rank_app = typer.Typer(add_completion=False)
power_app = typer.Typer(add_completion=False)
apps = {"rank": rank_app, "power": power_app}


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
        typer.Option(help="success, cost, time, tokens, score:EVALUATOR, or metric:NAME.", metavar="METRIC"),
    ] = "success",
    column: Columns = None,
    as_json: Json = False,
) -> int:
    """Rank models, or the levels of any factor, with rank intervals over all pairs.

    Two share a rank when their tasks cannot tell them apart. With repeats, the order of reliability (pass^k)
    stands beside the order of accuracy.

    Example:  proctor rank nightly-42 leaderboard.csv --by model
    """
    with terminal_context(context.obj) as ctx:
        results = load_sources(ctx.store, sources, ctx.now(), columns=columns_of(column))
    ranked = rank_levels(results, by, metric)
    if as_json:
        print_json([_document(each) for each in ranked])
        return output.SUCCEEDED
    _print_ranks(results, ranked, by, metric)
    return output.SUCCEEDED


def _document(each: Rank) -> dict[str, object]:
    return {
        "name": each.name,
        "value": each.value,
        "sem": each.sem,
        "low": each.low,
        "high": each.high,
        "rank": each.rank,
        "rankLow": each.rank_low,
        "rankHigh": each.rank_high,
        "tasks": each.tasks,
        "runs": each.runs,
        "note": each.note,
    }


def _print_ranks(results: Results, ranked: Sequence[Rank], by: str, metric: str) -> None:
    if results.stand_ins:
        names = printable(", ".join(results.stand_ins))
        print_note(f"note: mock results ({names}): draw no conclusions about real agents or models")
    for run, left in results.unfinished.items():
        print_note(f"note: {printable(run)} has {count(left, 'item')} without a result: ranks will change")
    has_repeats = any(each.runs > each.tasks for each in ranked)
    reliable = (
        {each.name: each for each in rank_levels(results, by, metric, reliability=True)}
        if metric == "success" and has_repeats
        else {}
    )
    heads = ["RANK", by.upper(), metric.upper(), "95% CI", "SEM", "TASKS", "RUNS"]
    rows = []
    for each in ranked:
        row: list[object] = [
            _interval(each),
            each.name,
            figure(each.value, metric),
            _range(each, metric),
            "–" if each.sem is None else figure(each.sem, metric),
            each.tasks,
            each.runs,
        ]
        if reliable:
            other = reliable[each.name]
            row += [figure(other.value, metric), _interval(other)]
        rows.append(tuple(row))
    print_table([*heads, *(["PASS^K", "RANK BY PASS^K"] if reliable else [])], rows)
    what = "typical values; less is better" if metric in SKEWED else "means over tasks"
    print_note(f"{what}; rank intervals hold for all {len(ranked)} together at 95%, for tasks like these")
    errors = int((results.is_error & ~results.is_evaluation).sum())
    if errors and metric == "success":
        print_note(f"note: {count(errors, 'item')} with infrastructure errors excluded")
        _print_errors(results, ranked, by)
    for each in ranked:
        if each.note:
            print_note(f"note: {printable(each.name)}: {printable(each.note)}")


def _print_errors(results: Results, ranked: Sequence[Rank], by: str) -> None:
    """The rates with errors as failures, and whether that changes the order."""
    with_errors = rank_levels(results.with_failed_errors(), by)
    words = ", ".join(f"{printable(each.name)} {figure(each.value, 'success')}" for each in with_errors)
    print_note(f"note: with errors as failures: {words}")
    if [each.name for each in with_errors] != [each.name for each in ranked]:
        print_note("note: errors decide the order: it differs when they count as failures")


def _interval(each: Rank) -> str:
    if each.rank_low == each.rank_high:
        return str(each.rank)
    return f"{each.rank} ({each.rank_low} to {each.rank_high})"


def _range(each: Rank, metric: str) -> str:
    if each.low is None and each.high is None:
        return "not enough data"
    low, high = figure(each.low, metric), figure(each.high, metric)
    return f"{low} to {'no upper limit' if each.high is None else high}"


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
        results = load_sources(ctx.store, names, ctx.now(), columns=columns_of(column))
    analysis = power_of(results, metric=metric, detect=detect, power=power_)
    tasks, shown = analysis.tasks, analysis.detectable
    if as_json:
        print_json(
            {
                "baseline": baseline,
                "candidate": candidate or None,
                "metric": metric,
                "detect": detect,
                "power": power_,
                "tasks": tasks,
                "detectable": shown,
                "designs": [
                    {"repeats": each.repeats or 1, "tasks": each.tasks, "note": each.note}
                    for each in analysis.designs
                ],
                "note": analysis.note,
            }
        )
        return output.SUCCEEDED
    could = "" if shown is None else f"; it could have shown a difference of {figure(shown, metric)}"
    print(f"{printable(baseline)}: {count(tasks, 'task')}{could} ({power_:.0%} power, 95% confidence)")
    rows = [
        (each.repeats or 1, "–" if each.tasks is None else f"{each.tasks:,}", printable(each.note))
        for each in analysis.designs
    ]
    print(f"Tasks needed to detect {figure(abs(detect), metric)}, paired by task:")
    print_table(("REPEATS", "TASKS", "NOTE"), rows)
    if analysis.note:
        print_note(f"note: {printable(analysis.note)}")
    return output.SUCCEEDED
