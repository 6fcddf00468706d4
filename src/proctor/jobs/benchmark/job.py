"""The benchmark job: tasks × models, repeated, and a ranking of the models.

Items are identified by their inputs: more models, tasks or runs extend a benchmark and keep its results.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.agents import find_agent
from proctor.batch.preflight import (
    PreflightContext,
    agent_start,
    check_agent,
    check_agents_model,
    check_sandbox,
    check_start,
    has_own_models,
    missing_program,
    try_all,
)
from proctor.context import ModelOptions, RunContext, WorkerContext
from proctor.errors import UsageError, WorkspaceError
from proctor.item import Item, digest_of
from proctor.job import (
    Job,
    JobPlan,
    NewRun,
    PlanText,
    ReadPlan,
    ResumedPlan,
    RunDocuments,
    RunView,
    Starter,
)
from proctor.jobs.benchmark.models import (
    EVERYTHING,
    BatchSettings,
    Candidate,
    ModelSelection,
    ModelSupply,
    choose,
    read_supply,
    with_discovered,
)
from proctor.jobs.benchmark.plan import (
    DEFAULT_AGENT,
    NOOP,
    ORACLE,
    OWN_MODEL,
    BenchmarkDefinition,
    BenchmarkOverrides,
    agent_choices,
    complete_tasks,
    is_mock,
    mock_candidate,
)
from proctor.jobs.benchmark.results import RESULTS, ResultFolder, find_earlier, new_run_id, write_about
from proctor.json_values import JsonObject
from proctor.models import ModelRouter
from proctor.runner import agent_settings
from proctor.sandbox import MOUNTING, Phase
from proctor.stop_rule import StopRule, read_stop_rule
from proctor.store import RetrySelection
from proctor.store.tables import BatchRow
from proctor.tasks.formats import read_task_set
from proctor.tasks.markdown import Header, read_task
from proctor.tasks.task import MARKDOWN, ReadOptions, Task, TaskSet, network_remark
from proctor.workspace.source_repository import open_source

if TYPE_CHECKING:
    from proctor.batch.program_starts import Start


def inspect(
    benchmark: BenchmarkDefinition,
    context: PreflightContext,
    key_variables: Mapping[str, str],
    *,
    needs_prices: bool,
) -> list[str]:
    """The remarks on a benchmark. Raises `UsageError` with everything it names that is missing.

    `key_variables` name the variable with the key of a model, where that is not its provider's usual one.
    With `needs_prices`, each model must have a price.
    """
    remarks = set[str]()
    problems = [
        *(problem for task in benchmark.tasks for problem in _commands(task, context)),
        *_agents(benchmark, context, remarks),
        *_models(benchmark, context, key_variables, remarks),
        *(_prices(benchmark, context) if needs_prices else ()),
    ]
    if problems:
        raise UsageError("\n\n".join(dict.fromkeys(problems)))
    return sorted(remarks)


def commits_of(tasks: tuple[Task, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The commit that each task with a repository starts from, by the task's name."""
    commits = {}
    for task in tasks:
        if task.repo is None:
            continue
        try:
            commits[task.name] = open_source(task.repo, environment).base_commit(task.ref)
        except WorkspaceError as error:
            raise UsageError(f"{task.file}: {error}\nGive `repo` the path of a git repository.") from error
    return commits


def _commands(task: Task, context: PreflightContext) -> Iterator[str]:
    for command in (task.setup_once, task.setup, *(check.command for check in task.all_commands)):
        word = missing_program(command, context)
        if word and not (task.setup or task.setup_once):
            yield f"{task.file}: there is no program `{word}`, which `{command}` starts with\nInstall it."


def _agents(benchmark: BenchmarkDefinition, context: PreflightContext, remarks: set[str]) -> Iterator[str]:
    seen = set[str]()
    starts: dict[str, Start] = {}
    for item in benchmark.items():
        if not item.agent:
            continue
        for start in _check_starts(item, seen, context):
            starts.setdefault(start.key, start)
        if not _is_new(item, seen):
            continue
        if "places" in item.details and (problem := _unmapped(item, context)):
            yield problem
        remarks |= _exposed(item, context)
        settings, sandbox = agent_settings(item), item.settings.get("sandbox")
        own = agent_start(item, context)
        if own is not None:
            starts.setdefault(own.key, own)
        for problem, remedy in (
            *check_agent(item.agent, settings, context, remarks, is_tried=own is not None),
            *check_agents_model(item.agent, item.model, settings, context),
            *check_sandbox(sandbox, item.agent, settings, context, remarks),
        ):
            yield f"{problem}\n{remedy}" if remedy else problem
    for missing in filter(None, try_all(list(starts.values()), context)):
        yield "\n".join(missing)


