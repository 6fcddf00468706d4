"""The contract of a job: how one kind of plan is read, checked and expanded, and what follows its items.

A job is one package in `jobs/`. `batch/lifecycle.py` drives every job through the same order of events and
compares no job names. What differs between jobs is in three classes: `Job`, `JobPlan` and `RunHooks`.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

# Pydantic describes the states of stop rules over HTTP; those of `typing` only since Python 3.12.
from proctor.context import ModelOptions, RunContext, WorkerContext
from proctor.errors import UsageError
from proctor.formatting import snake_case
from proctor.frozen import fast_init
from proctor.item import Item
from proctor.json_values import without_none
from proctor.models import ModelRouter
from proctor.runner import Outcome
from proctor.stop_rule import StopRule
from proctor.store import Resource, RetrySelection
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from pydantic import BaseModel

    from proctor.document import Document
    from proctor.evaluator import FindReference


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanText:
    """The text of a plan and where it comes from."""

    text: str | bytes
    path: Path | None = None
    """The file it was read from; None: typed or built in memory."""
    folder: Path
    """Where its relative paths begin."""
    caller: str = ""
    """The function or class of Python whose arguments the overrides are; empty: flags."""

    @property
    def file(self) -> str:
        """Its name in error messages."""
        return str(self.path) if self.path else "plan"

    @property
    def decoded(self) -> str:
        """The text, with a replacement for what is not UTF-8."""
        return self.text if isinstance(self.text, str) else self.text.decode("utf-8", "replace")

    @property
    def stored_path(self) -> str:
        """The absolute path for the record; empty when there is no file."""
        return str(self.path.resolve()) if self.path else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step of an attempt, such as a turn, that is committed."""

    item_id: str
    session_id: str
    number: int
    """Counted from 1 in each attempt; 0: the attempt has begun."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFinished:
    """An item that reached its final status, sent to observers after the commit."""

    id: str
    item: Item
    session_id: str
    outcome: Outcome
    attempts: int
    tokens: int
    cost_usd: float | None
    work_seconds: float
    """Of the last attempt; of a coding session the agent's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """How a batch ended."""

    status: str
    """`completed`, `aborted`, `halted` or `interrupted`."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What makes items alike for a prediction of cost and time."""

    agent: str
    """Empty: the model is called directly."""
    model: str
    task: str = ""
    """The task, scenario, pair of roles or evaluator."""


def work_of(items: Iterable[Item]) -> Mapping[Work, int]:
    """Number of items by agent, model and task."""
    return Counter(Work(item.agent, item.model, task_name(item.factors, item.prompt)) for item in items)


LONGEST_TASK_NAME = 100


def task_name(factors: Mapping[str, object], prompt: str) -> str:
    """The task of an item: its evaluator, the task it names, or the beginning of its prompt."""
    return str(factors.get("evaluator") or factors.get("task") or prompt[:LONGEST_TASK_NAME])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """Expected size and cost of a plan."""

    item_count: int
    cost_usd: float | None
    """None: unknown."""
    basis: str
    """What the estimate is based on, as a sentence."""
    workload: Mapping["Work", int]
    """Its items by agent, model and task, for the prediction from like sessions, which is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """An example plan for editors. It runs with no key and no network."""

    file: str
    """In the folder `starters` of the job's package. `{examples}` is the folder of the installed examples,
    `{unique}` a name that no other run has."""
    title: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Overrides it needs, named as `make_overrides` reads them."""


RUN_ID = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"


def check_run_id(run_id: str) -> None:
    """Raise `UsageError` for a name that no run can have."""
    if not re.fullmatch(RUN_ID, run_id):
        raise UsageError(f"{run_id} is not a valid run ID\nIt may have letters, digits and . _ -")


MOST_CONCURRENT = 100_000
BATCHED_AT_ONCE = 1000
"""Items at once by default where all their calls are sent as provider batches, and only wait."""
"""Items of a run at once."""


