"""`proctor rank` and `proctor power`: order models by a metric, and how many tasks a difference needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from proctor.cli import output
from proctor.cli.output import Json, count, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import NotFound, UsageError
from proctor.jobs.imported.table import load_sources
from proctor.report.comparison import figure
from proctor.stats.comparison import SKEWED, scale_of
from proctor.stats.figures import rank_levels
from proctor.stats.power import TasksNeeded, detectable, tasks_needed
from proctor.stats.ranking import Rank
from proctor.stats.results import Results

rank_app = typer.Typer(add_completion=False)
power_app = typer.Typer(add_completion=False)
apps = {"rank": rank_app, "power": power_app}
REPEATS = (1, 3, 5, 10)
"""Repeats that `power` lists."""
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of a file: task=instance_id. Repeatable.", metavar="NAME=COLUMN"),
]


def columns_of(pairs: Sequence[str] | None) -> dict[str, str]:
    """The mapping of `--column NAME=COLUMN` options."""
    columns = {}
    for pair in pairs or ():
        name, equals, column = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"`{pair}` maps no column\nWrite NAME=COLUMN: task=instance_id.")
        columns[name] = column
    return columns


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
    if not 0 < abs(detect) < float("inf"):
        raise UsageError("--detect must be a difference other than 0\nExample: --detect 0.05.")
    if not 0 < power_ < 1:
        raise UsageError("--power must lie between 0 and 1\nExample: --power 0.8.")
    names = [baseline, *([candidate] if candidate else [])]
    with terminal_context(context.obj) as ctx:
        results = load_sources(ctx.store, names, ctx.now(), columns=columns_of(column))
    plans = designs(results, metric, detect, power_)
    shown = smallest_shown(results, metric, power_)
    if as_json:
        print_json(
            {
                "baseline": baseline,
                "candidate": candidate or None,
                "metric": metric,
                "detect": detect,
                "power": power_,
                "tasks": len(results.tasks()[0].labels),
                "detectable": shown[0],
                "designs": [
                    {"repeats": each.repeats or 1, "tasks": each.tasks, "note": each.note} for each in plans
                ],
                "note": shown[1],
            }
        )
        return output.SUCCEEDED
    tasks = len(results.tasks()[0].labels)
    could = "" if shown[0] is None else f"; it could have shown a difference of {figure(shown[0], metric)}"
    print(f"{printable(baseline)}: {count(tasks, 'task')}{could} ({power_:.0%} power, 95% confidence)")
    rows = [
        (each.repeats or 1, "–" if each.tasks is None else f"{each.tasks:,}", printable(each.note))
        for each in plans
    ]
    print(f"Tasks needed to detect {figure(abs(detect), metric)}, paired by task:")
    print_table(("REPEATS", "TASKS", "NOTE"), rows)
    if shown[1]:
        print_note(f"note: {printable(shown[1])}")
    return output.SUCCEEDED


@dataclass(frozen=True, slots=True)
class _Pilot:
    """Values of one side, or of two, with their tasks."""

    a: list[float]
    b: list[float] | None
    task_a: list[int]
    task_b: list[int] | None
    lo: float | None
    hi: float | None

    def needs(self, detect: float, power_: float, repeats: int) -> TasksNeeded:
        return tasks_needed(
            self.a,
            self.b,
            self.task_a if self.b is None else None,
            task_a=None if self.b is None else self.task_a,
            task_b=self.task_b,
            detect=detect,
            power=power_,
            repeats=repeats,
            lo=self.lo,
            hi=self.hi,
        )


def _pilot(results: Results, metric: str) -> _Pilot:
    """Two runs, or the first two models of one run, as two sides; else one."""
    if metric not in results.metrics:
        raise NotFound(f"nothing here has a value of {metric}\nThere are: {', '.join(results.metrics)}.")
    if metric in SKEWED:
        raise UsageError(
            f"power is computed for success and scores, not for {metric}\nPass another --metric."
        )
    values = results.metrics[metric]
    models = results.factors.get("model")
    groups = results.runs if len(results.runs.labels) > 1 else models
    tasks, _ = results.tasks(groups)
    scale = scale_of(metric, values) or (None, None)
    there = ~np.isnan(values)
    if groups is None or len(groups.labels) < 2:
        return _Pilot(values[there].tolist(), None, tasks.codes[there].tolist(), None, *scale)
    first, second = (there & (groups.codes == code) for code in (0, 1))
    return _Pilot(
        values[first].tolist(),
        values[second].tolist(),
        tasks.codes[first].tolist(),
        tasks.codes[second].tolist(),
        *scale,
    )


def designs(results: Results, metric: str, detect: float, power_: float) -> list[TasksNeeded]:
    """The tasks that each number of repeats needs; only one repeat where there were no repeats."""
    pilot = _pilot(results, metric)
    first = pilot.needs(detect, power_, 1)
    if first.repeats is None:
        return [first]
    return [first, *(pilot.needs(detect, power_, repeats) for repeats in REPEATS[1:])]


def smallest_shown(results: Results, metric: str, power_: float) -> tuple[float | None, str]:
    """The smallest difference that the tasks at hand detect, and what limits it."""
    pilot = _pilot(results, metric)
    shown = detectable(
        pilot.a,
        pilot.b,
        pilot.task_a if pilot.b is None else None,
        task_a=None if pilot.b is None else pilot.task_a,
        task_b=pilot.task_b,
        power=power_,
        lo=pilot.lo,
        hi=pilot.hi,
    )
    return shown.value, shown.note
