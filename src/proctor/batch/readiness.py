"""Look before a benchmark starts: what it names must exist.

Agents, models, keys, repositories and the programs its checks begin with are looked up once each, and
everything that is missing is reported together.

Knows nothing of how items are carried out; starts nothing that costs money.
"""

import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.agent import reach_of
from proctor.batch import secrecy
from proctor.batch.preflight import SHELL_WORDS, Surroundings
from proctor.errors import UsageError, WorkspaceError
from proctor.plan.benchmark import DEFAULT_AGENT, Benchmark, is_stand_in
from proctor.plan.selection import Candidate
from proctor.plan.tasks import Task
from proctor.workspace.source import open_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a look at the surroundings found."""

    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def look(
    benchmark: Benchmark,
    surroundings: Surroundings,
    key_variables: Mapping[str, str],
    *,
    needs_prices: bool = False,
) -> Readiness:
    """Find everything a benchmark asks for that is not there.

    `key_variables` says where the user keeps the key of a model, when that is not the usual place. With
    `needs_prices` each model has to have one.
    """
    remarks = set[str]()
    found = [
        *(problem for task in benchmark.tasks for problem in _commands(task, surroundings)),
        *_agents(benchmark, surroundings, remarks),
        *_models(benchmark, surroundings, key_variables, remarks),
        *(_prices(benchmark, surroundings) if needs_prices else ()),
    ]
    return Readiness(problems=tuple(dict.fromkeys(found)), remarks=tuple(sorted(remarks)))


def commits_of(tasks: tuple[Task, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The commit that each task with a repository begins from, by the task's name."""
    found = {}
    for task in tasks:
        if task.repo is None:
            continue
        try:
            found[task.name] = open_source(task.repo, environment).base_commit(task.ref)
        except WorkspaceError as error:
            raise UsageError(f"{task.file}: {error}\nGive `repo` the path of a git repository.") from error
    return found


def _commands(task: Task, surroundings: Surroundings) -> Iterator[str]:
    path = surroundings.environment.get("PATH", "")
    for command in (task.setup, *(check.command for check in task.commands)):
        word = _first_word(command)
        known = not word or word in SHELL_WORDS or "/" in word or shutil.which(word, path=path)
        if not known and not task.setup:
            yield f"{task.file}: there is no program `{word}`, with which `{command}` begins\nInstall it."


def _first_word(command: str) -> str:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return ""
    word = next((each for each in words if "=" not in each), "")
    return "" if any(mark in word for mark in "$`*?;&|<>()") else word


def _agents(benchmark: Benchmark, surroundings: Surroundings, remarks: set[str]) -> Iterator[str]:
    for item in benchmark.items():
        settings: dict[str, Any] = dict(item.details.get("settings") or {})
        if "script" in item.details:
            settings["script"] = item.details["script"]
        try:
            agent = surroundings.find_agent(item.agent, settings)
        except UsageError as error:
            yield str(error)
            continue
        seen = secrecy.visible(surroundings.environment, named=getattr(agent, "keys", ()))
        found = agent.availability(seen)
        if not found.ready:
            yield f"the agent {item.agent} cannot be used here: {found.problem}\n{found.remedy}"
        if agent.stand_in:
            remarks.add(f"{item.model} is a stand-in: it rehearses, it does not work")


def _models(
    benchmark: Benchmark, surroundings: Surroundings, key_variables: Mapping[str, str], remarks: set[str]
) -> Iterator[str]:
    agents = {benchmark.agent_for(task, model) for task in benchmark.tasks for model in benchmark.models}
    for model in benchmark.models:
        if is_stand_in(model):
            continue
        if all(_has_its_own(agent, surroundings) for agent in agents):
            continue
        yield from _model(model, surroundings, key_variables)
        if model.settings and agents != {DEFAULT_AGENT}:
            remarks.add(f"the settings of {model.name} hold for the agent {DEFAULT_AGENT} only")


def _prices(benchmark: Benchmark, surroundings: Surroundings) -> Iterator[str]:
    for model in benchmark.models:
        if is_stand_in(model):
            continue
        try:
            is_known = surroundings.models.has_price(model.model)
        except UsageError:
            # That it cannot be asked at all is said where models are looked at.
            continue
        if not is_known:
            yield (
                f"nobody knows what {model.name} costs, so no budget can be kept\n"
                f'Declare it in proctor.toml:  [prices."{model.model}"]  input = 1.0  output = 2.0  '
                "(USD per million tokens)."
            )


def _has_its_own(agent: str, surroundings: Surroundings) -> bool:
    """Whether an agent has its own way to models, which nobody here can look into."""
    try:
        return reach_of(surroundings.find_agent(agent, {})) == "own"
    except UsageError:
        return True


def _model(model: Candidate, surroundings: Surroundings, key_variables: Mapping[str, str]) -> Iterator[str]:
    try:
        surroundings.models.check(model.model)
    except UsageError as error:
        yield str(error)
        return
    variable = key_variables.get(model.model, "")
    missing = variable if variable and not surroundings.environment.get(variable) else ""
    if missing := missing or surroundings.models.missing_key(model.model) or "":
        yield f"{model.name} needs a key, and {missing} is not set\nSet it: export {missing}=…"
