"""`proctor doctor` says what is well, what is wrong, and what to do about it."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.testing.model_server import ModelServer, ServerReply, failure, reply

KEY = "sk-proj-T7pQ2vXw9LkR4mZs8JdN"
# Enough of Claude Code to be taken for it: its version, its wire, its stream of events.
AGENT = """#!/usr/bin/env python3
import json, os, sys, urllib.request
if "--version" in sys.argv:
    sys.exit(print("9.9.9 (a program that passes for Claude Code)"))
{work}
print(json.dumps({{"type": "result", "subtype": "success", "result": "All done here."}}))
"""
CALLS = """
content = json.loads(input())["message"]["content"]
body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": content}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
open("hello.txt", "w").write("hello")
"""
NO_QUOTA = ServerReply(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota"}})


class Patient:
    """The command, and what it found."""

    def __init__(self, proctor: Any, folder: Path) -> None:
        self.proctor, self.folder = proctor, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        proctor.environment |= {"TMPDIR": str(self.temporary)}

    async def asked(self, *words: str, **environment: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and the document it printed; whatever it printed held no key."""
        done = await asyncio.to_thread(self.proctor, "doctor", *words, "--json", environment=environment)
        assert KEY not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def agent(self, work: str) -> dict[str, str]:
        """Install a program that passes for Claude Code; the variable that names it."""
        file = self.folder / "claude-like"
        file.write_text(AGENT.format(work=work))
        file.chmod(0o755)
        return {"CLAUDE_BIN": str(file)}


@pytest.fixture
def patient(proctor, tmp_path) -> Patient:
    return Patient(proctor, tmp_path)


def found(document: dict[str, Any], name: str) -> tuple[bool | None, str]:
    """What was found of one thing: whether it is well, and all that was said about it."""
    (row,) = [row for row in document["checks"] if row["name"] == name]
    return row["ok"], f"{row['message']} {row['remedy']}"


# The machine


async def test_a_machine_on_which_all_is_well(patient):
    code, told = await patient.asked(OPENAI_API_KEY=KEY)

    assert (code, told["ok"]) == (0, True)
    # The deprecated names.
    assert (told["well"], told["findings"]) == (True, told["checks"])
    assert {(row["well"], row["said"]) == (row["ok"], row["message"]) for row in told["checks"]} == {True}
    for name in ("python", "git", "store", "disk", "processes", "agent builtin"):
        assert found(told, name)[0] is True, name
    assert found(told, "keys") == (True, "set for openai (OPENAI_API_KEY) ")
    assert found(told, "agent codex") == (
        None,
        "`codex` is not on the PATH npm install -g @openai/codex@0.166.0",
    )
    assert not (patient.folder / "proctor-home").exists(), "looking makes nothing"


async def test_a_store_that_cannot_be_opened_is_wrong(patient):
    file = patient.folder / "proctor-home" / "proctor.db"
    file.parent.mkdir()
    file.write_text("this is no database, whatever its name" * 50)

    code, told = await patient.asked()

    assert (code, told["ok"]) == (1, False)
    well, said = found(told, "store")
    assert well is False and "--store or PROCTOR_STORE" in said


async def test_an_old_git_is_wrong(patient):
    old = patient.folder / "bin" / "git"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)

    path = {"PATH": f"{old.parent}{os.pathsep}{os.environ['PATH']}"}
    code, told = await patient.asked(**path)

    assert code == 1
    assert found(told, "git") == (False, "git version 2.20.1 Install git 2.31 or newer.")
    printed = await asyncio.to_thread(patient.proctor, "doctor", environment=path)
    assert printed.returncode == 1
    assert all(f"  {row['name']} " in printed.stdout for row in told["checks"])
    assert "git version 2.20.1\n" in printed.stdout and "  → Install git 2.31 or newer.\n" in printed.stdout


def test_agents_are_listed_with_what_they_lack(proctor):
    listed = {agent["name"]: agent for agent in proctor.json("agents")["agents"]}
    heading, *lines = proctor("agents").stdout.splitlines()

    assert heading.split() == ["AGENT", "READY", "VERSION", "NOTE", "REMEDY"]
    by_name = {line.split()[0]: line for line in lines}
    assert by_name.keys() == listed.keys()
    assert "mock agent, for tests and demos" in by_name["scripted"] and " yes " in by_name["scripted"]
    assert "`codex` is not on the PATH" in by_name["codex"] and "npm install -g @openai/" in by_name["codex"]


# A model


