"""The library: run, resume, evaluate and compare from Python. `import proctor` exports these names.

Every function opens its own context (settings from the environment and `proctor.toml`), and nothing here
prints, exits or installs signal handlers.
"""

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from proctor.api import runs
from proctor.api.analysis import ComparisonResult, PowerAnalysis, compare, power, rank
from proctor.api.callables import (
    AgentFunction,
    EvaluatorFunction,
    Items,
    ModelFunction,
    agent_name,
    evaluator_names,
    model_name,
)
from proctor.api.handles import Retry, Run
from proctor.api.review import Comment, Feedback, read_feedback
from proctor.api.runs import SILENT, Observer, ReadPlan, RunControl, RunResult, outside_of_any_loop, waited
from proctor.api.session_search import FILTERS, SessionFilter, SessionSearch
from proctor.api.sessions import RunItem, RunSession, find_session
from proctor.batch import lifecycle
from proctor.bootstrap import now, open_context
from proctor.context import EngineName, EngineOptions, Functions, ModelOptions, Notice, RunContext
from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT, Item, digest_of
from proctor.job import BatchChanges, ItemFinished, JobPlan, PlanText
from proctor.jobs import job_of_evaluations, job_of_items
from proctor.json_values import without_none
from proctor.lazy_import import load
from proctor.models import ModelRouter
from proctor.plan.source import bytes_of
from proctor.runners import find_runner
from proctor.stop_rule import read_stop_rule
from proctor.store import RetrySelection, Scope

__all__ = [
    "ComparisonResult",
    "ItemsPlan",
    "PowerAnalysis",
    "ProctorStore",
    "Run",
    "RunItem",
    "RunSession",
    "compare",
    "continue_session",
    "evaluate",
    "import_table",
    "import_traces",
    "open_store",
    "power",
    "rank",
    "resume",
    "run",
    "run_async",
]
CONCURRENCY = 10
"""Items in parallel when neither the plan nor the call sets it."""
NOTEBOOK_SECONDS = 0.2
"""The progress bar of a notebook is drawn at most this often: every time is a message to the browser."""
RETRIES = {
    None: RetrySelection(),
    "errors": RetrySelection(errors=True),
    "failed": RetrySelection(failures=True),
    "all": RetrySelection(errors=True, failures=True),
}


@dataclass(frozen=True, kw_only=True)
class ItemsPlan(JobPlan):
    """A plan built in Python: items, and how they run."""

    make_items: Callable[[], Iterable[Item]]
    at_once: int = CONCURRENCY
    budget_usd: float | None = None
    name: str = ""
    folder: Path = field(default_factory=Path.cwd)
    prices: Mapping[str, Mapping[str, float]] | None = None

    @property
    def run_id(self) -> str:
        """The run id it was given; empty: none."""
        return self.name

    @property
    def concurrency(self) -> int:
        """Maximum items in parallel."""
        return self.at_once

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return ModelOptions(folders=(self.folder,), prices=self.prices)

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row."""
        options = {"folder": str(self.folder), "prices": self.prices, "python": True}
        return {
            "planPath": "",
            "planText": "",
            "planDigest": digest_of([item.id for item in self.make_items()]),
            "defaultsJson": "{}",
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.at_once,
            "seed": None,
            "budgetUsd": self.budget_usd,
        }

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Every runner, agent and model must exist; with a budget, a model needs a price."""
        # Loaded here because a plan file brings its own check.
        from proctor.batch.preflight import PreflightContext
        from proctor.jobs.coding.job import ItemCheck

        environment = ctx.settings.user_environment
        context = PreflightContext(
            environment=environment,
            find_agent=ctx.find_agent,
            models=models,
            sandbox=ctx.settings.confinement,
        )
        check = ItemCheck(context, self.budget_usd is not None)
        problems: list[str] = []
        for number, item in enumerate(self.make_items(), 1):
            find_runner(item.runner)
            if item.runner == "prompt" and not item.model:
                problems.append(f"item {number} has no model\nGive run(…) or the item a model, or an agent.")
            problems += [
                f"item {number}: {problem}\n{remedy}".rstrip() for _, problem, remedy in check.at(item)
            ]
        problems += [f"{problem}\n{remedy}".rstrip() for _, (_, problem, remedy) in check.unstarted()]
        if problems:
            raise UsageError("\n\n".join(problems))
        return sorted(check.remarks)

    def items(self) -> Iterator[Item]:
        """The items in order."""
        return iter(self.make_items())


