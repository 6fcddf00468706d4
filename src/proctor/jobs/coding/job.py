"""The coding job: repositories × prompts × agents, or plain prompts."""

import hashlib
import itertools
import json
import os
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from proctor import secrets
from proctor.batch.preflight import (
    PreflightContext,
    agent_start,
    check_agent,
    check_agents_model,
    check_model,
    check_sandbox,
    check_start,
    has_own_models,
    missing_program,
    prepares,
    program_of,
    try_all,
    uses_gateway,
)
from proctor.context import ModelOptions, RunContext
from proctor.errors import Place, PlanError, Problem, UsageError, WorkspaceError
from proctor.item import Item
from proctor.job import BATCHED_AT_ONCE, Job, JobPlan, PlanText, ResumedPlan, Starter, StoredPlan
from proctor.jobs.coding.grid import AXES, Layout, expand, lay_out, representatives
from proctor.jobs.coding.plan import NO_OVERRIDES, Checker, Overrides
from proctor.jobs.coding.schema import (
    BUILT_IN,
    DEFAULT_AGENT,
    DEFAULT_CONCURRENCY,
    CodingPlanFile,
    vocabulary,
    with_agent,
)
from proctor.json_values import JsonMap, JsonObject, without_none
from proctor.models import ModelRouter
from proctor.plan.source import KeyPath, PlanSource, refuse, resolved
from proctor.plan.validate import as_list, check_shape, stop_settings
from proctor.plan.yaml_loader import read_source
from proctor.runner import agent_settings
from proctor.sandbox import Phase
from proctor.stop_rule import StopRule, make_stop_rule
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.batch.program_starts import Start
    from proctor.workspace.source_repository import SourceRepository

Finding = tuple[str, str, str]
"""The plan's key, what is wrong with it, and the remedy."""