def _is_new(item: Item, seen: set[str]) -> bool:
    """Whether an agent with its settings was not seen before: thousands of rows need the same."""
    parts = (
        item.agent,
        item.details.get("settings"),
        item.details.get("script"),
        item.details.get("command"),
        item.details.get("places"),
    )
    return _adds(seen, repr((*parts, item.settings.get("sandbox"))))


def _check_starts(item: Item, seen: set[str], context: PreflightContext) -> "Iterator[Start]":
    """The programs that the checks and the setup of an item begin with."""
    setup = [item.details.get(name) for name in ("setup", "setupOnce")]
    commands: list[tuple[object, Phase]] = [(command, "setup") for command in setup]
    commands += [(check["command"], "check") for check in item.details.get("checks", ())]
    for command, phase in commands:
        key = repr((command, phase, item.settings.get("sandbox"), setup))
        if not isinstance(command, str) or not command or not _adds(seen, key):
            continue
        if start := check_start(command, phase, item, context):
            yield start


def _adds(seen: set[str], key: str) -> bool:
    is_new = key not in seen
    seen.add(key)
    return is_new


def _unmapped(item: Item, context: PreflightContext) -> str:
    """Why the absolute paths of a task cannot be shown to its programs; empty: they can."""
    try:
        kind = context.sandbox.kind_of(item.settings.get("sandbox"))
    except UsageError:
        # `check_sandbox` reports it.
        return ""
    if kind in MOUNTING:
        return ""
    places = ", ".join(item.details["places"])
    return (
        f"{item.details['task']}: its programs use {places}, and only {MOUNTING[0]} can show folders there "
        f"(here: {kind})\nInstall the package `{MOUNTING[0]}`, and do not switch `sandbox` off."
    )


def _exposed(item: Item, context: PreflightContext) -> set[str]:
    """A remark if nothing keeps the agent of an item from reading the answer."""
    try:
        is_confined = context.sandbox.kind_of(item.settings.get("sandbox")) != "none"
    except UsageError:
        # `check_sandbox` reports it.
        return set()
    if is_confined or not {"hidden", "testPatch", "checkFiles"} & item.details.keys():
        return set()
    return {"agents are not confined: they can read hidden tests, reference solutions and your repository"}


def _models(
    benchmark: BenchmarkDefinition,
    context: PreflightContext,
    key_variables: Mapping[str, str],
    remarks: set[str],
) -> Iterator[str]:
    for model in benchmark.models:
        if is_mock(model):
            continue
        choices = {choice for task in benchmark.tasks for choice in benchmark.agents_for(task, model)}
        if all(has_own_models(choice.agent, choice.settings, context) for choice in choices if choice.agent):
            continue
        agents = {choice.agent for choice in choices}
        yield from _model(model, context, key_variables)
        if model.settings and agents != {DEFAULT_AGENT}:
            remarks.add(f"the settings of {model.name} apply to the agent {DEFAULT_AGENT} only")


def _prices(benchmark: BenchmarkDefinition, context: PreflightContext) -> Iterator[str]:
    for model in benchmark.models:
        if is_mock(model):
            continue
        try:
            is_known = context.models.has_price(model.model)
        except UsageError:
            # `_models` reports that it cannot be called.
            continue
        if not is_known:
            yield (
                f"no price is known for {model.name}, so the budget cannot be enforced\n"
                f'Declare it in proctor.toml:  [prices."{model.model}"]  input = 1.0  output = 2.0  '
                "(USD per million tokens)."
            )


def _model(model: Candidate, context: PreflightContext, key_variables: Mapping[str, str]) -> Iterator[str]:
    try:
        context.models.check(model.model)
    except UsageError as error:
        yield str(error)
        return
    variable = key_variables.get(model.model, "")
    missing = variable if variable and not context.environment.get(variable) else ""
    if missing := missing or context.models.missing_key(model.model) or "":
        yield f"{model.name} needs a key, and {missing} is not set\nSet it: export {missing}=…"


# A heading `# Task`, or front matter before a heading.
_TASK = re.compile(r"^#\s*Task\b|\A---\s*$[\s\S]*?^---\s*$\s*^#\s", re.MULTILINE)