class ProgressBar(Observer):
    """A progress bar on standard error, in terminals and notebooks."""

    def __init__(self, total: Callable[[str], tuple[int, int]]) -> None:
        """`total` gives the items of a run and how many are finished."""
        self._total = total
        self._advance: Callable[[str], None] = lambda _: None

    def watch(self, run_id: str, control: RunControl) -> AbstractAsyncContextManager[object]:  # noqa: ARG002
        """Show the bar while the run is executed."""
        return self._show_progress(run_id)

    @asynccontextmanager
    async def _show_progress(self, run_id: str) -> AsyncIterator["ProgressBar"]:
        items, finished = self._total(run_id)
        counts: dict[str, int] = {}
        with (_notebook_bar if _is_notebook() else _terminal_bar)(run_id, items, finished) as draw:

            def advance(status: str) -> None:
                counts[status] = counts.get(status, 0) + 1
                others = ", ".join(f"{n} {name}" for name, n in counts.items() if name != "success")
                draw(finished + sum(counts.values()), f"{run_id} {others}".strip())

            self._advance = advance
            yield self

    def item_finished(self, item: ItemFinished) -> None:
        """Advance the bar."""
        self._advance(item.outcome.status)


DrawBar = Callable[[int, str], None]
"""Called with the number of finished items and the label."""


@contextmanager
def _terminal_bar(label: str, items: int, finished: int) -> Iterator[DrawBar]:
    # Drawing takes libraries that a run without a bar need not load.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    layout = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*layout, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=items, completed=finished)
        yield lambda done, label: progress.update(task, completed=done, description=label)


@contextmanager
def _notebook_bar(label: str, items: int, finished: int) -> Iterator[DrawBar]:
    """In the output of the cell, by means of IPython itself: rich needs ipywidgets there."""
    show = load("IPython.display")

    def bar(done: int, label: str) -> object:
        return show.HTML(f'<progress max="{items}" value="{done}"></progress> {done}/{items} {escape(label)}')

    cell = show.display(bar(finished, label), display_id=True)
    latest, drawn_at = (finished, label), time.monotonic()

    def draw(done: int, label: str) -> None:
        nonlocal latest, drawn_at
        latest = (done, label)
        if time.monotonic() - drawn_at >= NOTEBOOK_SECONDS:
            drawn_at = time.monotonic()
            cell.update(bar(*latest))

    try:
        yield draw
    finally:
        cell.update(bar(*latest))