class ItemCheck:
    """What items name must exist. Looks each thing up once, however many items name it."""

    def __init__(self, context: PreflightContext, has_budget: bool, agent_models: Sequence[str] = ()) -> None:
        self._context = context
        self._agent_models = agent_models
        self._has_budget = has_budget
        self._seen: set[object] = set()
        self._starts: list[tuple[Item, str, Start]] = []
        self.remarks: set[str] = set()

    def at(self, item: Item) -> Iterator[Finding]:
        """What is wrong with an item and was not reported before."""
        details, settings = item.details, item.settings
        if repo := settings.get("repo"):
            yield from self._once(self._repository, repo, details["baseBranch"])
            program = _ByValue(agent_settings(item))
            yield from self._once(self._agent, item.agent, program, self._is_tried(item))
            yield from self._once(self._agents_model, item.agent, item.model, program)
            yield from self._once(self._agents_prompt, item.agent, item.prompt, item.model, program)
            if not item.model:
                yield from self._once(self._request, item.agent, program)
            yield from self._once(self._sandbox, _ByValue(settings.get("sandbox")), item.agent, program)
            for key in ("scriptCommand", "setup", "setupOnce"):
                if key in details:
                    yield from self._once(self._command, key, details[key], prepares(item))
                    phase: Phase = "check" if key == "scriptCommand" else "setup"
                    self._add_start(key, check_start(details[key], phase, item, self._context))
            if not prepares(item):
                base = details["baseBranch"]
                yield from self._once(self._agents_file, repo, base, program_of(details.get("command")))
                yield from self._once(self._checks_file, repo, base, program_of(details.get("scriptCommand")))
        elif item.agent:
            yield from self._once(self._agent, item.agent, _ByValue(agent_settings(item)))
        if item.model and (not item.agent or self._calls_models(item)):
            yield from self._once(self._model, item.model)
        if "env" in details:
            yield from self._once(self._variables, tuple(details["env"].items()))
        if "expect" in details:
            yield from self._once(self._expectation, repr(details["expect"]), details["expect"])

    def _once(self, check: Callable[..., Iterator[Finding]], *arguments: object) -> Iterator[Finding]:
        key = (check.__name__, *(each for each in arguments if not isinstance(each, dict)))
        if key not in self._seen:
            self._seen.add(key)
            yield from check(*arguments)

    def _repository(self, repo: str, base: str) -> Iterator[Finding]:
        # Loaded here: plans of plain prompts have no repository.
        from proctor.git import is_address
        from proctor.workspace.source_repository import address_problem, open_source

        if is_address(repo):
            if problem := address_problem(repo, self._context.environment, base):
                yield "repo", problem, "Check the address, and that git can read it without a question."
            return
        try:
            source = open_source(Path(repo), self._context.environment)
        except WorkspaceError as error:
            yield "repo", str(error), "Give the path of a git repository."
            return
        try:
            source.base_commit(base)
        except WorkspaceError as error:
            problem, _, branches = str(error).partition(". ")
            yield "baseBranch", problem, branches
            return
        if remark := source.base_remark(base):
            self.remarks.add(remark)
        if problem := source.partial_problem(base):
            yield (
                "repo",
                problem,
                f"Check the connection:  git -C {shlex.quote(repo)} ls-remote {source.promisor}",
            )
        if problem := source.write_problem():
            yield "repo", problem, "Sessions add their branches to it."

    def _calls_models(self, item: Item) -> bool:
        return not has_own_models(item.agent, _ByValue(agent_settings(item)).value, self._context)

    def _is_tried(self, item: Item) -> bool:
        """Whether the program of an item's agent is started before the first item."""
        return self._add_start("agent", agent_start(item, self._context))

    def _add_start(self, key: str, start: "Start | None") -> bool:
        if start is not None and start.key not in self._seen:
            self._seen.add(start.key)
            self._starts.append((start.item, key, start))
        return start is not None

    def unstarted(self) -> Iterator[tuple[Item, Finding]]:
        """The programs of the items so far that do not start; each is started once."""
        tried = try_all([start for _, _, start in self._starts], self._context)
        for (item, key, _), missing in zip(self._starts, tried, strict=True):
            if missing is not None:
                yield item, (key, *missing)

    def _agent(
        self, name: str, settings: "_ByValue[JsonObject]", is_tried: bool = False
    ) -> Iterator[Finding]:
        for problem, remedy in check_agent(
            name, settings.value, self._context, self.remarks, is_tried=is_tried
        ):
            yield "agent", problem, remedy

    def _agents_prompt(
        self, name: str, prompt: str, model: str, settings: "_ByValue[JsonObject]"
    ) -> Iterator[Finding]:
        try:
            agent = self._context.find_agent(name, settings.value)
        except UsageError:
            return
        if problem := agent.problem(name, prompt, model):
            yield problem

    def _request(self, name: str, settings: "_ByValue[JsonObject]") -> Iterator[Finding]:
        """Models that an agent may request from the gateway, where its item has none."""
        if not self._agent_models and uses_gateway(name, settings.value, self._context):
            self.remarks.add(
                f"the agent {name} has no `model`, and the plan no `models` that it may request: "
                "the gateway rejects its calls"
            )
        yield from ()

    def agent_models(self) -> Iterator[Finding]:
        """What is wrong with the models that agents may request."""
        for model in self._agent_models:
            try:
                self._context.models.check_request(model)
            except UsageError as error:
                yield "models", error.problem, error.remedy
                continue
            for problem, remedy in check_model(model, self._context.models, needs_price=self._has_budget):
                yield "models", problem, remedy

    def _agents_model(self, name: str, model: str, settings: "_ByValue[JsonObject]") -> Iterator[Finding]:
        for problem, remedy in check_agents_model(name, model, settings.value, self._context):
            yield "model", problem, remedy

    def _sandbox(
        self, own: "_ByValue[object]", agent: str, settings: "_ByValue[JsonObject]"
    ) -> Iterator[Finding]:
        for problem, remedy in check_sandbox(own.value, agent, settings.value, self._context, self.remarks):
            yield "sandbox", problem, remedy

    def _command(self, key: str, command: str, prepared: bool) -> Iterator[Finding]:
        word = missing_program(command, self._context)
        if not word:
            return
        problem = f"there is no program `{word}`, with which `{command}` begins"
        if prepared:
            self.remarks.add(f"{problem}; `setup` must install it")
        else:
            yield key, problem, f"Install {word}, or add a `setup` command that does."

    def _agents_file(self, repo: str, base: str, program: str) -> Iterator[Finding]:
        """A program of an agent that is named by a relative path starts in the worktree."""
        source = self._without(repo, base, program)
        if source is not None:
            whole = Path.cwd() / program
            remedy = (
                f"Write its whole path: {whole.resolve()}" if whole.is_file() else "Write its whole path."
            )
            yield "command", f"`{program}` is not a file of {source.root} at {base}", remedy

    def _checks_file(self, repo: str, base: str, program: str) -> Iterator[Finding]:
        """A program of a check that git ignores is in the user's checkout, and in no worktree. An agent may
        make any other one."""
        source = self._without(repo, base, program)
        if source is None or source.git.run("check-ignore", "--quiet", "--", program)[0]:
            return
        own = source.root / program
        if os.path.lexists(own):
            problem = f"`{program}` is in your checkout, and git ignores it: a worktree does not have it"
            yield (
                "scriptCommand",
                problem,
                f"Add a `setup` command that makes it, or write its whole path: {own}",
            )

    def _without(self, repo: str, base: str, program: str) -> "SourceRepository | None":
        """The repository, if a relative path names no file of its base commit."""
        from proctor.git import is_address
        from proctor.workspace.source_repository import open_source

        place = os.path.normpath(program)
        if "/" not in program or place.startswith(("/", "..")) or is_address(repo):
            return None
        try:
            source = open_source(Path(repo), self._context.environment)
            commit = source.base_commit(base)
        except WorkspaceError:
            # `_repository` reports it.
            return None
        return source if source.git.run("cat-file", "-e", f"{commit}:{place}")[0] else None

    def _model(self, model: str) -> Iterator[Finding]:
        for problem, remedy in check_model(model, self._context.models, needs_price=self._has_budget):
            yield "model", problem, remedy

    def _variables(self, variables: tuple[tuple[str, str], ...]) -> Iterator[Finding]:
        for name, value in variables:
            for variable in secrets.referenced([str(value)]) - self._context.environment.keys():
                yield (
                    "env",
                    f"`{name}` refers to {variable}, which is not set",
                    f"Set it: export {variable}=…",
                )
            if secrets.is_secret(name) and len(value) >= secrets.SHORTEST_SECRET and "${" not in value:
                remedy = f"What a plan holds is stored. Write `{name}: ${{{name}}}` and set it outside."
                yield "env", f"`{name}` looks like a secret that is written out", remedy

    def _expectation(self, _: str, expect: JsonMap) -> Iterator[Finding]:
        from proctor.evaluators.expect import problems_of

        for problem in problems_of(expect):
            yield "expect", problem, ""