async def test_a_model_that_answers_tells_its_latency_tokens_and_cost(patient):
    async with ModelServer([reply("OK", input_tokens=1000, output_tokens=100)]) as server:
        code, told = await patient.asked(
            "--model", "openai/gpt-4o", OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY
        )

    assert code == 0
    model = told["model"]
    assert (model["answered"], model["text"], model["standIn"]) == (True, "OK", False)
    assert (model["promptTokens"], model["completionTokens"]) == (1000, 100)
    assert model["costUsd"] == pytest.approx(0.0035) and model["latencyMs"] > 0
    (asked,) = server.requests
    assert asked.get("max_tokens", asked.get("max_completion_tokens")) == 16
    assert "$0.0035" in found(told, "model openai/gpt-4o")[1]


async def test_a_stand_in_is_named_as_one(patient):
    code, told = await patient.asked("--model", "scripted/ok")
    assert (code, told["model"]["standIn"]) == (0, True)
    assert "mock model" in found(told, "model scripted/ok")[1]


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (
            failure(401, f"the key {KEY} is not good"),
            "auth",
            "the provider rejected the key in OPENAI_API_KEY",
        ),
        (failure(429, retry_after=30), "rate_limit", "Retry after 30 s; batches wait automatically."),
        (NO_QUOTA, "quota", "the account has no credit left"),
        (failure(500, "broken"), "model_failed", "broken"),
        (failure(404, "no model gpt-4x"), "bad_request", "Did you mean `openai/gpt-4o`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_model_that_fails_is_explained(patient, answer, reason, said):
    async with ModelServer([answer], names=["gpt-4o", "unlike-all"]) as server:
        code, told = await patient.asked(
            "--model", "openai/gpt-4x", OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY
        )

    assert (code, told["model"]["answered"], told["model"]["reason"]) == (1, False, reason)
    well, words = found(told, "model openai/gpt-4x")
    assert well is False and said in words
    assert len(server.requests) == 1, "a person waits: it is asked once"


async def test_a_model_that_is_there_is_not_offered_in_its_own_place(patient):
    async with ModelServer([failure(400, "max_tokens is too small")], names=["gpt-4o"]) as server:
        _, told = await patient.asked(
            "--model", "openai/gpt-4o", OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY
        )

    words = found(told, "model openai/gpt-4o")[1]
    assert "max_tokens is too small" in words
    assert "Did you mean" not in words


async def test_a_server_that_is_not_there_is_told_by_its_address(patient):
    code, told = await patient.asked("--model", "vllm/any", VLLM_BASE_URL="http://127.0.0.1:9/v1")
    words = found(told, "model vllm/any")[1]
    assert code == 1
    assert "cannot connect to http://127.0.0.1:9/v1" in words and "VLLM_BASE_URL" in words


async def test_a_key_that_is_missing_is_told_by_its_variable(patient):
    code, told = await patient.asked("--model", "openai/gpt-4o")
    assert code == 1
    assert "OPENAI_API_KEY is not set" in found(told, "model openai/gpt-4o")[1]


# An agent


async def test_an_agent_that_works_is_tried_for_real_and_leaves_nothing(patient):
    code, told = await patient.asked("--agent", "claude", "--model", "scripted/ok", **patient.agent(CALLS))

    assert code == 0, told
    agent = told["agent"]
    assert agent["version"] == "9.9.9 (a program that passes for Claude Code)"
    assert (agent["status"], agent["calls"], agent["failedCalls"]) == ("success", 1, [])
    assert agent["message"] == "All done here."
    assert "completed the task" in found(told, "agent claude")[1]
    assert list(patient.temporary.iterdir()) == []
    assert not (patient.folder / "proctor-home").exists()


async def test_an_agent_that_never_comes_to_the_gateway_is_told_as_such(patient):
    silent = patient.agent("open('hello.txt', 'w').close(); sys.exit('please log in first')")
    code, told = await patient.asked("--agent", "claude", "--model", "scripted/ok", **silent)

    assert code == 1
    well, words = found(told, "agent claude")
    assert well is False
    assert "please log in first" in words and "never called the gateway" in words


async def test_an_agent_that_does_nothing_fails_its_check(patient):
    code, told = await patient.asked("--agent", "builtin", "--model", "scripted/ok")
    assert (code, told["agent"]["reason"], told["agent"]["calls"]) == (1, "checks_failed", 1)
    assert "made no hello.txt" in found(told, "agent builtin")[1]


async def test_an_agent_that_is_not_installed_says_how_to_get_it(patient):
    code, told = await patient.asked("--agent", "codex", "--model", "scripted/ok")
    assert (code, told["agent"]["status"]) == (1, "missing")
    assert "npm install -g @openai/codex" in found(told, "agent codex")[1]
