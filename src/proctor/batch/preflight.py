"""Preflight checks that every job uses: models, agents and programs that a plan names must exist.

Each check yields what is missing with its remedy; the job says at which place of its plan. Nothing here
calls a model or starts a program.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor import secrets
from proctor.errors import UsageError
from proctor.json_values import JsonMap
from proctor.model import ModelDirectory
from proctor.sandbox import NOT_CONFINED, Sandbox

if TYPE_CHECKING:
    from proctor.agent import Agent
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
    name: str, settings: JsonMap, context: PreflightContext, remarks: set[str]
) -> Iterator[Missing]:
    """An agent must exist and be installed; a mock is remarked on."""
    try:
        agent = context.find_agent(name, settings)
    except UsageError as error:
        yield error.problem, error.remedy
        return
    environment = secrets.visible(context.environment, named=agent.keys)
    availability = agent.availability(environment)
    if not availability.ready:
        yield f"the agent {name} cannot be used here: {availability.problem}", availability.remedy
    if agent.is_mock:
        remarks.add(f"`{name}` is a mock agent; its results say nothing about real agents")


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
    usual = "full" if _needs_network(agent, settings, context) else None
    try:
        remarks.add(context.sandbox.summary(own, usual))
    except UsageError as error:
        yield error.problem, error.remedy


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


def _needs_network(name: str, settings: JsonMap, context: PreflightContext) -> bool:
    try:
        return context.find_agent(name, settings).needs_network
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


def program_of(command: str) -> str:
    """The first word of a shell command that is not an assignment; empty where the shell decides."""
    try:
        arguments = shlex.split(command, comments=True)
    except ValueError:
        return ""
    word = next((each for each in arguments if not _ASSIGNMENT.match(each)), "")
    # Shell syntax that is not interpreted here: the check command itself reports it.
    return "" if any(mark in word for mark in "$`*?;&|<>()") else word
