"""A first plan for a repository, or for a prompt: who can work on this machine, and how the tests run."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proctor.agents import agent_names, find_agent
from proctor.api.inventory import NEEDED, SMALL_MODEL, check_agent
from proctor.errors import ProctorError, UsageError
from proctor.git import Git
from proctor.json_values import JsonMap, JsonObject, maps_in
from proctor.models import ModelRouter
from proctor.tasks.test_command import TestCommands, guess_commands, python_setup

GENERAL_AGENTS = ("answer", "builtin", "command", "scripted")
"""Agents that are always ready: parts of Proctor, and mocks."""
FIRST_MODELS = {
    "OPENAI_API_KEY": "openai/gpt-5",
    "ANTHROPIC_API_KEY": "anthropic/claude-sonnet-4-5",
    "GEMINI_API_KEY": "google/gemini-2.5-flash",
}
"""A model of each provider, offered when its key is set."""
OWN_KEYS = {"claude": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""The key of the models that an agent was made for, where that is not the first."""
MOCK = "scripted"
MOCK_SCRIPT: JsonObject = {
    "steps": [
        {"write": {"path": "PROCTOR.md", "content": "The mock agent was here.\n"}},
        {"say": "I am a mock and have only written PROCTOR.md."},
    ]
}
MOCK_MODEL = "scripted/echo"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPlan:
    """What a first plan says."""

    who: str
    """Agents or models, comma-separated."""
    prompt: str
    check: str
    """Command that must pass; of a plan without a repository: text that answers must contain."""
    repeats: int
    budget: float
    setup: str = ""
    read: Sequence[str] = ()
    """Folders outside of the worktree that the check needs."""


def suggested_prompt(models: ModelRouter, environment: Mapping[str, str], who: str = "") -> FirstPlan:
    """A first plan outside of a repository: a prompt to models, else to all that can be called here, or to a
    mock."""
    names = who or ",".join(_models(models, environment))
    return FirstPlan(
        who=names or MOCK_MODEL,
        prompt="What is the capital of France?",
        # The mock repeats the prompt.
        check="Paris" if names else "France",
        repeats=3,
        budget=1.0,
    )


def suggested_work(git: Git, models: ModelRouter, environment: Mapping[str, str]) -> FirstPlan:
    """A first plan for a repository: every agent that can work here, else models, else a mock."""
    names = [name for name in agent_names() if name not in GENERAL_AGENTS]
    with ThreadPoolExecutor(len(names)) as pool:
        listed = list(pool.map(partial(check_agent, environment=environment), names))
    has_key = any(environment.get(variable) for variable in FIRST_MODELS)
    agents = [each.name for each in listed if each.ready and (has_key or not _needs_model(each.name))]
    who = agents or _models(models, environment) or [MOCK]
    commands = _commands(git, environment)
    return FirstPlan(
        who=",".join(who),
        prompt="Find a bug in this repository, add a test that shows it, and repair it.",
        check=commands.check,
        repeats=2,
        budget=5.0,
        setup=commands.setup,
        read=_environments(git, commands.check),
    )


def work_plan(git: Git, plan: FirstPlan, folder: Path, environment: Mapping[str, str]) -> JsonObject:
    """A plan in a folder that lets agents, or models behind the agent `builtin`, work on a repository."""
    names, known = [name.strip() for name in plan.who.split(",") if name.strip()], set(agent_names())
    if wrong := [name for name in names if name not in known and "/" not in name]:
        raise UsageError(
            f"there is no agent {wrong[0]}\n`proctor agents` lists them; models are written provider/model."
        )
    entry: JsonObject = {"repo": os.path.relpath(git.folder, folder), "prompt": plan.prompt}
    by_model: dict[str, list[str]] = {}
    for name in names:
        if name in known:
            by_model.setdefault(_model_of(name, environment), []).append(name)
    entries = [
        {**entry, "agent": agents, **({"model": model} if model else {})}
        | ({"script": MOCK_SCRIPT} if MOCK in agents else {})
        for model, agents in by_model.items()
    ]
    if models := [name for name in names if name not in known]:
        entries.append({**entry, "agent": "builtin", "model": models})
    defaults = {
        "baseBranch": git("rev-parse", "--abbrev-ref", "HEAD").strip(),
        **({"setup": plan.setup} if plan.setup else {}),
        **({"scriptCommand": plan.check} if plan.check else {}),
        **({"sandbox": {"read": list(plan.read)}} if plan.read else {}),
        "timeoutSec": 1800,
        "runs": plan.repeats,
    }
    return {"concurrency": 2, "budget": plan.budget, "defaults": defaults, "matrix": entries}


def prompt_plan(plan: FirstPlan) -> JsonObject:
    """A plan that asks models a prompt."""
    entry: JsonObject = {
        "prompt": plan.prompt,
        "model": [name.strip() for name in plan.who.split(",") if name.strip()],
        "runs": plan.repeats,
        "expect": {"contains": plan.check},
    }
    return {"concurrency": 4, "budget": plan.budget, "matrix": [entry]}


def has_mock(plan: JsonMap) -> bool:
    """Whether only a mock works in a plan, since nothing else can be used here."""
    entries = list(maps_in(plan["matrix"]))
    return all(entry.get("agent") == [MOCK] or entry.get("model") == [MOCK_MODEL] for entry in entries)


def _models(models: ModelRouter, environment: Mapping[str, str]) -> list[str]:
    """A model of each provider whose key is set, else the small one of this machine; empty: it is missing."""
    names = [model for variable, model in FIRST_MODELS.items() if environment.get(variable)]
    if names:
        return names
    try:
        models.check(SMALL_MODEL)
    except UsageError:
        return []
    return [SMALL_MODEL]


def _needs_model(name: str) -> bool:
    agent = find_agent(name, NEEDED.get(name, {}))
    return agent.needs_model or agent.reach != "own"


def _model_of(name: str, environment: Mapping[str, str]) -> str:
    """The model for an agent: one it was made for whose key is set, else any; empty: it needs none."""
    if not _needs_model(name):
        return ""
    keys = dict.fromkeys([OWN_KEYS.get(name, "OPENAI_API_KEY"), *FIRST_MODELS])
    return FIRST_MODELS[next((key for key in keys if environment.get(key)), next(iter(keys)))]


def _commands(git: Git, environment: Mapping[str, str]) -> TestCommands:
    """How the tests of a repository run here; an empty check: nobody knows."""
    try:
        commands = guess_commands(git)
    except ProctorError:
        return TestCommands(check="", check_source="")
    module = "pytest" if "-m pytest" in commands.check else ""
    if module and not _imports("python3", module, environment):
        places = (git.folder / name / "bin" / "python" for name in (".venv", "venv"))
        usable = [path for path in places if _imports(str(path), module, environment)]
        if usable:
            check = commands.check.replace("python3", shlex.quote(str(usable[0])), 1)
            return TestCommands(check=check, check_source=commands.check_source)
        return TestCommands(
            check=commands.check.replace("python3", ".venv/bin/python", 1),
            check_source=commands.check_source,
            setup=python_setup(git),
        )
    return commands


def _imports(python: str, module: str, environment: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", f"import {module}"],
            env=dict(environment),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _environments(git: Git, check: str) -> list[str]:
    """The repository's own virtual environment, if its check runs there."""
    return [str(git.folder / name) for name in (".venv", "venv") if f"{git.folder / name}/bin" in check]