async def run_async(
    plan: "str | Path | JobPlan | None" = None,
    *,
    items: Items | None = None,
    agent: "str | AgentFunction | None" = None,
    model: "str | ModelFunction | None" = None,
    evaluators: "Sequence[str | EvaluatorFunction]" = (),
    run_id: str = "",
    concurrency: int | None = None,
    workers: int | None = None,
    engine: EngineName = "local",
    ray_address: str = "auto",
    keep_going: bool = False,
    budget_usd: float | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
    progress: bool | None = None,
    stop_when: Mapping[str, object] | None = None,
    pick: float | None = None,
    **overrides: object,
) -> Run:
    """Run a plan file of any job, a plan built in Python, or items, and wait for the end.

    `agent`, `model` and `evaluators` take names or functions. `workers` processes share the work; None: as
    the plan says, or as many as are worth it. With `engine="ray"`, the nodes of the Ray cluster at
    `ray_address` do. A run halts when an agent starts in none of its first items, unless `keep_going`.
    `stop_when` stops early, as the setting of a plan does: `{"by": "model", "decided": True}`; `pick=0.1`
    names one model that is at most 0.1 worse than the best. `overrides` are the settings of the job's command
    (`timeout_sec`, `retries`, …). `run_async` is to be awaited; `run` waits, inside a running event loop (a
    notebook) with a thread of its own.
    """
    if plan is not None and not isinstance(plan, str | Path | JobPlan):
        raise UsageError(f"{plan!r} is not a plan\nGive the path of a plan file, or items=… for items.")
    folder = Path(plan).parent.resolve() if isinstance(plan, str | Path) else Path.cwd()
    changes = without_none({"concurrency": concurrency, "budget_usd": budget_usd})
    opened = opened_store(store, home, [folder, Path.cwd()])
    ctx, functions = opened.context, opened.context.functions
    ctx.engine = _checked_engine(engine, ray_address, keep_going)
    if items is not None:
        if plan is not None:
            raise UsageError("a run has either a plan or items\nLeave one of them out.")
        BatchChanges(concurrency=concurrency, budget_usd=budget_usd)
        built: JobPlan = ItemsPlan(
            make_items=_item_maker(
                [_with_names(item, functions) for item in (items() if callable(items) else items)],
                agent_name(agent, functions.agents),
                model_name(model, functions.models),
                overrides,
            ),
            at_once=CONCURRENCY if concurrency is None else concurrency,
            budget_usd=budget_usd,
            name=run_id,
        )
        read = ReadPlan(job=job_of_items(), plan=built, run_id=run_id)
    elif isinstance(plan, JobPlan):
        read = ReadPlan(job=job_of_items(), plan=plan, run_id=run_id)
    elif plan is not None:
        path = Path(plan)
        text = bytes_of(path, "the plan", remedy="Give the path of a plan file.")
        named = {"agent": agent_name(agent, functions.agents), "model": model_name(model, functions.models)}
        values = {**changes, **{name: value for name, value in named.items() if value}, **overrides}
        source = PlanText(text=text, path=path, folder=folder, caller="proctor.run")
        read = runs.read_plan(ctx, source, overrides=values, run_id=run_id)
    else:
        raise UsageError("there is nothing to run\nGive a plan, or items=[…].")
    if evaluators:
        # Before the run costs anything; the run has no id yet.
        lifecycle.preview(_evaluation_plan({"runIds": ["run"]}, evaluators, ctx).plan, ctx)
    observer = _observer(ctx, progress)
    rule = read_stop_rule(stop_when if pick is None else {**(stop_when or {}), "pick": pick})
    result = await runs.start(ctx, read, workers=_checked_workers(workers), observer=observer, rule=rule)
    counts = ctx.store.read.totals(result.run_id)
    if counts["items"] and not counts["counts"][SUCCESS]:
        items_text = plural(counts["items"], "item")
        ctx.info(f"none of the {items_text} succeeded; run.summary()['failures'] has the reasons")
    finished = opened.handle(result.run_id)
    if evaluators:
        await evaluate_async(finished, evaluators, workers=workers, store=opened, progress=progress)
    return finished


run = waited(run_async)


def resume(
    run: "str | Run",
    *,
    retry: Retry | None = None,
    budget_usd: float | None = None,
    concurrency: int | None = None,
    workers: int | None = None,
    engine: EngineName = "local",
    ray_address: str = "auto",
    keep_going: bool = False,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
    progress: bool | None = None,
) -> Run:
    """Execute what is left of a run of any job; `retry` also repeats `errors`, `failed` items, or `all`.

    `workers`, `engine`, `ray_address` and `keep_going`: as in `run`.
    """
    opened = opened_store(store, home, [Path.cwd()])
    opened.context.engine = _checked_engine(engine, ray_address, keep_going)
    return opened.resume(
        run.id if isinstance(run, Run) else run,
        retry=retry,
        budget_usd=budget_usd,
        concurrency=concurrency,
        workers=workers,
        progress=progress,
    )


def continue_session(
    session: "str | RunSession",
    message: str = "",
    *,
    comments: Sequence[Comment | str] = (),
    run_id: str = "",
    budget_usd: float | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
    progress: bool | None = None,
) -> Run:
    """Send comments on a finished coding session back to its agent, and wait for its next iteration.

    The same agent gets the task description, how the session ended, `message`, and the `comments`
    (`"FILE:LINE:TEXT"`) with the lines that they are about. It continues on top of the session's branch, in a
    session of its own in a new run, which is checked and priced as any other; merging that session brings the
    work of all iterations. The results of the earlier run stay as they are.
    """
    opened = opened_store(store, home, [Path.cwd()])
    ctx = opened.context
    feedback = Feedback(
        session=session if isinstance(session, str) else session.id,
        message=message,
        comments=[Comment.parse(each) if isinstance(each, str) else each for each in comments],
        budget_usd=budget_usd,
    )
    read = read_feedback(ctx, feedback, run_id=run_id)
    observer = _observer(ctx, progress)
    return opened.handle(outside_of_any_loop(lambda: runs.start(ctx, read, observer=observer)).run_id)


