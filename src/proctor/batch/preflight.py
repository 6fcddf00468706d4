"""Look before anything starts: what the plan names must exist.

Repositories, branches, agents, programs, models, keys and prices are looked up once each, however
many items name them, and everything that is missing is reported together, at its place in the plan.

Knows nothing of how items are carried out; starts nothing that costs money.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor import secrets
from proctor.agent import Agent, reach_of
from proctor.errors import Problem, UsageError, WorkspaceError
from proctor.expect import problems_of
from proctor.item import Item
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import DEFAULT_AGENT, BenchmarkDefinition, is_stand_in
from proctor.jobs.benchmark.tasks import Task
from proctor.jobs.coding.plan import CodingPlan, Overrides
from proctor.model import ModelDirectory
from proctor.runner import agent_settings
from proctor.workspace.source_repository import open_source

# What /bin/sh itself knows, and the words with which a line of shell may begin.
SHELL_WORDS = frozenset(
    {
        *(
            ".",
            ":",
            "[",
            "{",
            "!",
            "cd",
            "case",
            "command",
            "echo",
            "eval",
            "exec",
            "exit",
            "export",
            "false",
        ),
        *("for", "if", "printf", "pwd", "read", "set", "source", "test", "time", "trap", "true", "type"),
        *("ulimit", "umask", "unset", "until", "wait", "while"),
    }
)


_ASSIGNMENT = re.compile(r"^\w+=")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResult:
    """What a look at the plan's surroundings found."""

    items: int
    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Worth saying, no reason to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightContext:
    """Where to look."""

    environment: Mapping[str, str]
    find_agent: Callable[[str, Mapping[str, Any]], Agent]
    models: ModelDirectory


Finding = tuple[str, str, str]
"""The plan's key, what is wrong with it, and the remedy."""


def inspect(plan: CodingPlan, overrides: Overrides, surroundings: PreflightContext) -> PreflightResult:
    """Find everything the plan asks for that is not there."""
    look = _PreflightCheck(surroundings, plan.budget(overrides) is not None)
    problems, count = list[Problem](), 0
    for position, item in enumerate(plan.items(overrides)):
        count += 1
        problems += [plan.problem(position, *finding) for finding in look.at(item)]
    return PreflightResult(items=count, problems=problems, remarks=sorted(look.remarks))


class _PreflightCheck:
    """Remembers what was looked up, so that each thing is looked up and reported once."""

    def __init__(self, surroundings: PreflightContext, has_budget: bool) -> None:
        self._s = surroundings
        self._has_budget = has_budget
        self._seen: set[Any] = set()
        self.remarks: set[str] = set()

    def at(self, item: Item) -> Iterator[Finding]:
        details, settings = item.details, item.settings
        if repo := settings.get("repo"):
            yield from self._once(self._repository, repo, details["baseBranch"])
            yield from self._once(self._agent, item.agent, _Settings(item))
            for key in ("scriptCommand", "setup"):
                if key in details:
                    yield from self._once(self._command, key, details[key], "setup" in details)
        if item.model and (not item.agent or self._calls_models(item)):
            yield from self._once(self._model, item.model)
        if "env" in details:
            yield from self._once(self._variables, tuple(details["env"].items()))
        if "expect" in details:
            yield from self._once(self._expectation, repr(details["expect"]), details["expect"])

    def _once(self, check: Callable[..., Iterator[Finding]], *what: Any) -> Iterator[Finding]:
        key = (check.__name__, *(part for part in what if not isinstance(part, dict)))
        if key not in self._seen:
            self._seen.add(key)
            yield from check(*what)

    def _repository(self, repo: str, base: str) -> Iterator[Finding]:
        try:
            source = open_source(Path(repo), self._s.environment)
        except WorkspaceError as error:
            yield "repo", str(error), "Give the path of a git repository."
            return
        try:
            source.base_commit(base)
        except WorkspaceError as error:
            problem, _, branches = str(error).partition(". ")
            yield "baseBranch", problem, branches

    def _calls_models(self, item: Item) -> bool:
        try:
            return reach_of(self._s.find_agent(item.agent, _Settings(item).given)) != "own"
        except UsageError:
            return False

    def _agent(self, name: str, settings: "_Settings") -> Iterator[Finding]:
        try:
            agent = self._s.find_agent(name, settings.given)
        except UsageError as error:
            problem, _, remedy = str(error).partition("\n")
            yield "agent", problem, remedy
            return
        seen = secrets.visible(self._s.environment, named=getattr(agent, "keys", ()))
        found = agent.availability(seen)
        if not found.ready:
            yield "agent", f"the agent {name} cannot be used here: {found.problem}", found.remedy
        if agent.stand_in:
            self.remarks.add(f"the agent {name} is a stand-in: it rehearses, it does not work")

    def _command(self, key: str, command: str, prepared: bool) -> Iterator[Finding]:
        word = _first_word(command)
        path = self._s.environment.get("PATH", "")
        if not word or word in SHELL_WORDS or shutil.which(word, path=path):
            return
        if "/" in word:
            # A program of the repository itself; the checkout need not be what the base branch holds.
            return
        problem = f"there is no program `{word}`, with which `{command}` begins"
        if prepared:
            self.remarks.add(f"{problem}; `setup` will have to bring it")
        else:
            yield key, problem, f"Install {word}, or add a `setup` command that does."

    def _model(self, model: str) -> Iterator[Finding]:
        try:
            self._s.models.check(model)
        except UsageError as error:
            problem, _, remedy = str(error).partition("\n")
            yield "model", problem, remedy
            return
        if key := self._s.models.missing_key(model):
            yield "model", f"{model} needs a key, and {key} is not set", f"Set it: export {key}=…"
        if self._has_budget and not self._s.models.has_price(model):
            yield (
                "model",
                f"the price of {model} is not known, so a budget cannot be held",
                f"Declare it:  prices: {{{model}: {{input: 1.0, output: 2.0}}}}  (USD per million tokens).",
            )

    def _variables(self, variables: tuple[tuple[str, str], ...]) -> Iterator[Finding]:
        for name, value in variables:
            for wanted in secrets.referenced([str(value)]) - self._s.environment.keys():
                yield "env", f"`{name}` refers to {wanted}, which is not set", f"Set it: export {wanted}=…"
            if secrets.is_secret(name) and len(value) >= secrets.SHORTEST_SECRET and "${" not in value:
                remedy = f"What a plan holds is stored. Write `{name}: ${{{name}}}` and set it outside."
                yield "env", f"`{name}` looks like a secret that is written out", remedy

    def _expectation(self, _: str, expect: Mapping[str, Any]) -> Iterator[Finding]:
        for problem in problems_of(expect):
            yield "expect", problem, ""


