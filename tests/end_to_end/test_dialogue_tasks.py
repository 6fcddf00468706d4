"""Agents with tools, a policy and a world, and tasks whose end is checked."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conversations import ROOT, read, rows

from proctor import run_batch
from proctor.api.dialogues import BatchConfig
from proctor.errors import UsageError
from proctor.testing.model_server import ModelServer, ServerReply, reply

SHOP = ROOT / "examples" / "customer-service"
ACCOUNT = {"tools": [
    {"name": "close", "description": "Close the account.", "parameters": {"reason": "string"},
     "require": [{"that": "not closed", "else": "it is closed already"}],
     "set": {"closed": True, "inbox": "inbox + ['closed: ' ~ reason]"}, "returns": "'closed'"},
]}  # fmt: skip


@pytest.fixture
def shop(talking_desk: Path) -> Path:
    for file in SHOP.iterdir():
        if file.is_file():
            shutil.copy(file, talking_desk)
    return talking_desk


def sessions(folder: Path) -> dict[str, dict[str, Any]]:
    return {each["task"]: each for each in map(read, sorted(folder.glob("*_run*.json")))}


def test_the_ten_tasks_of_the_example_are_solved_by_its_scripted_agent(proctor, shop: Path) -> None:
    done = proctor("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")

    assert done.returncode == 0, done.stderr
    found = sessions(shop / "out")
    assert len(found) == 10
    assert {each["status"] for each in found.values()} == {"success"}
    moved = found["new_address"]
    assert moved["world_changes"] == {"orders.W-1005.address": "2 Quay Street, York"}
    assert [action["tool"] for action in moved["actions"]] == ["find_customer", "change_address"]
    assert {score["evaluator"]: score["value"] for score in moved["scores"]} == {
        "task.state": 1.0,
        "task.actions": 1.0,
        "task": 1.0,
    }
    refused = found["exchange_out_of_stock"]
    assert refused["world_changes"] == {}
    assert [action["success"] for action in refused["actions"]] == [True, True, False]

    proctor("export", "--input_dir", "out", "--output", "all.csv")
    table = rows("all.csv")
    assert {row["task"] for row in table} == set(found)
    assert {row["score.task"] for row in table} == {"1.0"}


def test_a_broken_rule_is_attributed_to_the_agent_or_to_the_user_who_did_not_do_their_part(proctor, shop):
    script = (shop / "as-agent.yaml").read_text()
    (shop / "as-agent.yaml").write_text(script.replace('Quay Street, York"}}', 'Key Street, York"}}'))
    tasks = (shop / "tasks.yaml").read_text()
    (shop / "tasks.yaml").write_text(tasks.replace("user: {says: [boots]}", "user: {says: [tent]}"))

    done = proctor("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")

    assert done.returncode == 1
    found = sessions(shop / "out")
    failed = {name: each["caused_by"] for name, each in found.items() if each["status"] == "fail"}
    assert failed == {"new_address": "role_under_test", "return_too_late": "simulated_other"}
    assert "2 Quay Street" in found["new_address"]["error"]


def test_a_tool_that_breaks_is_attributed_to_the_world(proctor, shop: Path) -> None:
    config = (shop / "rehearsal.yaml").read_text().replace("tasks: tasks.yaml", "tasks: one.yaml")
    (shop / "one.yaml").write_text(
        "tasks: [{name: quote, goal: Learn the cost., profile: {lines: [How much is express to Leeds?]}}]"
    )
    (shop / "broken.yaml").write_text(config)
    (shop / "shipping.py").write_text("def delivery_cost(state, town: str):\n    return 1 / 0\n")
    rule = "  - {match: express, tool: {name: delivery_cost, arguments: {town: Leeds}}}\n"
    (shop / "as-agent.yaml").write_text(f"rules:\n{rule}")

    done = proctor("simulate", "--config", "broken.yaml", "--output-dir", "out")

    session = sessions(shop / "out")["quote"]
    assert done.returncode == 1
    assert (session["status"], session["reason"], session["caused_by"]) == ("error", "tool_failed", "world")
    assert "ZeroDivisionError" in session["error"]


def config(**given: Any) -> BatchConfig:
    usual: dict[str, Any] = {
        "clients": ["simulated_user"],
        "therapists": [{"role": "tool_agent", **ACCOUNT}],
        "world": {"closed": False, "inbox": []},
        "tasks": [{"name": "close", "goal": "Close my account.", "checks": {"state": ["closed"]}}],
        "num_runs": 1,
        "max_turns": 3,
        "output_dir": "out",
        "model_name": "openai/any",
        "max_workers": 1,
    }
    return BatchConfig(**{**usual, **given})


async def simulate(monkeypatch, answer: Callable[[dict[str, Any]], ServerReply], **given: Any) -> Any:
    async with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        results = await asyncio.to_thread(run_batch, config(**given))
    return results, server.requests


def user_and_agent(request: dict[str, Any]) -> ServerReply:
    """A user who reads the inbox before it is satisfied, and an agent who closes the account when told to."""
    names = {tool["function"]["name"] for tool in request.get("tools", [])}
    last = request["messages"][-1]
    if "close" in names:
        if last["role"] == "tool":
            return reply("Your account is closed.")
        if "close my account" in last["content"].lower():
            return reply("", tool_calls=[{"name": "close", "arguments": {"reason": "asked"}}])
        return reply("Goodbye.")
    if last["role"] == "tool":
        return reply("END" if "closed: asked" in last["content"] else "I have no confirmation.")
    if "is closed" in last["content"]:
        return reply("", tool_calls=[{"name": "read_inbox", "arguments": {}}])
    return reply("Please close my account.")


async def test_both_sides_have_tools_and_share_the_world(talking_desk: Path, monkeypatch) -> None:
    inbox = {"name": "read_inbox", "description": "Read your mail.", "returns": "inbox"}
    results, requests = await simulate(
        monkeypatch, user_and_agent, clients=[{"role": "simulated_user", "tools": [inbox]}]
    )

    session = results[0]
    assert (session["status"], session["end_reason"]) == ("success", "client_ended")
    assert [(each["side"], each["tool"]) for each in session["actions"]] == [
        ("therapist", "close"),
        ("client", "read_inbox"),
    ]
    assert session["world_changes"] == {"closed": True, "inbox": ["closed: asked"]}
    users = [each["messages"] for each in requests if each["tools"][0]["function"]["name"] == "read_inbox"]
    assert "Close my account." in users[0][0]["content"]


async def test_calls_of_earlier_turns_are_in_the_history_and_the_policy_is_in_the_prompt(
    talking_desk: Path, monkeypatch
) -> None:
    def never_ends(request: dict[str, Any]) -> ServerReply:
        if not request.get("tools"):
            return reply(f"Please close my account, {len(request['messages'])}.")
        return user_and_agent(request)

    therapist = {"role": "support", "policy": "Be quick.", **ACCOUNT}
    results, requests = await simulate(monkeypatch, never_ends, therapists=[therapist], loop_turns=0)

    last = [each["messages"] for each in requests if each.get("tools")][-1]
    assert results[0]["status"] == "success"
    assert last[0]["content"].endswith("Be quick.")
    assert [message["role"] for message in last[1:6]] == ["user", "assistant", "tool", "assistant", "user"]
    # It called the tool again in later turns, which its rule refused.
    assert [each["success"] for each in results[0]["actions"]] == [True, False, False]


async def test_a_side_that_only_calls_tools_is_to_blame(talking_desk: Path, monkeypatch) -> None:
    def endless(request: dict[str, Any]) -> ServerReply:
        if not request.get("tools"):
            return reply("Please close my account.")
        return reply("", tool_calls=[{"name": "close", "arguments": {"reason": "asked"}}])

    results, requests = await simulate(monkeypatch, endless)

    assert (results[0]["status"], results[0]["caused_by"]) == ("fail", "role_under_test")
    assert "called tools in 30 successive answers" in results[0]["error"]
    assert len(requests) == 1 + 30


async def test_a_judge_attributes_what_the_rules_cannot(talking_desk: Path, monkeypatch) -> None:
    def judged(request: dict[str, Any]) -> ServerReply:
        if "Who caused the failure?" in request["messages"][-1]["content"]:
            return reply('{"reason": "It named another account.", "cause": "user"}')
        return reply(
            "Nothing to do." if request.get("tools") else "END" if len(request["messages"]) > 2 else "Hi."
        )

    results, _ = await simulate(monkeypatch, judged, attribution_model="openai/judge")

    assert (results[0]["status"], results[0]["caused_by"]) == ("fail", "simulated_other")
    assert any("It named another account" in note for note in results[0]["record"]["notes"])


async def test_an_agent_behind_an_http_endpoint_takes_a_side_and_calls_tools(talking_desk, monkeypatch):
    def agent(body: dict[str, Any]) -> ServerReply:
        if body["messages"][-1]["role"] == "tool":
            return ServerReply(body={"reply": "Your account is closed."})
        return ServerReply(body={"tool_calls": [{"name": "close", "arguments": {"reason": "asked"}}]})

    def user(request: dict[str, Any]) -> ServerReply:
        return reply("END" if "is closed" in request["messages"][-1]["content"] else "Close my account.")

    async with ModelServer(agent) as server:
        options = {"url": f"{server.url}/chat/completions"}
        entry = {"role": "endpoint", "label": "mine", "options": options, "policy": "Be quick.", **ACCOUNT}
        results, _ = await simulate(monkeypatch, user, therapists=[entry])

    assert results[0]["status"] == "success", results[0]
    received = server.requests[0]
    assert (received["message"], received["policy"]) == ("Close my account.", "Be quick.")
    assert received["tools"][0]["function"]["name"] == "close"
    assert results[0]["world_changes"]["closed"] is True


def test_an_interrupted_dialogue_resumes_with_its_world(proctor, shop: Path) -> None:
    script = (shop / "as-agent.yaml").read_text()
    broken = script.replace('after: 4, reply: "Your account', 'after: 9, reply: "Your account')
    broken = broken.replace("(\\d+), tool:", "(\\d+) again, tool:")
    (shop / "as-agent.yaml").write_text(broken)
    command = ("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")
    first = proctor(*command)
    assert sessions(shop / "out")["change_email"]["status"] == "error"
    (shop / "as-agent.yaml").write_text(script)

    second = proctor(*command, "--resume", "--retry-errors")

    session = sessions(shop / "out")["change_email"]
    assert (first.returncode, second.returncode) == (1, 0), second.stderr
    assert any("resumed after turn 1" in note for note in session["record"]["notes"])
    assert [each["tool"] for each in session["actions"]] == ["find_customer", "send_code", "change_email"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": [{"name": "a", "goal": "g", "checks": {"actions": ["shut"]}}]}, "there is no tool `shut`"),
        ({"therapists": [{"role": "tool_agent", "tools": [{"name": "x", "python": "no.py:f"}]}]}, "no.py:f"),
    ],
)
def test_faults_of_tools_and_tasks_are_reported_before_the_first_call(talking_desk, change, message):
    with pytest.raises(UsageError) as caught:
        run_batch(config(model_name="scripted/talking", **change))

    assert message in str(caught.value)
    assert not (talking_desk / "out").exists()


def test_a_program_of_a_tool_runs_confined(proctor, talking_desk: Path) -> None:
    secret = talking_desk / "proctor-home"
    secret.mkdir(exist_ok=True)
    (secret / "secret").write_text("s")
    (talking_desk / "look.py").write_text(
        "import json, pathlib, sys\njson.load(sys.stdin)\n"
        f"print(json.dumps({{'result': pathlib.Path({str(secret / 'secret')!r}).exists()}}))\n"
    )
    (talking_desk / "agent.yaml").write_text(
        "rules: [{after: 1, reply: done}, {tool: {name: look, arguments: {}}}]\n"
    )
    document = {
        "clients": [{"role": "scripted", "label": "user"}],
        "therapists": [{"role": "tool_agent", "model": "scripted/agent",
                        "tools": [{"name": "look", "command": ["python3", "look.py"]}]}],
        "opens": "client", "num_runs": 1, "max_turns": 1, "output_dir": "out",
    }  # fmt: skip
    (talking_desk / "c.yaml").write_text(json.dumps(document))

    done = proctor("simulate", "--config", "c.yaml")

    assert done.returncode == 0, done.stderr
    session = read(next((talking_desk / "out").glob("*_run0.json")))
    assert [(each["success"], each["result"]) for each in session["actions"]] == [(True, "false")]