MOST_NOT_READ = 20
"""How many parts of task files that were not read are listed before a run."""


class BenchmarkJobPlan(JobPlan):
    """Tasks and settings of a benchmark. Its models are discovered when they are first needed."""

    def __init__(
        self,
        task_set: TaskSet,
        overrides: BenchmarkOverrides,
        ctx: RunContext,
        *,
        path: Path | None,
        output: Path | None = None,
        imports_results: bool = False,
    ) -> None:
        """Without tasks, the items are in the store already. `output` is the folder of the results; with
        `imports_results`, the results in it are taken over although the run is new."""
        self.tasks, self.overrides = complete_tasks(task_set.tasks, overrides), overrides
        self.path, self._ctx = path, ctx
        self.task_set = task_set
        self.output = output
        self.imports_results = imports_results
        self.folders = _folders(path)
        self._configured = read_supply(
            ctx.settings_for(self.folders), self.folders, _as_path(overrides.models_config)
        )
        self._stop_rule = read_stop_rule(overrides.stop_text)
        self._concurrency = _concurrency(overrides.parallel, self.settings.max_parallel)

    @property
    def item_count(self) -> int | None:
        """None: the models are not known before they are discovered."""
        return None

    @property
    def concurrency(self) -> int:
        """Maximum runs in parallel."""
        return self._concurrency

    @property
    def stop_rule(self) -> StopRule | None:
        """When the benchmark stops early; None: it runs to its end."""
        return self._stop_rule

    @property
    def settings(self) -> BatchSettings:
        """`batch_settings` of models_config.yaml."""
        return self._configured.config.settings

    @cached_property
    def supply(self) -> ModelSupply:
        """The models to choose from, discovered unless only mocks run."""
        selects = self._selects and not self._uses_own_models
        return with_discovered(self._configured) if selects else self._configured

    @property
    def _mocks(self) -> list[str]:
        options = ((ORACLE, self.overrides.oracle), (NOOP, self.overrides.noop))
        return [name for name, is_wanted in options if is_wanted]

    @property
    def _selects(self) -> bool:
        is_asked = self.overrides.models or agent_choices(self.overrides.agent) or not self._mocks
        return bool(self.tasks) and bool(is_asked)

    @property
    def _uses_own_models(self) -> bool:
        """Whether no model is named, and all agents have one of their own."""
        choices = agent_choices(self.overrides.agent)
        if not choices or self.overrides.models or self.task_set.models:
            return False
        context = PreflightContext(
            environment=self._ctx.settings.user_environment,
            find_agent=find_agent,
            models=self._ctx.models(replace(self.model_options(), record=None)),
        )
        return all(has_own_models(choice.agent, choice.settings, context) for choice in choices)

    @cached_property
    def selection(self) -> ModelSelection:
        """The models that run."""
        mocks = tuple(mock_candidate(name) for name in self._mocks)
        if not self._selects:
            return ModelSelection(models=mocks)
        if self._uses_own_models:
            return ModelSelection(models=(*mocks, OWN_MODEL))
        models = self._ctx.models(replace(self.model_options(), record=None))
        selection = choose(
            self.overrides.models or ",".join(self.task_set.models) or EVERYTHING,
            self.supply.candidates(),
            self.supply.config.categories,
            lambda word: self.supply.other(models, word),
        )
        return ModelSelection(models=(*mocks, *selection.models), remarks=selection.remarks)

    @cached_property
    def definition(self) -> BenchmarkDefinition:
        """Tasks × models × runs."""
        settings = self.settings
        return BenchmarkDefinition(
            tasks=self.tasks,
            models=self.selection.models,
            runs=self.overrides.runs or 1,
            agents=agent_choices(self.overrides.agent),
            task_network=self.overrides.task_network,
            path=self.path,
            timeout_seconds=self.overrides.timeout,
            default_timeout_seconds=settings.default_timeout,
            retries=settings.max_retries if settings.retry_on_failure else 0,
            sandbox=settings.sandbox,
            resources=settings.resources,
            commits=commits_of(self.tasks, self._ctx.settings.user_environment),
        )

    def begin_run(self, run_id: str, ctx: RunContext) -> NewRun:
        """Create the folder of the results. A new run is called `batch_<yyyymmdd_HHMMSS>`."""
        run_id = run_id or new_run_id(ctx.store, ctx.now())
        self.output = _as_path(self.overrides.output) or self.output or RESULTS / run_id
        write_about(self.output, run_id, self._options())
        return NewRun(run_id=run_id, plan=self)

    def for_run(self, batch: BatchRow, ctx: RunContext) -> ResumedPlan:  # noqa: ARG002
        """The plan with the folder of an earlier run, unless another is set."""
        stored = json.loads(batch["optionsJson"]).get("output")
        output = _as_path(self.overrides.output) or self.output or _as_path(stored)
        self.output = output or RESULTS / batch["runId"]
        return ResumedPlan(plan=self)

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        record, replay = self.overrides.record, self.overrides.replay
        return ModelOptions(
            folders=self.folders,
            prices=self._configured.prices,
            record=str(record) if record else None,
            replay=str(replay) if replay else None,
            variables=self._configured.variables,
            outage_patience_seconds=self.settings.outage_patience,
        )

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the benchmark."""
        text = "\n\n".join(task.prompt for task in self.tasks)
        defaults = {"agent": self.overrides.options()["agent"] or None, "runs": self.definition.runs}
        options = self._options()
        return {
            "planPath": options["taskPath"],
            "planText": text,
            "planDigest": digest_of(text),
            "defaultsJson": json.dumps(defaults),
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.concurrency,
            "budgetUsd": self.overrides.budget,
        }

    def _options(self) -> JsonObject:
        config = self.supply.config_path
        chosen = [model.name for model in self.selection.models if model != OWN_MODEL and not is_mock(model)]
        names = ",".join(chosen)
        return {
            "task": self.definition.label,
            "taskPath": str(self.path.absolute()) if self.path else "",
            "modelsConfig": str(config.absolute()) if config else "",
            "output": str(self.output.absolute()) if self.output else "",
            "asked": {"models": names, "runs": self.definition.runs, **self.overrides.options()},
        }

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that programs, agents, models, keys and prices exist."""
        if not self.tasks:
            return ()
        remarks = inspect(
            self.definition,
            PreflightContext(
                environment=ctx.settings.user_environment,
                find_agent=find_agent,
                models=models,
                sandbox=ctx.settings.confinement,
            ),
            self.supply.key_variables,
            needs_prices=self.overrides.budget is not None,
        )
        silent = self.supply.discovered.silent if self.supply.discovered else {}
        unlisted = [f"{name} did not list its models: {reason}" for name, reason in silent.items()]
        return (*self._task_remarks(), *self.selection.remarks, *unlisted, *remarks)

    def _task_remarks(self) -> Iterator[str]:
        """What was read, where that is not our own format alone."""
        if self.path and (set(self.task_set.formats) != {MARKDOWN} or self.task_set.not_read):
            yield self.task_set.summary(self.path)
        if remark := network_remark(self.tasks, allowed=self.overrides.task_network):
            yield remark
        yield from (f"not read: {each}" for each in self.task_set.not_read[:MOST_NOT_READ])

    def items(self) -> Iterator[Item]:
        """The items, run by run."""
        return self.definition.items()


