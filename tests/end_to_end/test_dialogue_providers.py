"""Simulations against a provider on loopback: what it is asked, what that costs, and its bad days."""

import asyncio
import json
from itertools import chain, repeat
from pathlib import Path

import pytest
from conversations import read, split

from proctor.testing.model_server import ModelServer, ServerReply, failure, reply

KEY = "sk-loopback-0123456789"


def environment(server: ModelServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}


def talking(request: dict) -> ServerReply:
    number = len(request["messages"])
    return reply(f"Words {number}, and the key {KEY}.", input_tokens=100, output_tokens=10)


async def run(proctor, server: ModelServer, words: str):
    return await asyncio.to_thread(proctor, *split(words), environment=environment(server))


async def test_the_documented_config_reaches_the_provider_it_names_and_the_key_no_file(proctor, talking_desk):
    (talking_desk / "batch_config.yaml").write_text(
        "clients: [patientPsi]\ntherapists: [CBT]\nnum_runs: 2\nmax_turns: 2\nmax_workers: 2\nseed: 42\n"
        "model_type: OPENAI\nmodel_name: gpt-4o\ntemperature: 0.7\n"
    )
    async with ModelServer(talking) as server:
        done = await run(proctor, server, "simulate --config batch_config.yaml --output-dir out")

    session = read(talking_desk / "out" / "patientPsi_CBT_run0.json")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 8
    assert {request["model"] for request in server.requests} == {"gpt-4o"}
    assert {request["temperature"] for request in server.requests} == {0.7}
    assert session["seed"] in {request["seed"] for request in server.requests}
    assert session["usage"]["client"]["total_tokens"] == 220
    assert session["usage"]["total_cost"] > 0
    assert session["stand_in"] is False
    files = [path for path in Path(talking_desk).rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in done.stdout + done.stderr


async def test_a_retry_after_a_bad_moment_succeeds_and_its_file_is_the_last_attempts(proctor, talking_desk):
    (talking_desk / "c.yaml").write_text("num_runs: 1\nmax_turns: 1\nretries: 2\n")
    answers = [reply("One."), ServerReply(body={"choices": []}), reply("Three."), reply("Four.")]
    async with ModelServer(answers) as server:
        done = await run(proctor, server, "simulate --config c.yaml --output-dir out")

    session = read(talking_desk / "out" / "patientPsi_CBT_run0.json")
    assert done.returncode == 0, done.stderr
    assert (session["status"], session["record"]["attempt"]) == ("success", 2)
    assert [message["content"] for message in session["messages"]] == ["Three.", "Four."]


async def test_a_dialogue_that_takes_too_long_is_cut_and_kept(proctor, talking_desk) -> None:
    (talking_desk / "c.yaml").write_text("num_runs: 1\nmax_turns: 50\ntimeout_sec: 2\n")

    # The first words come at once, so that some are there at the limit on a slow machine as well.
    delays = chain([0.0, 0.0], repeat(0.3))

    def slowly(request: dict) -> ServerReply:
        return reply(f"Words {len(json.dumps(request))}.", delay_seconds=next(delays))

    async with ModelServer(slowly) as server:
        done = await run(proctor, server, "simulate --config c.yaml --output-dir out")

    session = read(talking_desk / "out" / "patientPsi_CBT_run0.json")
    assert done.returncode == 1
    assert (session["status"], session["reason"], session["caused_by"]) == ("timeout", "timeout", "limits")
    assert 0 < len(session["messages"]) < 100


def strict(request: dict) -> ServerReply:
    """A chat template that accepts a system prompt, then user and assistant in turn, and the user last."""
    roles = [message["role"] for message in request["messages"]]
    turns = roles[1:] if roles[0] == "system" else roles
    if turns != [("user", "assistant")[number % 2] for number in range(len(turns))] or len(turns) % 2 == 0:
        return failure(400, f"Conversation roles must alternate user/assistant: {' '.join(roles)}")
    if "Answer with one JSON object" in request["messages"][-1]["content"]:
        fields = {"Deny": 20, "Downplay": 20, "Blame": 20, "Inform": 20, "Engage": 20, "number": 1}
        counselor = {"stage": "Contemplation", "strategies": ["Affirm", "Reframe"], "move": "Switch"}
        marks = {"topic": "Economy", "best": 1, "topic_score": 1, "strategy_score": 1, "advice": "shorter"}
        return reply(json.dumps(fields | counselor | marks | {"patience": 5, "solved": False}))
    return reply(f"Words {len(json.dumps(request))}.")


@pytest.mark.parametrize(
    "sides", ["--clients patientPsi,consistentMI --therapists CBT,MI", "--clients customer"]
)
async def test_a_strict_chat_template_accepts_every_history(proctor, talking_desk, sides: str) -> None:
    words = f"simulate {sides} --num-runs 1 --max-turns 4 --output-dir out"
    async with ModelServer(strict) as server:
        done = await run(proctor, server, words)

    assert done.returncode == 0, done.stderr
    opener = "customer" if "customer" in sides else "therapist"
    histories = [
        [message["content"] for message in request["messages"] if message["role"] == "user"]
        for request in server.requests
        if len(request["messages"]) > 5
    ]
    opened = [users for users in histories if users[0] == "[Moderator] You may start the session now."]
    assert opened, f"the {opener} sees in its history who asked it to begin"
    assert any("2 turns are left" in text for users in opened for text in users[:-1])
