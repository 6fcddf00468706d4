"""`proctor bench`: run a task on many models, and rank them."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from proctor.api.benchmarks import (
    BatchSettings,
    BenchmarkOverrides,
    BenchmarkPlan,
    ModelStanding,
    ModelStandings,
    read_benchmark,
    read_task_plan,
)
from proctor.api.deprecated import OLD_NAMES_OF_PLANNED_ITEMS, with_old_names
from proctor.api.runs import RunResult, dry_run, paused_providers, progress_of, start
from proctor.cli.output import (
    Engine,
    JsonAtEnd,
    KeepGoing,
    RayAddress,
    Workers,
    count,
    field_options,
    money,
    print_note,
    print_table,
    printable,
    seconds,
    takes_options,
)
from proctor.cli.run import (
    OutputOptions,
    Present,
    TerminalObserver,
    View,
    beginning,
    print_document,
    print_dry_run,
    print_pauses,
    print_summary,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions, RunContext
from proctor.formatting import interval, percent
from proctor.item import SUCCESS, shown_status
from proctor.job import ItemFinished, PlanText
from proctor.json_values import JsonObject
from proctor.tasks.task import MARKDOWN, ReadOverrides, commands_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

REFRESH_SECONDS = 0.25
reads_tasks = takes_options("reading", field_options(ReadOverrides))
"""Give a command the options of reading tasks, as the mapping `reading`."""
bench_app = typer.Typer(add_completion=False)
apps = {"bench": bench_app}


@bench_app.command()
@takes_options("settings", field_options(BenchmarkOverrides))
def bench(
    context: typer.Context,
    *,
    task: Annotated[
        Path | None,
        typer.Option("--task", help="A task file, or a folder or dataset of tasks (see docs/tasks.md)."),
    ] = None,
    settings: Mapping[str, Any],
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    keep_going: KeepGoing = False,
    resume: Annotated[
        str, typer.Option("--resume", help="Resume an earlier benchmark: its run ID, or its folder.")
    ] = "",
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", help="Write the patches as SWE-bench predictions.", metavar="FILE"),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Validate the benchmark and list its runs; start nothing."),
    ] = False,
    as_json: JsonAtEnd = False,
) -> int:
    """Run a task on every model, each in a fresh copy, score it with the task's checks, and rank the models.

    Example:  proctor bench --task benchmark/tasks/easy/fix_typo.md --models "llama3,gpt-4" --runs 3
    """
    agents = settings["agent"]
    options = {
        **settings,
        "record": None if dry else settings["record"],
        "agent": agents[0] if agents and len(agents) == 1 else agents,
    }
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address, keep_going)
        plan = read_benchmark(ctx, task, options, resume=resume)
        printed = OutputOptions(as_json=as_json)
        return _execute(ctx, plan, printed, dry=dry, workers=workers, predictions=predictions)


def run_task_plan(
    ctx: RunContext,
    source: PlanText,
    options: Mapping[str, object],
    output: OutputOptions,
    *,
    dry: bool,
    run_id: str,
) -> int:
    """Run a plan of `proctor batch` that has `tasks`."""
    return _execute(ctx, read_task_plan(ctx, source, options, run_id=run_id), output, dry=dry)


def _execute(
    ctx: RunContext,
    plan: BenchmarkPlan,
    output: OutputOptions,
    *,
    dry: bool,
    workers: int | None = None,
    predictions: Path | None = None,
) -> int:
    if dry:
        return _dry_run(ctx, plan, as_json=output.as_json)
    observer = JobObserver(ctx, output)
    observer.settings = plan.plan.settings
    run = start(ctx, plan, workers=workers, observer=observer)
    return run_command(ctx, run, output, present=_presenting(predictions))


class JobObserver(TerminalObserver):
    """Shows a benchmark at the terminal: a table of its models, or a line for each run."""

    settings: BatchSettings | None = None
    """None: the defaults, of a run that resumes from the store alone."""

    def make_view(self, run_id: str) -> View:
        """The view of a benchmark."""
        if self._output.as_jsonl:
            return super().make_view(run_id)
        settings = self.settings
        quiet = self._output.as_json or bool(settings and not settings.show_progress)
        return BenchView(self._ctx, run_id, quiet=quiet, verbose=bool(settings and settings.verbose))


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the outcome of a benchmark: the ranking, the summary, and where its files are."""
    summary = finished.summary
    print_document(summary, output)
    if not (output.as_json or output.as_jsonl):
        _show(summary["comparison"])
    print_summary(summary, ctx=ctx)
    print_note(f"Report:  {printable(Path(summary['output']) / 'comparison_report.html')}")


