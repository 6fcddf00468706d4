"""`proctor gateway`, as one uses it by hand."""

import asyncio
import json
import signal
import socket
import threading
from contextlib import contextmanager

import aiohttp
from openai_calls import KEY, completion

from databases import query
from waiting import TIME_LIMIT_SECONDS


@contextmanager
def serving(proctor, *words, environment=None):
    """The real command; its announcement, and what it said when it has been interrupted."""
    process = proctor.start("gateway", "--json", *words, environment=environment or {}, separate_errors=True)
    lines = []
    # A command that never says anything must not hold up the suite.
    overdue = threading.Timer(60, process.kill)
    overdue.start()
    try:
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        told = json.loads("".join(lines))
        yield told
        process.send_signal(signal.SIGINT)
        told["said"] = process.communicate(timeout=TIME_LIMIT_SECONDS)[1]
        told["code"] = process.returncode
    finally:
        overdue.cancel()
        process.kill()
        process.wait()


async def ask(told, text="Capital?", model="openai/gpt-4o"):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {told['token']}"}
    async with aiohttp.ClientSession() as session:
        url = f"{told['variables']['OPENAI_BASE_URL']}/chat/completions"
        async with session.post(url, json=body, headers=headers) as response:
            return response.status, await response.read()


async def test_traffic_is_told_kept_recorded_and_had_again_offline(proctor, provider, tmp_path):
    provider.answers = [completion("Paris"), completion(f"your key is {KEY}")]
    reachable = {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": KEY}
    tape = tmp_path / "traffic.ndjson"

    with serving(proctor, "--record", str(tape), environment=reachable) as told:
        before = [await ask(told), await ask(told, "And the key?")]
        assert set(told["variables"]) >= {"OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY"}
    assert told["code"] == 0
    assert "openai/gpt-4o  100 in (40 cached), 20 out  $0.0004" in told["said"]
    assert "2 calls, 200 tokens in (80 cached), 40 out" in told["said"]

    with proctor.open_store() as store:
        rows = query(store, 'SELECT * FROM "sessions"')
        assert [(row["job"], row["status"], row["modelCalls"]) for row in rows] == [("gateway", "success", 2)]
        assert len(query(store, 'SELECT * FROM "model_calls"')) == 2

    with serving(proctor, "--replay", str(tape)) as again:
        assert [await ask(again), await ask(again, "And the key?")] == before
    assert "2 calls, 200 tokens in (80 cached), 40 out, $0.00" in again["said"]

    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file
    assert KEY not in told["said"] + again["said"]


async def test_one_model_answers_for_all(proctor):
    with serving(proctor, "--model", "scripted/echo") as told:
        status, raw = await ask(told, "hello", model="gpt-4o")
    assert status == 200 and json.loads(raw)["choices"][0]["message"]["content"] == "hello"
    assert "asked for the model `gpt-4o`, was given `scripted/echo`" in told["said"]


async def test_a_limit_of_ones_own_holds_for_it_too(proctor, provider):
    at_once, most = 0, 0

    async def slowly(_):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return completion("Paris")

    provider.answers = [slowly]
    (proctor.folder / "proctor.toml").write_text("[limits.openai]\nconcurrency = 2\n")
    with serving(
        proctor, environment={"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": KEY}
    ) as told:
        answers = await asyncio.gather(*(ask(told) for _ in range(8)))

    assert [status for status, _ in answers] == [200] * 8
    assert most == 2


def test_what_cannot_be_is_said_before_anything_starts(proctor, tmp_path):
    assert proctor("gateway", "--model", "nobody/x").returncode == 2
    assert proctor("gateway", "--replay", "none.ndjson").returncode == 2
    both = proctor("gateway", "--replay", "a", "--record", "b")
    assert both.returncode == 2 and "exclude each other" in both.stderr


def test_a_port_that_is_taken_is_said_with_what_to_do(proctor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = proctor("gateway", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "Address already in use\nPort 0 is any that is free" in done.stderr