T = TypeVar("T")


class _ByValue(Generic[T]):
    """Settings of an item, hashable by value."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._key = repr(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByValue) and other._key == self._key


def read_plan(
    text: str | bytes,
    *,
    file: str,
    folder: Path,
    home: Path | None = None,
    overrides: Overrides | None = None,
    path: str = "",
    folders: tuple[Path, ...] = (),
) -> "CodingPlan":
    """Read and check a plan before anything is started.

    Relative paths start from `folder`; `~` is `home` (None: the user's). Raises `PlanError` with every
    problem. With `overrides`, problems that depend on them are reported too; otherwise `items` raises them.
    """
    source = read_source(text, file=file)
    home = home or Path.home()
    shape = check_shape(source, CodingPlanFile, vocabulary)
    problems, scripts = list(shape.problems), JsonObject()
    if isinstance(source.data, dict):
        # Cut to one setting of the defaults or of an entry.
        broken = frozenset(path[: 2 if path[:1] == ("defaults",) else 3] for path in shape.paths)
        problems += Checker(source, folder, home, broken, scripts).problems()
    if problems:
        refuse(problems)
    plan = CodingPlan(source, folder.absolute(), home, scripts, path=path, folders=folders)
    if overrides is not None:
        plan = plan.under(overrides)
        plan.layout()
    return plan


@dataclass(frozen=True)
class CodingPlan(JobPlan):
    """A valid plan with its overrides. `read_plan` makes it."""

    source: PlanSource
    folder: Path
    home: Path
    scripts: JsonMap = field(repr=False)
    """The contents of the script files it names."""
    overrides: Overrides = NO_OVERRIDES
    path: str = ""
    """Absolute path of the plan file; empty: there is none."""
    folders: tuple[Path, ...] = ()
    """Where its scripted models are looked up."""
    _layouts: list[Layout] = field(default_factory=list, repr=False, compare=False)

    def under(self, overrides: Overrides) -> "CodingPlan":
        """The same plan with these overrides."""
        return replace(self, overrides=overrides, _layouts=[])

    @property
    def text(self) -> str:
        """The plan as it was written."""
        return self.source.text

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def setting(self, name: str) -> Any:
        """A setting of the whole plan; None: not set."""
        return self.source.data.get(name)

    def _file(self, name: str) -> str | None:
        value: str | None = self.setting(name)
        return None if value is None else resolved(value, folder=self.folder, home=self.home)

    @property
    def run_id(self) -> str:
        """The run id the plan sets; empty: none."""
        return self.setting("runId") or ""

    @property
    def item_count(self) -> int:
        """Number of items, without making them."""
        return self.layout().item_count

    @property
    def concurrency(self) -> int:
        """Maximum items in parallel."""
        if concurrency := self.overrides.concurrency or self.setting("concurrency"):
            return int(concurrency)
        is_batched = self.setting("service") and all(grid.is_prompt for grid in self.layout().grids)
        return BATCHED_AT_ONCE if is_batched else DEFAULT_CONCURRENCY

    @property
    def budget(self) -> float | None:
        """USD of the whole batch; None: no limit."""
        budget: float | None = self.setting("budget")
        return budget if self.overrides.budget is None else self.overrides.budget

    @property
    def stop_rule(self) -> StopRule | None:
        """When the run stops early; None: it runs to its end."""
        return make_stop_rule(stop_settings(self.setting("stop_when")))

    @property
    def _agent_models(self) -> Sequence[str]:
        """What agents without `model` may request from the gateway."""
        return as_list(self.setting("models") or [])

    def refusal(self, path: Sequence[str | int], error: UsageError) -> UsageError:
        """An error about a setting, at its place in the plan."""
        return PlanError([self.source.problem(tuple(path), error.problem, error.remedy)])

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        prices = self.setting("prices") or {}
        return ModelOptions(
            folders=self.folders,
            prices={model: without_none(price) for model, price in prices.items()},
            agent_models=self._agent_models,
            record=self._file("record"),
            replay=self._file("replay"),
            outage_patience_seconds=self.setting("outage_patience"),
            service=self.setting("service") or "",
        )

    def defaults_json(self) -> JsonObject:
        """The effective defaults as plain data, for the batch row."""
        values = {**BUILT_IN, "agent": DEFAULT_AGENT, **with_agent(without_none(self._defaults))}
        return {**values, "concurrency": self.concurrency}

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the plan."""
        options = {
            "notify": self.setting("notify"),
            **self.model_options().stored(),
            "folder": str(self.folder),
            **({"workers": workers} if (workers := self.setting("workers")) else {}),
        }
        return {
            "planPath": self.path,
            "planText": self.text,
            "planDigest": self.digest,
            "defaultsJson": json.dumps(self.defaults_json(), ensure_ascii=False),
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.concurrency,
            "seed": self.setting("seed"),
            "budgetUsd": self.budget,
        }

    def for_run(self, batch: BatchRow, ctx: RunContext) -> ResumedPlan:  # noqa: ARG002
        """The plan, and whether the run was made from exactly this one."""
        is_unchanged = batch["planDigest"] == self.digest and self.overrides == NO_OVERRIDES
        return ResumedPlan(plan=self, is_unchanged=is_unchanged)

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that repositories, agents, programs, models, keys and prices exist."""
        context = PreflightContext(
            environment=ctx.settings.user_environment,
            find_agent=ctx.find_agent,
            models=models,
            sandbox=ctx.settings.confinement,
        )
        check = ItemCheck(context, self.budget is not None, self._agent_models)
        places = list(self.representatives())
        problems = [self.problem(place, *found) for place, item in places for found in check.at(item)]
        position_of = {id(item): place for place, item in places}
        problems += [self.problem(position_of[id(item)], *found) for item, found in check.unstarted()]
        problems += [
            self.source.problem((key,), problem, remedy) for key, problem, remedy in check.agent_models()
        ]
        if problems:
            raise PlanError(problems)
        return sorted(check.remarks)

    def items(self) -> Iterator[Item]:
        """The items, lazily, in a fixed order.

        Raises `PlanError` before the first one for problems that depend on the overrides.
        """
        return self._expanded(self.layout())

    def _expanded(self, layout: Layout) -> Iterator[Item]:
        yield from expand(layout.grids, layout.repositories)
        # Made again if it is needed once more: a run of 100,000 entries would have 34 MB less.
        self._layouts.clear()

    def representatives(self) -> Iterator[tuple[int, Item]]:
        """Items, with their positions, that together name everything the items of the plan name."""
        return representatives(self.layout())

    def place(self, position: int, key: str) -> Place:
        """Position of the `key` of item number `position`, from 0: in its entry, else in the defaults.

        The entry itself if neither sets the key, or an override does.
        """
        return self.source.place(self._key_path(position, key))

    def problem(self, position: int, key: str, problem: str, remedy: str = "") -> Problem:
        """A problem with the `key` of an item, found by a later check."""
        return self.source.problem(self._key_path(position, key), problem, remedy)

    def layout(self) -> Layout:
        """The grids of the plan. Raises `PlanError`."""
        if not self._layouts:
            self._layouts.append(lay_out(self.source, self._defaults, self.scripts, self.folder, self.home))
        return self._layouts[0]

    @property
    def _defaults(self) -> JsonObject:
        return {**(self.setting("defaults") or {}), **self.overrides.defaults}

    def _key_path(self, position: int, key: str) -> KeyPath:
        layout = self.layout()
        number = bisect_right(layout.starts, position) - 1
        grid = layout.grids[number]
        entry = self.source.data["matrix"][grid.entry]
        at: KeyPath = ("matrix", grid.entry)
        level, path = entry, (*at, key)
        if key not in entry:
            level, path = self.setting("defaults") or {}, ("defaults", key)
            if level.get(key) is None or key in self.overrides.defaults:
                return at
        if key in AXES and isinstance(level[key], list):
            offset = (position - layout.starts[number]) // grid.runs
            combination = next(itertools.islice(grid.combinations(), offset, None))
            axis = AXES.index(key)
            index = grid.axes[axis].index(combination[axis])
            return (*path, index) if len(as_list(level[key])) == len(grid.axes[axis]) else path
        return path


class CodingJob(Job):
    """`proctor batch`."""

    name = "coding"
    title = "Coding sessions or prompts"
    plan_model = CodingPlanFile
    overrides = Overrides
    starters = (
        Starter(file="coding.yaml", title="Coding sessions"),
        Starter(file="prompts.yaml", title="Prompts with checks"),
        Starter(file="models.yaml", title="Model comparison"),
    )

    def read(self, source: PlanText, overrides: Overrides, ctx: RunContext) -> CodingPlan:
        """Read and check a coding plan."""
        return read_plan(
            source.text,
            file=source.file,
            folder=source.folder,
            overrides=overrides,
            path=source.stored_path,
            folders=ctx.settings.folders or (source.folder,),
        )

    def restore(self, batch: BatchRow, ctx: RunContext) -> JobPlan:  # noqa: ARG002
        """The plan of a run, from the store alone."""
        options = json.loads(batch["optionsJson"])
        folder = Path(options.get("folder") or Path(batch["planPath"]).parent)
        return StoredPlan(
            options=ModelOptions.restored(options, (folder, Path.cwd())),
        )


JOB = CodingJob()