def _presenting(predictions: Path | None) -> Present:
    """Print the outcome, and write the predictions where these are wanted."""
    if predictions is None:
        return present
    file = predictions

    def both(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
        # Loaded here: few benchmarks need it.
        from proctor.tasks.predictions import write_predictions

        present(ctx, finished, output)
        number = write_predictions(ctx.store, finished.run_id, file, ctx.settings.user_environment)
        print_note(f"Predictions:  {printable(file)}: {count(number, 'patch', 'patches')}")

    return both


def _show(comparison: Mapping[str, Any]) -> None:
    """Print the models, best first, and the best by each measure."""
    rows = [
        (
            model["model"],
            f"{model['counts']['success'] - model['unchecked']}/{model['success_rate']['n']}",
            _rate(model["success_rate"]),
            model["counts"]["error"] or "",
            percent(model["success_rate_with_errors"]["value"]) if model["counts"]["error"] else "",
            seconds(model["completion_time"]["value"]),
            _figure(model["prompts_sent"]["value"]),
            _figure(model["human_interventions"]["value"]),
            f"{model['total_tokens']:,}",
            money(model["cost_usd"]) if model["total_tokens"] else "–",
        )
        for model in comparison["models"]
    ]
    heads = ("MODEL", "SUCCESS", "RATE", "ERRORS", "AS FAILURES", "TIME", "PROMPTS", "INTERVENTIONS")
    print_table((*heads, "TOKENS", "COST"), rows)
    for model in comparison["models"]:
        rates = {when: model.get(f"success_rate_{when}_cutoff") for when in ("before", "after")}
        parts = [f"{_rate(rate)} of {rate['n']} runs {when}" for when, rate in rates.items() if rate]
        if parts:
            print(f"{printable(model['model'])}: {', '.join(parts)} the end of its training data")
    print_note(f"Rates over tasks, with 95% CIs for {comparison['interval_scope']}.")
    titles = {
        "most_successful": "Most Successful",
        "fastest": "Fastest",
        "best_value": "Best Value",
        "least_intervention": "Most Autonomous",
        "most_efficient": "Most Efficient",
    }
    for key, title in titles.items():
        leaders = [place for place in comparison["ranks"][key] if place["rank"] == 1]
        if leaders:
            first = [place["model"] for place in leaders if place["value"] == leaders[0]["value"]]
            rivals = [place["model"] for place in leaders[len(first) :]]
            named = rivals[0] if len(rivals) == 1 else f"{len(rivals)} others"
            notes = ["tied"] * (len(first) > 1) + [f"not separated from {named}"] * bool(rivals)
            shared = f"  ({'; '.join(notes)})" if notes else ""
            print(f"{title + ':':<16} {printable(', '.join(first) + shared, width=160)}")


def _rate(rate: Mapping[str, Any]) -> str:
    limits = f" ({interval(rate['low'], rate['high'])})" if rate["low"] is not None else ""
    return f"{percent(rate['value'])}{limits}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if value == int(value) else f"{value:.1f}"


def _dry_run(ctx: RunContext, read: BenchmarkPlan, *, as_json: bool) -> int:
    expected, plan = dry_run(ctx, read), read.plan
    items, commands = expected.items, commands_of(plan.tasks, with_solutions=plan.overrides.oracle)
    document: JsonObject = {
        "dryRun": True,
        "itemCount": len(items),
        "items": [
            {"id": item.id, **item.factors, "requestedModel": item.model, "repeat": item.repeat}
            for item in items
        ],
        "notes": list(expected.remarks),
    }
    if plan.task_set.formats.keys() - {MARKDOWN}:
        document |= {"commands": commands}

    def print_items() -> None:
        print_table(
            ("ITEM", "TASK", "MODEL", "AGENT", "RUN"),
            [
                (item.id, item.factors["task"], item.factors["model"], item.factors["agent"], item.repeat)
                for item in items
            ],
        )
        for command in commands:
            print_note(f"would run: {printable(command)}")

    summary = f"Benchmark is valid: {count(len(items), 'run')}, concurrency {plan.concurrency}."
    document = with_old_names(document, OLD_NAMES_OF_PLANNED_ITEMS)
    return print_dry_run(expected, document, print_items, summary, as_json=as_json)


class BenchView:
    """Shows a benchmark as a table of its models on a terminal, else as a line per run; writes its files."""

    def __init__(
        self,
        ctx: RunContext,
        run_id: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self._ctx = ctx
        self._run_id = run_id
        self._quiet = quiet
        self._verbose = verbose
        self._is_live = not quiet and sys.stderr.isatty()
        self._task: asyncio.Task[None] | None = None
        self._items, self._finished = progress_of(ctx, run_id)
        self._standings = ModelStandings(ctx, run_id)

    def item(self, end: ItemFinished) -> None:
        """A run has finished and is committed."""
        self._finished += 1
        if not self._quiet and not self._is_live:
            print_note(f"[{self._finished}/{self._items}] {self._line(end)}")
        if self._verbose and not self._is_live:
            for score in self._ctx.store.read.of_session("scores", end.session_id):
                print_note(f"        {score['label'] or '–':<5}  {printable(score['evaluator'], width=100)}")

    async def __aenter__(self) -> Self:
        if self._is_live:
            self._task = asyncio.create_task(self._draw())
        elif not self._quiet:
            print_note(beginning(self._run_id, count(self._items, "run"), self._finished))
            self._task = asyncio.create_task(print_pauses(self._ctx, self._run_id))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _line(self, end: ItemFinished) -> str:
        outcome = end.outcome
        status = shown_status(outcome.status, outcome.reason)
        parts = [f"{status:<7}", self._standings.name_of(end.item), end.item.factors["task"]]
        if end.item.repeat > 1:
            parts.append(f"run {end.item.repeat}")
        parts.append(seconds(end.work_seconds))
        parts += [f"{end.tokens:,} tokens"] if end.tokens else []
        parts += [money(end.cost_usd)] if end.cost_usd is not None else []
        line = "  ".join(printable(part, width=60) for part in parts)
        why = f"  {outcome.reason}: {printable(outcome.error, width=160)}"
        return line if outcome.status == SUCCESS else line + why

    async def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=4) as live:
            try:
                while True:
                    live.update(await asyncio.to_thread(self._picture))
                    await asyncio.sleep(REFRESH_SECONDS)
            finally:
                live.update(self._picture())

    def _picture(self) -> "Group":
        from rich.console import Group

        paused = [
            f"{printable(provider)}: rate limited, calls paused for {seconds(remaining)}"
            for provider, remaining in paused_providers(self._ctx, self._run_id).items()
        ]
        return Group(leaderboard_picture(self._standings.look(), printable(self._run_id)), *paused)


def leaderboard_picture(rows: Sequence[ModelStanding], title: str) -> "Table":
    """A table of the models of a benchmark."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", expand=False)
    for head, justify in (("Model", "left"), ("State", "left"), ("Elapsed", "right"), ("Tokens", "right")):
        table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    table.add_column("Cost", justify="right", no_wrap=True)
    has_several = any(sum(row.counts.values()) > 1 for row in rows)
    if has_several:
        has_limits = not any(row.is_clustered for row in rows)
        title = "Passed (95% interval)" if has_limits else "Passed"
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        elapsed = seconds(row.elapsed_seconds) if row.elapsed_seconds else "–"
        cost = money(row.cost_usd) if row.cost_usd is not None else "–"
        tokens = f"{row.tokens:,}" if row.tokens else "–"
        limits = f" ({interval(row.rate.low, row.rate.high)})" if row.rate.low is not None else ""
        passed = [percent(row.rate.value) + limits] if has_several else []
        cells = (row.model, row.state, elapsed, tokens, cost, *passed)
        table.add_row(*(Text(printable(cell, width=60)) for cell in cells))
    return table