class _Settings:
    """An agent's settings, comparable by what they say."""

    def __init__(self, item: Item) -> None:
        self.given = agent_settings(item)
        self._said = repr(self.given)

    def __hash__(self) -> int:
        return hash(self._said)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Settings) and other._said == self._said


def _first_word(command: str) -> str:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return ""
    plain = (word for word in words if not _ASSIGNMENT.match(word))
    word = next(plain, "")
    # Shell syntax we do not read: the check itself will tell.
    return "" if any(mark in word for mark in "$`*?;&|<>()") else word


# Look before a benchmark starts: what it names must exist.


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a look at the surroundings found."""

    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def look(
    benchmark: BenchmarkDefinition,
    surroundings: PreflightContext,
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


def _commands(task: Task, surroundings: PreflightContext) -> Iterator[str]:
    path = surroundings.environment.get("PATH", "")
    for command in (task.setup, *(check.command for check in task.commands)):
        word = _program_of(command)
        known = not word or word in SHELL_WORDS or "/" in word or shutil.which(word, path=path)
        if not known and not task.setup:
            yield f"{task.file}: there is no program `{word}`, with which `{command}` begins\nInstall it."


def _program_of(command: str) -> str:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return ""
    word = next((each for each in words if "=" not in each), "")
    return "" if any(mark in word for mark in "$`*?;&|<>()") else word


def _agents(
    benchmark: BenchmarkDefinition, surroundings: PreflightContext, remarks: set[str]
) -> Iterator[str]:
    for item in benchmark.items():
        settings: dict[str, Any] = dict(item.details.get("settings") or {})
        if "script" in item.details:
            settings["script"] = item.details["script"]
        try:
            agent = surroundings.find_agent(item.agent, settings)
        except UsageError as error:
            yield str(error)
            continue
        seen = secrets.visible(surroundings.environment, named=getattr(agent, "keys", ()))
        found = agent.availability(seen)
        if not found.ready:
            yield f"the agent {item.agent} cannot be used here: {found.problem}\n{found.remedy}"
        if agent.stand_in:
            remarks.add(f"{item.model} is a stand-in: it rehearses, it does not work")


def _models(
    benchmark: BenchmarkDefinition,
    surroundings: PreflightContext,
    key_variables: Mapping[str, str],
    remarks: set[str],
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


def _prices(benchmark: BenchmarkDefinition, surroundings: PreflightContext) -> Iterator[str]:
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


def _has_its_own(agent: str, surroundings: PreflightContext) -> bool:
    """Whether an agent has its own way to models, which nobody here can look into."""
    try:
        return reach_of(surroundings.find_agent(agent, {})) == "own"
    except UsageError:
        return True


def _model(
    model: Candidate, surroundings: PreflightContext, key_variables: Mapping[str, str]
) -> Iterator[str]:
    try:
        surroundings.models.check(model.model)
    except UsageError as error:
        yield str(error)
        return
    variable = key_variables.get(model.model, "")
    missing = variable if variable and not surroundings.environment.get(variable) else ""
    if missing := missing or surroundings.models.missing_key(model.model) or "":
        yield f"{model.name} needs a key, and {missing} is not set\nSet it: export {missing}=…"
