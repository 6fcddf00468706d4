"""Preflight checks that every job uses: models, agents and programs that a plan names must exist.

Each check yields what is missing with its remedy; the job says at which place of its plan. Programs are tried
once, in parallel and in the sandbox that the items give them; nothing here calls a model.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proctor import secrets
from proctor.errors import UsageError
from proctor.item import Item
from proctor.json_values import JsonMap
from proctor.model import ModelDirectory
from proctor.runner import agent_settings
from proctor.sandbox import INSTALL, NOT_CONFINED, Phase, Sandbox

if TYPE_CHECKING:
    from proctor.agent import Agent
    from proctor.batch.program_starts import Start
    from proctor.evaluator import Evaluator

Missing = tuple[str, str]
"""What is wrong, and the remedy (may be empty)."""
# Builtins of /bin/sh and the words that may begin a line of shell.
SHELL_WORDS = frozenset(
    {
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
        "for",
        "if",
        "printf",
        "pwd",
        "read",
        "set",
        "source",
        "test",
        "time",
        "trap",
        "true",
        "type",
        "ulimit",
        "umask",
        "unset",
        "until",
        "wait",
        "while",
    }
)
_ASSIGNMENT = re.compile(r"^\w+=")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightContext:
    """Where names are looked up."""

    environment: Mapping[str, str]
    find_agent: "Callable[[str, JsonMap], Agent]"
    models: ModelDirectory
    sandbox: Sandbox = NOT_CONFINED


def check_model(
    model: str, models: ModelDirectory, *, needs_price: bool = False, limit: str = "the budget"
) -> Iterator[Missing]:
    """A model must be reachable, have its key, and have a price where a limit has to be enforced."""
    try:
        models.check(model)
    except UsageError as error:
        yield error.problem, error.remedy
        return
    if key := models.missing_key(model):
        yield f"{model} needs a key, and {key} is not set", f"Set it: export {key}=…"
    if needs_price and not models.has_price(model):
        yield (
            f"no price is known for {model}, so {limit} cannot be enforced",
            f"Declare it:  prices: {{{model}: {{input: 1.0, output: 2.0}}}}  (USD per million tokens).",
        )


def check_agent(
    name: str, settings: JsonMap, context: PreflightContext, remarks: set[str], *, is_tried: bool = False
) -> Iterator[Missing]:
    """An agent must exist and be installed; a mock is remarked on. `is_tried`: its program is started in its
    sandbox (`agent_start`), and not here."""
    try:
        agent = context.find_agent(name, settings)
    except UsageError as error:
        yield error.problem, error.remedy
        return
    environment = secrets.visible(context.environment, named=agent.keys)
    if not is_tried:
        availability = agent.availability(environment)
        if not availability.ready:
            problem = availability.problem
            yield f"the agent {name} cannot be used here: {problem}", availability.remedy
    if agent.is_mock:
        remarks.add(f"`{name}` is a mock agent; its results say nothing about real agents")


def agent_start(item: Item, context: PreflightContext) -> "Start | None":
    """How the program of an item's agent is tried; None: there is none, or it is in a container."""
    settings = agent_settings(item)
    try:
        agent = context.find_agent(item.agent, settings)
        is_here = context.sandbox.kind_of(item.settings.get("sandbox")) != "container"
    except UsageError:
        return None
    environment = secrets.visible(context.environment, named={"HOME", *agent.keys})
    command = settings.get("command")
    named = [command, settings.get("arguments")]
    if not is_here:
        return None
    if program := agent.program(environment):
        # Loaded here: plans of plain prompts start no programs.
        from proctor.batch.program_starts import Start

        return Start(
            what=f"the agent {item.agent}",
            item=item,
            phase="agent",
            program=program[0],
            option=program[1],
            named=named,
            keys=tuple(agent.keys),
        )
    word = program_of(command)
    if prepares(item) and not shutil.which(word, path=environment.get("PATH", "")):
        return None
    return _start_of(word, f"the agent's program `{word}`", "agent", item, named, context)


def prepares(item: Item) -> bool:
    """Whether something runs before the agent and the check that may install what they need."""
    return not {"setup", "setupOnce"}.isdisjoint(item.details)


def check_start(command: str, phase: Phase, item: Item, context: PreflightContext) -> "Start | None":
    """How the program that a command of an item begins with is tried; None: nothing of it can be hidden, or
    `setup` may change it."""
    try:
        is_here = context.sandbox.kind_of(item.settings.get("sandbox")) != "container"
    except UsageError:
        return None
    if not is_here or (phase == "check" and prepares(item)):
        return None
    word = program_of(command)
    if not shutil.which(word, path=context.environment.get("PATH", "")):
        # `missing_program` reports it.
        return None
    return _start_of(word, f"`{word}`, with which `{command}` begins,", phase, item, [command], context)