async def evaluate_async(
    sessions: "Run | str | Sequence[str | RunSession] | None" = None,
    evaluators: "Sequence[str | EvaluatorFunction]" = (),
    *,
    judge: "str | ModelFunction" = "",
    workers: int | None = None,
    engine: EngineName | None = None,
    ray_address: str = "auto",
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
    progress: bool | None = None,
    **options: object,
) -> Run:
    """Evaluate a run (a handle or an id), sessions, or those of a filter; returns the evaluation with scores.

    Without `sessions`, `options` has the filters of `ProctorStore.sessions`: `service="shop", since="7d"`.
    `evaluators` are names, where built-in ones may omit `Builtin.`, or functions. `judge` is the model that
    they ask, by name or as a function. Other `options` are further members of the evaluation request, such as
    `votes` or `groundTruth`; `workers`, `engine` and `ray_address`: as in `run`. `evaluate_async` is to
    be awaited; `evaluate` waits.
    """
    opened = opened_store(store, home, [Path.cwd()])
    ctx = opened.context
    if engine is not None:
        ctx.engine = _checked_engine(engine, ray_address)
    filters = {name: options.pop(name) for name in FILTERS if name in options}
    if (sessions is None) == (not filters):
        raise UsageError(
            "evaluate needs either sessions or filters of sessions\n"
            'Example: evaluate(service="shop", since="7d", evaluators=["Helpfulness"]).'
        )
    if not evaluators:
        raise UsageError('evaluate needs evaluators\nExample: evaluators=["Helpfulness"].')
    if sessions is None:
        sessions = SessionSearch(ctx).ids(SessionFilter.make(**filters))
        if not sessions:
            raise UsageError("no session matches\nLoosen the filters.")
    if isinstance(sessions, Run | str):
        source: dict[str, object] = {"runIds": [opened.run(str(getattr(sessions, "id", sessions))).id]}
    else:
        source = {
            "sessionIds": [
                session.id if isinstance(session, RunSession) else opened.session(session).id
                for session in sessions
            ]
        }
    if judge:
        options["judge"] = model_name(judge, ctx.functions.models)
    plan = _evaluation_plan(source, evaluators, ctx, **options)
    observer = _observer(ctx, progress)
    result = await runs.start(ctx, plan, workers=_checked_workers(workers), observer=observer)
    return opened.handle(result.run_id)


evaluate = waited(evaluate_async)


def _evaluation_plan(
    source: Mapping[str, object],
    evaluators: "Sequence[str | EvaluatorFunction]",
    ctx: RunContext,
    **options: object,
) -> ReadPlan:
    """The plan of an evaluation of sessions in the store."""
    request: dict[str, object] = {
        "batchEvaluationName": f"evaluation_{now():%Y%m%d_%H%M%S}",
        "evaluators": evaluator_names(
            evaluators, ctx.functions.evaluators, ctx.evaluators(Path.cwd()).full_name
        ),
        "dataSourceConfig": {"store": source},
        **options,
    }
    text = PlanText(text=json.dumps(request), folder=Path.cwd())
    return runs.read_plan(ctx, text, job=job_of_evaluations().name)


