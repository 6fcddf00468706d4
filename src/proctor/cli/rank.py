"""`proctor rank` and `proctor power`: order models by a metric, and how many tasks a difference needs."""

from collections.abc import Sequence
from typing import Annotated

import typer

from proctor.api.analysis import power_of
from proctor.cli import output
from proctor.cli.output import (
    Columns,
    Json,
    Working,
    count,
    print_json,
    print_note,
    print_table,
    printable,
)
from proctor.cli.run import terminal_context
from proctor.formatting import rank as place
from proctor.jobs.imported.table import columns_of, load_sources
from proctor.report.comparison import figure
from proctor.report.figures import rank_document
from proctor.stats.comparison import SKEWED
from proctor.stats.figures import rank_levels, reliability_ranks, unranked_items
from proctor.stats.progress import stop_lines
from proctor.stats.ranking import Rank
from proctor.stats.results import Results
from proctor.stats.stopping import stop_document

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
    with terminal_context(context.obj) as ctx, Working("ranking"):
        results = load_sources(ctx.store, sources, ctx.now(), columns=columns_of(column))
        ctx.note_foreign_results(results.runs.labels)
        stopped = [stop_document(ctx.store.read, run) for run in results.runs.labels]
        ranked = rank_levels(results, by, metric)
    for run, unranked in unranked_items(results, by).items():
        print_note(printable(f"note: {run}: {_left_out(results, run, by, unranked)}"))
    if as_json:
        print_json([rank_document(each) for each in ranked])
        return output.SUCCEEDED
    _print_ranks(results, ranked, by, metric)
    for state in stopped:
        if state:
            print_note("note: a run that stops early by its results: ordinary intervals are too narrow")
            for line in stop_lines(state):
                print_note(printable(line))
    return output.SUCCEEDED


def _print_ranks(results: Results, ranked: Sequence[Rank], by: str, metric: str) -> None:
    if results.stand_ins:
        names = printable(", ".join(results.stand_ins))
        print_note(f"note: mock results ({names}): draw no conclusions about real agents or models")
    for answered in results.answered:
        print_note(f"note: {printable(str(answered))}")
    for run, left in results.unfinished.items():
        print_note(f"note: {printable(run)} has {count(left, 'item')} without a result: ranks will change")
    has_repeats = any(each.runs > each.tasks for each in ranked)
    by_reliability, k = reliability_ranks(results, by) if metric == "success" and has_repeats else ([], 1)
    reliable = {each.name: each for each in by_reliability}
    errors = int((results.is_error & ~results.is_evaluation).sum()) if metric == "success" else 0
    failed = rank_levels(results.with_failed_errors(), by) if errors else []
    with_errors = {each.name: each for each in failed}
    heads = ["RANK", by.upper(), metric.upper(), "95% CI", "SEM"]
    heads += ["ERRORS AS FAILURES"] if errors else []
    heads += ["TASKS", "RUNS", *([f"PASS^{k}", f"RANK BY PASS^{k}"] if reliable else [])]
    rows = []
    for each in ranked:
        row: list[object] = [
            _place(each),
            each.name,
            figure(each.value, metric),
            _range(each, metric),
            "–" if each.sem is None else figure(each.sem, metric),
        ]
        if errors:
            other = with_errors[each.name]
            row.append(f"{figure(other.value, metric)} ({_range(other, metric)})")
        row += [each.tasks, each.runs]
        if reliable:
            other = reliable[each.name]
            row += [figure(other.value, metric), _place(other)]
        rows.append(tuple(row))
    print_table(heads, rows)
    what = "typical values; less is better" if metric in SKEWED else "means over tasks"
    together = f"; rank intervals hold for all {len(ranked)} together at 95%" if len(ranked) > 1 else ""
    print_note(f"{what}{together}, for tasks like these")
    if errors:
        print_note(f"note: {count(errors, 'item')} with infrastructure errors excluded")
    if errors and [each.name for each in failed] != [each.name for each in ranked]:
        print_note("note: errors decide the order: it differs when they count as failures")
    for each in ranked:
        if each.note:
            print_note(f"note: {printable(each.name)}: {printable(each.note)}")


def _left_out(results: Results, run: str, by: str, unranked: int) -> str:
    """Why items of a run have no rank, and what they could be ranked by."""
    items = results.runs.mask(run)
    others = [name for name, levels in results.factors.items() if bool((levels.codes[items] >= 0).all())]
    reason = f"{count(unranked, 'item')} without {by} {'is' if unranked == 1 else 'are'} not ranked"
    advice = f"; all of its items have: {', '.join([*others, 'run'])} (--by)"
    return f"{reason}{advice}"


def _place(each: Rank) -> str:
    return place(each.rank, each.rank_low, each.rank_high)


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
