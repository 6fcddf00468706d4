"""The command line, variables and files of each agent that reaches its model through the gateway.

They are recorded in `command_lines.txt`.
"""

import asyncio
import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from test_calling_agents import NAMES

from proctor.agent import Access, Assignment
from proctor.agents import find_agent
from proctor.agents._program import Conversation, ProgramRun, with_loopback
from proctor.errors import WorkspaceError
from recorded_files import check

RECORDED = Path(__file__).with_name("command_lines.txt")
VALUES: dict[str, Any] = {"int": 7, "float": 1.5, "str": "some", "bool": True, "list[str]": ["--more"]}


def call_of(agent: Any, home: Path, model: str) -> dict[str, Any]:
    assignment = Assignment(
        prompt="- Repair it.",
        folder=home.parent / "tree",
        home=home,
        environment={"PATH": "/bin", "HOME": str(home)},
        attempt="a1",
        model=model,
        access=Access(url="http://127.0.0.1:81", token="the-token"),
    )
    (home.parent / "tree").mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    assert assignment.access is not None
    call = agent.call(ProgramRun(assignment, assignment.access, lambda event: None))
    files = {
        str(file.relative_to(home)): file.read_text() for file in sorted(home.rglob("*")) if file.is_file()
    }
    described = {
        "arguments": list(call.arguments),
        "variables": dict(call.variables),
        "typed": call.typed.line_of(call.typed.prompt)
        if isinstance(call.typed, Conversation)
        else call.typed,
        "files": files,
    }
    return json.loads(json.dumps(described).replace(str(home), "HOME").replace(str(home.parent), "FOLDER"))


def described(name: str, folder: Path) -> dict[str, Any]:
    """The calls of an agent as it is, and with each of its settings."""
    usual = find_agent(name, {})
    settings: dict[str, dict[str, Any]] = {"": {}}
    for each in fields(type(usual)):
        kind = str(each.type).removesuffix(" | None")
        if kind in VALUES and each.name not in ("unanswered_seconds", "login") and each.init:
            value = not getattr(usual, each.name) if kind == "bool" else VALUES[kind]
            settings[each.name] = {each.name: value}
    calls = {}
    for setting, values in settings.items():
        for model in ("provider/some-model", ""):
            if model or not setting:
                home = folder / f"home-{setting}-{bool(model)}"
                key = f"{setting or 'as it is'}{'' if model else ', no model'}"
                try:
                    calls[key] = call_of(type(usual)(**values), home, model)
                except (WorkspaceError, ValueError) as error:
                    calls[key] = {"refused": str(error)}
    plain = {
        each.name: each.default for each in fields(type(usual)) if each.default is not MISSING and each.init
    }
    return {"calls": calls, "defaults": json.loads(json.dumps(plain, default=str))}


def test_how_agents_are_called(tmp_path: Path) -> None:
    found = {}
    for name in sorted(NAMES):
        (tmp_path / name).mkdir()
        found[name] = described(name, tmp_path / name)
    check(RECORDED, found)


# --- What they share ---


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "a", "no_proxy": "b"}, "a,127.0.0.1,localhost"),
        ({"no_proxy": "b"}, "b,127.0.0.1,localhost"),
    ],
)
def test_the_gateway_is_reached_without_a_proxy(environment: dict[str, str], expected: str) -> None:
    assert with_loopback({"A": "1", **environment}, {"A": "2"}) == {
        "A": "2",
        "NO_PROXY": expected,
        "no_proxy": expected,
    }


def test_input_ends_for_a_wrapper_that_reads_all_of_it_before_it_starts():
    """Of the conversation itself: the agent's own patience is a minute."""

    async def typed() -> tuple[bytes, bool]:
        reading, writing = os.pipe()
        talk = Conversation("Fix it", asyncio.Queue(), str, patience_seconds=0.01)
        await talk.type_to(writing)
        os.close(writing)
        return os.read(reading, 100), os.read(reading, 1) == b""

    assert asyncio.run(typed()) == (b"Fix it\n", True)