class BenchmarkJob(Job):
    """`proctor bench`."""

    name = "benchmark"
    title = "Benchmark task"
    plan_model = Header
    overrides = BenchmarkOverrides
    starters = (
        Starter(
            file="benchmark.md", title="Benchmark task", overrides={"models": "scripted/echo,scripted/ok"}
        ),
    )
    view = RunView(
        noun="run",
        analysis_title="Open ranking",
        item_columns=(
            "status",
            "factor:task",
            "model",
            "answer",
            "score:*",
            "repeat",
            "seconds",
            "toolCalls",
            "costUsd",
        ),
        narrow_item_columns=("status", "factor:task", "model"),
    )

    def recognizes(self, text: str) -> int:
        """More than any number of keys when a text is a Markdown task."""
        return 1000 if _TASK.search(text) else 0

    def read(self, source: PlanText, overrides: BenchmarkOverrides, ctx: RunContext) -> BenchmarkJobPlan:
        """Read a task, or all tasks in a folder; a text without a path is one task."""
        if source.path is not None:
            task_set = read_task_set(source.path, _reading(overrides, ctx))
            return BenchmarkJobPlan(task_set, overrides, ctx, path=source.path)
        with tempfile.TemporaryDirectory(prefix="proctor-task-") as folder:
            file = Path(folder) / "task.md"
            text = source.text if isinstance(source.text, bytes) else source.text.encode("utf-8", "replace")
            file.write_bytes(text)
            task = replace(read_task(file), file=source.folder / file.name)
        return BenchmarkJobPlan(TaskSet(tasks=(task,)), overrides, ctx, path=None)

    def read_to_resume(
        self, source: PlanText, overrides: BenchmarkOverrides, ctx: RunContext, run_id: str
    ) -> ReadPlan:
        """Read a benchmark with its earlier run, by its ID or folder; what is not set is as it was there.

        The folder of a benchmark that is not in the store becomes a new run.
        """
        earlier = find_earlier(ctx.store, run_id, _as_path(overrides.output))
        path = source.path or _as_path(earlier.options.get("taskPath"))
        if path is None:
            raise no_task()
        plan = self.read(replace(source, path=path), overrides.with_defaults(earlier.options), ctx)
        plan.output, plan.imports_results = earlier.path, True
        if earlier.is_known:
            return ReadPlan(job=self, plan=plan, earlier=earlier.run_id)
        return ReadPlan(job=self, plan=plan, run_id=earlier.run_id)

    def restore(self, batch: BatchRow, ctx: RunContext) -> BenchmarkJobPlan:
        """The benchmark of a run; its task is checked again if it still exists."""
        options = json.loads(batch["optionsJson"])
        overrides = replace(BenchmarkOverrides().with_defaults(options), parallel=batch["concurrency"])
        path = _as_path(options["taskPath"])
        is_there = path is not None and path.exists()
        task_set = read_task_set(path, _reading(overrides, ctx)) if path and is_there else TaskSet(tasks=())
        plan = BenchmarkJobPlan(task_set, overrides, ctx, path=path)
        plan.for_run(batch, ctx)
        return plan

    def retried(self, run_id: str, retry: RetrySelection, ctx: RunContext) -> RetrySelection:  # noqa: ARG002
        """Errors too, always."""
        return replace(retry, errors=True)

    def attempts(
        self,
        plan: JobPlan,
        run_id: str,  # noqa: ARG002
        ctx: RunContext,
        models: ModelRouter,
    ) -> WorkerContext:
        """Dependencies of the attempts, with the configured keys, so that they are redacted."""
        assert isinstance(plan, BenchmarkJobPlan)
        attempts = ctx.attempts(models)
        return replace(attempts, environment={**plan.supply.variables, **attempts.environment})

    def hooks(self, plan: JobPlan, run_id: str, ctx: RunContext) -> ResultFolder:
        """The result files and the comparison."""
        assert isinstance(plan, BenchmarkJobPlan) and plan.output
        return ResultFolder(
            plan.output,
            run_id,
            ctx,
            ollama_models=plan.supply.ollama,
            saves_intermediate=plan.settings.save_intermediate,
            imports_results=plan.imports_results,
        )

    def documents(self, run_id: str, ctx: RunContext) -> RunDocuments:
        """The leaderboard is its analysis."""

        def analysis() -> str:
            # Loads numpy, which runs do not need.
            from proctor.jobs.benchmark.leaderboard import compare
            from proctor.jobs.benchmark.report import benchmark_html

            return benchmark_html(compare(ctx.store.read, run_id, ctx.now()), {}, ctx.now())

        return RunDocuments(analysis=analysis)


