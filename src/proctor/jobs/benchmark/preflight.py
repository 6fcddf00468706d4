"""Preflight check of a benchmark: what its tasks and models name must exist."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.batch.preflight import PreflightContext, check_agent, has_own_models, missing_program
from proctor.errors import UsageError, WorkspaceError
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import DEFAULT_AGENT, BenchmarkDefinition, is_stand_in
from proctor.jobs.benchmark.tasks import Task
from proctor.workspace.source_repository import open_source


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkInspection:
    """Problems and remarks of a preflight check."""

    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def inspect(
    benchmark: BenchmarkDefinition,
    context: PreflightContext,
    key_variables: Mapping[str, str],
    *,
    needs_prices: bool = False,
) -> BenchmarkInspection:
    """Find everything a benchmark names that is missing.

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
    return BenchmarkInspection(problems=tuple(dict.fromkeys(problems)), remarks=tuple(sorted(remarks)))


def commits_of(tasks: tuple[Task, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The commit that each task with a repository starts from, by the task's name."""
    available = {}
    for task in tasks:
        if task.repo is None:
            continue
        try:
            available[task.name] = open_source(task.repo, environment).base_commit(task.ref)
        except WorkspaceError as error:
            raise UsageError(f"{task.file}: {error}\nGive `repo` the path of a git repository.") from error
    return available


def _commands(task: Task, context: PreflightContext) -> Iterator[str]:
    for command in (task.setup, *(check.command for check in task.commands)):
        word = missing_program(command, context)
        if word and not task.setup:
            yield f"{task.file}: there is no program `{word}`, which `{command}` starts with\nInstall it."


def _agents(benchmark: BenchmarkDefinition, context: PreflightContext, remarks: set[str]) -> Iterator[str]:
    for item in benchmark.items():
        settings: dict[str, Any] = dict(item.details.get("settings") or {})
        if "script" in item.details:
            settings["script"] = item.details["script"]
        for problem, remedy in check_agent(item.agent, settings, context, remarks):
            yield f"{problem}\n{remedy}" if remedy else problem


def _models(
    benchmark: BenchmarkDefinition,
    context: PreflightContext,
    key_variables: Mapping[str, str],
    remarks: set[str],
) -> Iterator[str]:
    agents = {benchmark.agent_for(task, model) for task in benchmark.tasks for model in benchmark.models}
    for model in benchmark.models:
        if is_stand_in(model):
            continue
        if all(has_own_models(agent, {}, context) for agent in agents):
            continue
        yield from _model(model, context, key_variables)
        if model.settings and agents != {DEFAULT_AGENT}:
            remarks.add(f"the settings of {model.name} apply to the agent {DEFAULT_AGENT} only")


def _prices(benchmark: BenchmarkDefinition, context: PreflightContext) -> Iterator[str]:
    for model in benchmark.models:
        if is_stand_in(model):
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