def _start_of(
    word: str, what: str, phase: Phase, item: Item, named: Sequence[object], context: PreflightContext
) -> "Start | None":
    """How a program is tried whose option for the version may be known."""
    # Loaded here: plans of plain prompts start no programs.
    from proctor.batch.program_starts import Start, needs_trial, version_option

    path = context.environment.get("PATH", "")
    is_relative = "/" in word and not word.startswith("/")
    if not word or word in SHELL_WORDS or is_relative or not needs_trial(word, path):
        return None
    return Start(what=what, item=item, phase=phase, program=word, option=version_option(word), named=named)


def try_all(starts: "Sequence[Start]", context: PreflightContext) -> list[Missing | None]:
    """Try programs, each once; what is wrong with each, if anything."""
    if not starts:
        return []
    from proctor.batch.program_starts import try_starts

    results = try_starts(starts, context.sandbox, context.environment)
    return [(result.problem, result.remedy) if result.problem else None for result in results]


def check_agents_model(
    name: str, model: str, settings: JsonMap, context: PreflightContext
) -> Iterator[Missing]:
    """An agent that chooses models itself must accept the model; nothing about an agent that is missing."""
    try:
        agent = context.find_agent(name, settings)
    except UsageError:
        return
    environment = secrets.visible(context.environment, named={"HOME", *agent.keys})
    problem, _, remedy = agent.refusal(model, environment).partition("\n")
    if problem:
        yield problem, remedy


def check_sandbox(
    own: object, agent: str, settings: JsonMap, context: PreflightContext, remarks: set[str]
) -> Iterator[Missing]:
    """The sandbox of an item must work on this machine; how its programs are confined is remarked on."""
    usual = "full" if _has(agent, settings, context, "needs_network") else None
    try:
        remarks.add(context.sandbox.summary(own, usual))
        kind = context.sandbox.kind_of(own)
    except UsageError as error:
        yield error.problem, error.remedy
        return
    if kind == "landlock" and _has(agent, settings, context, "needs_terminal"):
        yield (
            f"the agent {agent} runs its commands in a terminal, and the sandbox `landlock` has none",
            f"Install bubblewrap: {INSTALL}.",
        )


def check_evaluators(evaluators: "Iterable[Evaluator]", remarks: set[str]) -> Iterator[Missing]:
    """The sandbox of evaluators that run code must work; how it confines them is remarked on."""
    # Loaded with the first evaluator.
    from proctor.evaluator import sandbox_of

    # Evaluators of a plan have the same sandbox.
    sandbox = next(filter(None, map(sandbox_of, evaluators)), None)
    if sandbox is None:
        return
    try:
        remarks.add(sandbox.evaluator_summary())
    except UsageError as error:
        yield error.problem, error.remedy


def mock_model_remark(name: str) -> str:
    """The remark on a mock model."""
    return f"`{name}` is a mock model; its results say nothing about real models"


def has_own_models(name: str, settings: JsonMap, context: PreflightContext) -> bool:
    """Whether an agent reaches models by itself, so that its model cannot be checked here."""
    try:
        return context.find_agent(name, settings).reach == "own"
    except UsageError:
        return True


def uses_gateway(name: str, settings: JsonMap, context: PreflightContext) -> bool:
    """Whether an agent reaches models through the gateway."""
    try:
        return context.find_agent(name, settings).reach == "gateway"
    except UsageError:
        return False


def _has(
    name: str,
    settings: JsonMap,
    context: PreflightContext,
    need: Literal["needs_network", "needs_terminal"],
) -> bool:
    """Whether an agent needs something; False if there is no such agent."""
    try:
        return bool(getattr(context.find_agent(name, settings), need))
    except UsageError:
        return False


def missing_program(command: str, context: PreflightContext) -> str:
    """The program a shell command starts with, when it is not on the PATH; empty when nothing is missing."""
    word = program_of(command)
    path = context.environment.get("PATH", "")
    if not word or word in SHELL_WORDS or shutil.which(word, path=path):
        return ""
    # With a slash, it is a program of the repository itself, whose checkout may differ from the base branch.
    return "" if "/" in word else word


def program_of(command: object) -> str:
    """The program of a command: the first word of one for the shell that is not an assignment; empty where
    the shell decides, or where there is none."""
    if not isinstance(command, str):
        return str(command[0]) if isinstance(command, list) and command else ""
    try:
        arguments = shlex.split(command, comments=True)
    except ValueError:
        return ""
    word = next((each for each in arguments if not _ASSIGNMENT.match(each)), "")
    # Shell syntax that is not interpreted here: the check command itself reports it.
    return "" if any(mark in word for mark in "$`*?;&|<>()") else word
