"""The coding job: repositories × prompts × agents, or plain prompts."""

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

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
from proctor.errors import PlanError, UsageError, WorkspaceError
from proctor.item import Item
from proctor.job import (
    Job,
    JobPlan,
    PlanText,
    Starter,
    StopRule,
    StoredPlan,
    make_stop_rule,
)
from proctor.jobs.coding.plan import NO_OVERRIDES, CodingPlan, Overrides, read_plan
from proctor.jobs.coding.schema import CodingPlanFile
from proctor.json_values import JsonMap, JsonObject
from proctor.models import ModelRouter
from proctor.plan.validate import as_list, stop_settings
from proctor.runner import agent_settings
from proctor.sandbox import Phase
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


@dataclass(frozen=True)
class CodingJobPlan(JobPlan):
    """A coding plan with its overrides."""

    plan: CodingPlan
    overrides: Overrides
    path: str
    """Absolute path of the plan file; empty: there is none."""
    folders: tuple[Path, ...]
    """Where its scripted models are looked up."""

    @property
    def run_id(self) -> str:
        """The run id the plan sets; empty: none."""
        return self.plan.setting("runId") or ""

    @property
    def item_count(self) -> int:
        """Number of items, without making them."""
        return self.plan.item_count(self.overrides)

    @property
    def concurrency(self) -> int:
        """Maximum items in parallel."""
        return self.plan.concurrency(self.overrides)

    @property
    def workers(self) -> int | None:
        """Processes that share the work; None: as many as are worth it."""
        workers: int | None = self.plan.setting("workers")
        return workers

    @property
    def stop_rule(self) -> StopRule | None:
        """When the run stops early; None: it runs to its end."""
        return make_stop_rule(stop_settings(self.plan.setting("stop_when")))

    @property
    def _agent_models(self) -> Sequence[str]:
        """What agents without `model` may request from the gateway."""
        return as_list(self.plan.setting("models") or [])

    def refusal(self, path: Sequence[str | int], error: UsageError) -> UsageError:
        """An error about a setting, at its place in the plan."""
        return PlanError([self.plan.source.problem(tuple(path), error.problem, error.remedy)])

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return ModelOptions(
            folders=self.folders,
            prices=self.plan.prices,
            agent_models=self._agent_models,
            record=self.plan.file("record"),
            replay=self.plan.file("replay"),
            outage_patience_seconds=self.plan.setting("outage_patience"),
        )

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the plan."""
        options = {
            "notify": self.plan.setting("notify"),
            **self.model_options().stored(),
            "folder": str(self.plan.folder),
            **({"workers": self.workers} if self.workers else {}),
        }
        return {
            "planPath": self.path,
            "planText": self.plan.text,
            "planDigest": self.plan.digest,
            "defaultsJson": json.dumps(self.plan.defaults_json(self.overrides), ensure_ascii=False),
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.concurrency,
            "seed": self.plan.setting("seed"),
            "budgetUsd": self.plan.budget(self.overrides),
        }

    def is_unchanged(self, batch: BatchRow) -> bool:
        """Whether a run was made from exactly this plan."""
        return batch["planDigest"] == self.plan.digest and self.overrides == NO_OVERRIDES

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that repositories, agents, programs, models, keys and prices exist."""
        context = PreflightContext(
            environment=ctx.settings.user_environment,
            find_agent=ctx.find_agent,
            models=models,
            sandbox=ctx.settings.confinement,
        )
        check = ItemCheck(context, self.plan.budget(self.overrides) is not None, self._agent_models)
        places = [*self.plan.representatives(self.overrides)]
        problems = [self.plan.problem(place, *found) for place, item in places for found in check.at(item)]
        position_of = {id(item): place for place, item in places}
        problems += [self.plan.problem(position_of[id(item)], *found) for item, found in check.unstarted()]
        problems += [
            self.plan.source.problem((key,), problem, remedy) for key, problem, remedy in check.agent_models()
        ]
        if problems:
            raise PlanError(problems)
        return sorted(check.remarks)

    def items(self) -> Iterator[Item]:
        """The items in plan order."""
        return self.plan.items(self.overrides)


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

    def read(self, source: PlanText, overrides: Overrides, ctx: RunContext) -> CodingJobPlan:
        """Read and check a coding plan."""
        plan = read_plan(source.text, file=source.file, folder=source.folder, overrides=overrides)
        folders = ctx.settings.folders or (source.folder,)
        return CodingJobPlan(plan, overrides, source.stored_path, folders)

    def restore(self, batch: BatchRow, ctx: RunContext) -> JobPlan:  # noqa: ARG002
        """The plan of a run, from the store alone."""
        options = json.loads(batch["optionsJson"])
        folder = Path(options.get("folder") or Path(batch["planPath"]).parent)
        return StoredPlan(
            worker_count=options.get("workers"),
            options=ModelOptions.restored(options, (folder, Path.cwd())),
        )

    def earlier(self, plan: JobPlan, ctx: RunContext) -> str | None:
        """The run the plan names, or the latest run of the same plan."""
        assert isinstance(plan, CodingJobPlan)
        if plan.run_id:
            return str(ctx.store.read.batch(plan.run_id, ctx.now())["runId"])
        return ctx.store.read.batch_of_plan(plan.path, plan.plan.digest)


JOB = CodingJob()