def check_limits(*, concurrency: object = None, budget_usd: object = None) -> None:
    """Raise `UsageError` for a concurrency or a budget that cannot be enforced. None: not set."""
    if concurrency is not None and not (isinstance(concurrency, int) and concurrency >= 1):
        raise UsageError(f"the concurrency should be at least 1, not {concurrency}")
    if isinstance(concurrency, int) and concurrency > MOST_CONCURRENT:
        raise UsageError(f"the concurrency should be at most {MOST_CONCURRENT:,}, not {concurrency}")
    # `nan` would compare as within every budget.
    if budget_usd is not None and not (
        isinstance(budget_usd, int | float) and 0 <= budget_usd < float("inf")
    ):
        raise UsageError(f"the budget should be a number of dollars, not {budget_usd}")


class JobPlan:
    """One plan of a job, checked by itself. Subclasses fill in what differs."""

    @property
    def run_id(self) -> str:
        """The run id the plan sets; empty: a new one is made."""
        return ""

    @property
    def item_count(self) -> int | None:
        """Number of items, without making them; None: only known once it runs."""
        return None

    @property
    def concurrency(self) -> int:
        """Maximum items in parallel, as the columns have it."""
        concurrency = self.columns().get("concurrency")
        return concurrency if isinstance(concurrency, int) else 1

    @property
    def stop_rule(self) -> StopRule | None:
        """When the run stops early; None: it runs to its end."""
        return None

    def refusal(self, path: Sequence[str | int], error: UsageError) -> UsageError:  # noqa: ARG002
        """An error about the plan's setting at `path`, with its place where the plan is a file."""
        return error

    def begin_run(self, run_id: str, ctx: RunContext) -> "NewRun":
        """Prepare a new run of the plan, called `run_id`; empty: a name that is new. What depends on the run,
        such as its output folder, is created here; its row in the store afterward.

        Raises `UsageError` when that is not possible.
        """
        name = run_id or f"run-{ctx.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        return NewRun(run_id=name, plan=self)

    def for_run(self, batch: BatchRow, ctx: RunContext) -> "ResumedPlan":  # noqa: ARG002
        """The plan with what depends on its run, to extend an earlier one."""
        return ResumedPlan(plan=self)

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return ModelOptions()

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the plan and its options."""
        return {}

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:  # noqa: ARG002
        """Preflight check: raise `PlanError` or `UsageError` with everything the plan names that is missing;
        the remarks otherwise. Calls no model."""
        return ()

    def estimate(self, ctx: RunContext) -> "PlanEstimate | None":  # noqa: ARG002
        """Size and cost from what the plan names, for as long as there are no sessions to predict them from;
        None: unknown until then. Calls no model."""
        return None

    def resources(self) -> Iterator[Resource]:
        """Texts that its items refer to by digest; stored with the run before its items start."""
        return iter(())

    def items(self) -> Iterator[Item]:
        """The items in plan order, made lazily. The same plan gives the same ids."""
        return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run of a plan that is about to start."""

    run_id: str
    plan: JobPlan | None
    """The plan with what depends on the run. None: the run is in the store already, its items are added by
    `RunHooks.begin`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedPlan:
    """A plan that extends an earlier run."""

    plan: JobPlan
    is_unchanged: bool = False
    """Whether the run was made from exactly this plan, so that it need not be extended."""
    derived_fields: frozenset[str] = frozenset()
    """Item fields that only repeat others: never a reason why an item is new."""


class RunHooks:
    """What a job adds to a run: called by the driver, in order, one call at a time.

    The store is the truth; files follow it after each commit. This base class adds nothing.
    """

    def implements(self, method: str) -> bool:
        """Whether a method is not the default of this class, so that it is worth calling."""
        return getattr(type(self), method) is not getattr(RunHooks, method)

    def begin(self, *, resumed: bool) -> BatchEnd | None:  # noqa: ARG002
        """Bring the output in sync with the store before the first item starts.

        A `BatchEnd` says that there is nothing to execute.
        """
        return None

    def step_finished(self, step: StepFinished) -> None:
        """Follow a step of an item, after its commit. The steps of an attempt come in order; one that another
        step or the end of the item has followed by then is left out."""

    def item_finished(self, item: ItemFinished) -> None:
        """Follow an item that has finished, after its commit."""

    def finish(self, end: BatchEnd) -> Mapping[str, object]:  # noqa: ARG002
        """Bring the output in sync at the end; members the run's summary gets in addition."""
        return {}

    def checkpoint(self, item_id: str) -> object | None:  # noqa: ARG002
        """The checkpoint at which an item that was attempted before resumes; None: it starts over.

        It must be possible to pickle it.
        """
        return None

    def ground_truth(self) -> "FindReference | None":
        """Finds the ground truth of the sessions that items evaluate; None: there is none."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """How commands and pages show the runs of a job."""

    noun: str = "item"
    """What one of its items is called in messages."""
    is_comparison: bool = True
    """Whether runs tell which model, or agent, is best: pages say who leads, and what would decide it."""
    analysis_title: str = ""
    """The name of the link to the analysis of a run; empty: the job has none."""
    speakers: Sequence[str] = ()
    """The roles in its transcripts, each shown on a side of its own; empty: prompt, model and tools."""
    steps_are_turns: bool = False
    """Whether the steps of its sessions are turns."""
    column_titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of item columns that differ from those of other jobs, by key: `prompt`, `factor:model`."""
    item_columns: Sequence[str] = (
        "status",
        "repo",
        "prompt",
        "agent",
        "model",
        "answer",
        "score:*",
        "seconds",
        "costUsd",
    )
    """Columns of its lists of items, by key. `factor:*` and `score:*`: all; empty ones are left out."""
    narrow_item_columns: Sequence[str] = ("status", "prompt", "seconds")
    """The same on a phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocuments:
    """What a job has to say of a run, besides what is said of every run; None: nothing. Each is made when it
    is called."""

    report: "Callable[[], Document] | None" = None
    results: "Callable[[], Document | None] | None" = None
    """The results so far, as the page of the run shows them; the call returns None while there are none."""
    analysis: Callable[[], str] | None = None
    """One HTML page. Raises `NotFound` or `UsageError` while there is nothing to analyze."""


class Job:
    """One kind of plan. Implementations are `jobs/NAME/job.py`, each with an instance called `JOB`."""

    name: ClassVar[str]
    """As in the store."""
    title: ClassVar[str]
    plan_model: ClassVar["type[BaseModel] | None"] = None
    """The model of a plan's text, for its schema and to recognize it. None: its runs come from elsewhere and
    can be neither started nor resumed."""
    overrides: ClassVar[Any]
    """Frozen dataclass of the settings that command line, page, HTTP and library share. A job without one of
    its own has that of the settings of `plan_model` that are marked as flags."""
    starters: ClassVar[Sequence[Starter]] = ()
    evaluates_sessions: ClassVar[bool] = False
    """Whether its items evaluate recorded sessions, to which their scores and labels then belong."""
    view: ClassVar[RunView] = RunView()

    def __init_subclass__(cls) -> None:
        if cls.plan_model and "overrides" not in vars(cls):
            # pydantic, which this module does not need.
            from proctor.plan.validate import overrides_of

            cls.overrides = overrides_of(cls.plan_model)

    def recognizes(self, text: str) -> int:
        """How many top-level keys of a text only plans of this job have; 0: it is not one."""
        # Not the schema, which takes a hundredth of a second to make.
        fields = self.plan_model.model_fields.items() if self.plan_model else ()
        return len(top_level_keys(text) & {field.alias or name for name, field in fields})

    def read(self, source: PlanText, overrides: Any, ctx: RunContext) -> JobPlan:
        """Read and check a plan. Raises `PlanError` with every problem; starts nothing."""
        raise NotImplementedError

    def read_to_resume(self, source: PlanText, overrides: Any, ctx: RunContext, run_id: str) -> "ReadPlan":
        """Read a plan with the run that it resumes: `run_id`; empty: the latest run of the plan.

        Raises `UsageError` when there is none.
        """
        plan = self.read(source, overrides, ctx)
        if run_id := run_id or plan.run_id:
            return ReadPlan(job=self, plan=plan, earlier=ctx.store.read.batch(run_id, ctx.now())["runId"])
        path, digest = (str(plan.columns().get(name) or "") for name in ("planPath", "planDigest"))
        earlier = ctx.store.read.batch_of_plan(path, digest)
        if earlier is None:
            raise UsageError(
                "there is no earlier run of this plan to resume\nRun it without --resume, or name the run."
            )
        return ReadPlan(job=self, plan=plan, earlier=earlier)

    def restore(self, batch: BatchRow, ctx: RunContext) -> JobPlan:
        """The plan of a run, from its row in the store alone, to resume it."""
        raise NotImplementedError

    def retried(self, run_id: str, retry: RetrySelection, ctx: RunContext) -> RetrySelection:  # noqa: ARG002
        """The finished items that resuming a run executes again, of those that were asked for.

        Raises `UsageError` for a run that has nothing left to do, if the job refuses to resume it.
        """
        return retry

    def attempts(
        self,
        plan: JobPlan,  # noqa: ARG002
        run_id: str,  # noqa: ARG002
        ctx: RunContext,
        models: ModelRouter,
    ) -> WorkerContext:
        """Dependencies of the attempts of a run."""
        return ctx.attempts(models)

    def hooks(self, plan: JobPlan, run_id: str, ctx: RunContext) -> RunHooks:  # noqa: ARG002
        """What the job adds to a run while it is executed, such as files."""
        return RunHooks()

    def documents(self, run_id: str, ctx: RunContext) -> RunDocuments:  # noqa: ARG002
        """What the job has to say of a run."""
        return RunDocuments()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A plan that was read and checked by itself, and the run that it becomes."""

    job: Job
    plan: JobPlan
    earlier: str = ""
    """The run that it extends and resumes; empty: a new run."""
    run_id: str = ""
    """Name of the new run; empty: the plan's own, or a new one."""
    imported_ids: Collection[str] | None = None
    """Items whose results the new run begins with; None: it begins with none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChanges:
    """Settings of a resumed run that change from now on; None: as before."""

    concurrency: int | None = None
    budget_usd: float | None = None
    stops_early: bool = True
    """False: execute all that is left, although the rule of the run is decided."""

    def __post_init__(self) -> None:
        check_limits(concurrency=self.concurrency, budget_usd=self.budget_usd)

    def columns(self) -> dict[str, object]:
        """The changed columns of the batch row."""
        values = {"concurrency": self.concurrency, "budgetUsd": self.budget_usd}
        return without_none(values)


SYNONYMS = (
    ("concurrency", "max_parallel", "max_workers", "parallel"),
    ("budget", "budget_usd", "budget_limit"),
    ("timeout", "timeout_sec"),
    ("runs", "num_runs"),
    ("name", "batch_evaluation_name"),
)
"""Names of one setting: configs, flags, pages and Python have grown different ones."""


def make_overrides(job: Job, values: Mapping[str, object]) -> Any:
    """The overrides of a job from loosely named values: `timeoutSec`, `timeout_sec` and its synonyms are one.

    Raises `UsageError` with all names the job does not have. Values that are None are left out.
    """
    known = {each.name for each in fields(job.overrides)}
    arguments: dict[str, object] = {}
    unknown: list[str] = []
    for name, value in values.items():
        target = snake_case(name)
        if target not in known:
            others = (each for names in SYNONYMS if target in names for each in names if each in known)
            target = next(others, "")
        if not target:
            unknown.append(name)
        elif value is not None:
            arguments[target] = value
    if unknown:
        problems = "\n".join(f"{job.title}: there is no setting `{name}` to override" for name in unknown)
        raise UsageError(f"{problems}\n{nearest(unknown, known)}There are: {', '.join(sorted(known))}.")
    return job.overrides(**arguments)


def nearest(names: Iterable[str], known: Collection[str]) -> str:
    """Which known settings were probably meant, as a question; empty: none."""
    meant = dict.fromkeys(
        match for name in names for match in get_close_matches(snake_case(name), sorted(known), n=1)
    )
    return f"Did you mean {' and '.join(f'`{name}`' for name in meant)}? " if meant else ""


SCHEMA = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of schemas."""


def plan_schema(job: Job) -> Mapping[str, object]:
    """JSON Schema of the plans of a job; nothing is valid where there are none."""
    model = job.plan_model
    return {"$schema": SCHEMA, **model.model_json_schema()} if model else {"not": {}}


def top_level_keys(text: str) -> set[str]:
    """The keys at the top of a YAML text, however unfinished it is."""
    return set(re.findall(r"^([A-Za-z_][\w-]*)\s*:", text, re.MULTILINE))


@dataclass(frozen=True, kw_only=True)
class StoredPlan(JobPlan):
    """The plan of a run that resumes from the store alone: its items exist already."""

    options: ModelOptions = field(default_factory=ModelOptions)

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return self.options