def import_table(
    path: "str | Path | Sequence[str | Path]",
    *,
    run: str,
    columns: Mapping[str, str] | None = None,
    pass_score: float | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> Run:
    """Import tables of results (CSV, JSON lines, JSON, Parquet, or folders of them) as a run.

    `columns` maps `task`, `model`, `success`, … to the columns of the table. `pass_score` is the lowest score
    that counts as success in a table without `success` or `status` (default: 1). Importing again replaces.
    """
    # Reading tables is needed here only.
    from proctor.api import intake

    opened = opened_store(store, home)
    paths = [path] if isinstance(path, str | Path) else path
    imported = intake.import_table(
        opened.context, list(map(Path, paths)), run, columns=columns, pass_score=pass_score
    )
    for note in imported.notes:
        opened.context.info(note)
    return opened.handle(imported.run_id)


def import_traces(
    path: "str | Path | Sequence[str | Path]",
    kind: str = "auto",
    *,
    run: str = "",
    service: str = "",
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> list[RunSession]:
    """Import the sessions in files or folders of traces and return them; importing again replaces.

    `kind` is a format of `proctor import`; by default that of each file is detected. With `run`, the sessions
    become items of that run. `service` is that of sessions that name none.
    """
    # Reading traces is needed here only.
    from proctor.api import intake

    opened = opened_store(store, home)
    paths = [Path(path)] if isinstance(path, str | Path) else list(map(Path, path))
    imported = intake.import_files(opened.context, paths, kind, service=service, run_id=run)
    for problem in imported.unreadable:
        opened.context.info(str(problem))
    return [opened.session(session_id) for session_id in imported.session_ids]


def open_store(url: str = "", *, home: str | Path | None = None) -> "ProctorStore":
    """The store of the environment, or the one at `url`, to read and resume its runs."""
    return opened_store(url, home)


class ProctorStore:
    """An open store with its runs and sessions. Close it, or use it as a context manager."""

    def __init__(self, url: str = "", *, home: str = "", folders: Sequence[Path] = ()) -> None:
        self._notices: list[Notice] = []
        self._opening = open_context(folders, home=home, store=url, notice=self._notices.append)
        self.context: RunContext = self._opening.__enter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self.context.close()

    @property
    def url(self) -> str:
        """Path or address of the database."""
        return self.context.settings.store_url

    def runs(self, *, limit: int = 1000) -> list[Run]:
        """The runs, newest first."""
        rows = self.context.store.read.batches(now(), limit=limit)
        return [self.handle(str(row["runId"])) for row in rows]

    def run(self, run_id: str) -> Run:
        """The run of this id, or of the beginning of one."""
        return self.handle(str(self.context.store.read.batch(run_id, now())["runId"]))

    def sessions(self, *, limit: int = 1000, **filters: object) -> list[RunSession]:
        """The sessions of any origin that match all filters, newest first.

        Filters are the options of `proctor sessions list`: `service`, `agent`, `version`, `prompt`, `model`,
        `status`, `run`, `job`, `tool`, `score`, `label`, `tag` (a text or several), `since`, `until`, `cost`,
        `tokens`, `seconds`, `text` and `judges`.
        """
        ids = SessionSearch(self.context).ids(SessionFilter.make(**filters), limit=limit)
        return [self.session(session_id) for session_id in ids]

    def session(self, session_id: str) -> RunSession:
        """The session of this id, or of the beginning of one."""
        return find_session(self.context, session_id)

    def handle(self, run_id: str) -> Run:
        """A handle on a run that exists."""
        notices, self._notices[:] = list(self._notices), []
        return Run(
            run_id,
            self.context.store,
            now=now,
            environment=self.context.settings.user_environment,
            notices=notices,
            resume=self.resume,
            make_report=self._make_report,
        )

    def _make_report(self, run_id: str, format_: str) -> str:
        # Loads templates, which other uses of a handle do not need.
        from proctor.api.reports import make_report

        return make_report(self.context, Scope(run_id=run_id), format_)

    def resume(
        self,
        run_id: str,
        *,
        retry: Retry | None = None,
        budget_usd: float | None = None,
        concurrency: int | None = None,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Execute what is left of a run."""
        ctx = self.context
        changes = BatchChanges(concurrency=concurrency, budget_usd=budget_usd)
        if retry not in RETRIES:
            choices = ", ".join(repr(name) for name in RETRIES if name)
            raise UsageError(f"retry should be one of {choices}, not {retry!r}")

        def work() -> Coroutine[Any, Any, RunResult]:
            return runs.resume(
                ctx,
                run_id,
                changes=changes,
                retry=RETRIES[retry],
                workers=_checked_workers(workers),
                observer=_observer(ctx, progress),
            )

        return self.handle(outside_of_any_loop(work).run_id)


def _checked_workers(workers: int | None) -> int | None:
    if workers is not None and not (isinstance(workers, int) and workers >= 1):
        raise UsageError(f"the number of workers should be at least 1, not {workers}")
    return workers


def _checked_engine(name: EngineName, ray_address: str, keep_going: bool = False) -> EngineOptions:
    if name not in get_args(EngineName):
        raise UsageError(f"the engine should be `local` or `ray`, not {name!r}")
    return EngineOptions(name, ray_address, keep_going)


def _item_maker(
    items: Sequence[Item], agent: str, model: str, overrides: Mapping[str, object]
) -> Callable[[], Iterable[Item]]:
    problems = [f"items have no override {', '.join(overrides)}\nSet it in the items."] if overrides else []
    if not items:
        problems.append("there is nothing to run\nGive at least one item.")
    problems += [problem for number, item in enumerate(items, 1) for problem in _problems_of(item, number)]
    if problems:
        raise UsageError("\n\n".join(problems))

    def filled(item: Item) -> Item:
        if agent and not item.agent:
            item = _with_agent(item, agent)
        return replace(item, model=model) if model and not item.model else item

    return list(_numbered(map(filled, items))).copy


def _with_agent(item: Item, agent: str) -> Item:
    # Without a repository, a function needs no worktree.
    return replace(item, agent=agent, runner="function" if item.runner == "prompt" else item.runner)


def _with_names(item: Item, functions: Functions) -> Item:
    """The same item with names in place of Python functions, which are added to `functions`."""
    if isinstance(item, Item) and callable(item.agent):
        item = _with_agent(item, agent_name(item.agent, functions.agents))
    if isinstance(item, Item) and callable(item.model):
        item = replace(item, model=model_name(item.model, functions.models))
    return item


def _problems_of(item: object, number: int) -> Iterator[str]:
    if not isinstance(item, Item):
        yield f"item {number} is {item!r}\nGive proctor.Item(prompt=…)."
        return
    if not isinstance(item.prompt, str):
        yield f"the prompt of item {number} should be text, not {item.prompt!r}"
    try:
        json.dumps([item.inputs, dict(item.settings), dict(item.factors)], ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        yield f"item {number} cannot be stored: {error}\nUse text, numbers, lists and mappings."
    for name, (is_valid, remedy) in _LIMITS.items():
        value = item.settings.get(name)
        if value is not None and not is_valid(value):
            yield f"`{name}` of item {number} should be {remedy}, not {value!r}"


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_LIMITS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "timeoutSec": (_is_positive, "a positive number of seconds"),
    "retries": (_is_count, "a whole number from 0 on"),
    "retryOn": (
        lambda value: (
            isinstance(value, list | tuple) and all(each in (ERROR, TIMEOUT, FAIL) for each in value)
        ),
        "a list of error, timeout and fail",
    ),
    "budget": (_is_positive, "a positive number of US dollars"),
}
"""Settings of items that every runner reads, whether a value is valid, and what one is."""


def _numbered(items: Iterable[Item]) -> Iterator[Item]:
    """The items, equal ones as repeats of each other, as in a plan file."""
    seen: set[str] = set()
    for item in items:
        while item.id in seen:
            item = replace(item, repeat=item.repeat + 1)
        seen.add(item.id)
        yield item


def opened_store(
    store: "str | Path | ProctorStore | None", home: str | Path | None, folders: Sequence[Path] = ()
) -> ProctorStore:
    """The store to work with: the one that is open, the one at an address, or that of the environment."""
    if isinstance(store, ProctorStore):
        return store
    if store is not None and not isinstance(store, str | Path):
        raise UsageError(
            f"the store is {store!r}, not a store\n"
            "Give proctor.open_store(…), the path of a database, or its address. "
            "A function that makes one, such as a fixture of pytest, has to be called first."
        )
    return ProctorStore(str(store or ""), home=str(home or ""), folders=folders)


def _observer(ctx: RunContext, progress: bool | None) -> Observer:
    if progress is None:
        progress = _is_interactive()
    if not progress:
        return SILENT
    return ProgressBar(lambda run_id: runs.progress_of(ctx, run_id))


def _is_interactive() -> bool:
    """Whether standard error is a terminal or a notebook."""
    from rich.console import Console

    return Console(stderr=True).is_terminal or _is_notebook()


def _is_notebook() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_jupyter