JOB = BenchmarkJob()


def _reading(overrides: BenchmarkOverrides, ctx: RunContext) -> ReadOptions:
    """How tasks are read; the judge of `[evaluation]` judges rubrics that have no other."""
    options = overrides.reading()
    return replace(options, judge=options.judge or str(ctx.settings.evaluation.get("judge", "")))


def no_task() -> UsageError:
    """The error for a benchmark without a path."""
    return UsageError("no task is given\nGive one:  proctor bench --task benchmark/tasks/easy/fix_typo.md")


def _concurrency(parallel: int | str | None, default: int) -> int:
    if parallel is None:
        return 1
    if parallel == "auto":
        return default
    text = str(parallel)
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--parallel takes a number, not {text}\nWithout a number it means {default}.")
    return int(text)


def _folders(task: Path | None) -> tuple[Path, ...]:
    """Where a benchmark's files are looked up: beside its tasks, above them, and in the working folder."""
    if task is None:
        return (Path.cwd(),)
    start = task.absolute() if task.is_dir() else task.absolute().parent
    tasks = next((folder for folder in (start, *start.parents) if folder.name == "tasks"), None)
    return tuple(dict.fromkeys([start, *([tasks.parent] if tasks else []), Path.cwd()]))


def _as_path(path: str | Path | None) -> Path | None:
    return Path(path) if path else None
