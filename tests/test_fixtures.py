"""The pytest plugin that users get: each fixture does what it says, in their tests as in ours."""

import asyncio
import json
import subprocess
import time
from urllib.request import Request, urlopen

import pytest

from proctor.testing import eventually, eventually_async
from proctor.testing.model_server import ModelServer, failure, reply
from waiting import TIME_LIMIT_SECONDS

TESTS_OF_A_USER = """
from datetime import UTC, datetime

from proctor.testing.model_server import reply

def test_all_three(proctor_store, model_server, git_repository):
    model_server.answers = [reply("Paris.")]
    assert proctor_store.read.batches(datetime.now(UTC)) == []
    assert model_server.url.startswith("http://127.0.0.1:")
    assert (git_repository / ".git").is_dir()
"""


def ask(server, words):
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    request = Request(
        f"{server.url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=TIME_LIMIT_SECONDS) as response:
        return json.loads(response.read())["choices"][0]["message"]["content"]


def test_a_user_gets_the_fixtures_by_naming_the_plugin(pytester):
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makeconftest('pytest_plugins = ["proctor.testing.fixtures"]')
    pytester.makepyfile(TESTS_OF_A_USER)

    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_model_server_answers_in_turn_and_keeps_the_requests(model_server):
    assert ask(model_server, "anything") == "OK."
    model_server.answers = [reply("Paris."), reply("Rome.")]
    assert [ask(model_server, words) for words in ("France?", "Italy?", "Again?")] == [
        "Paris.",
        "Rome.",
        "Rome.",
    ]
    model_server.answers = [reply("Oslo."), reply("Bern.")]
    assert ask(model_server, "Norway?") == "Oslo."
    assert [body["messages"][0]["content"] for body in model_server.requests] == [
        "anything",
        "France?",
        "Italy?",
        "Again?",
        "Norway?",
    ]


async def test_a_model_server_counts_what_it_bills():
    answers = [reply("Paris.", input_tokens=1000, output_tokens=10)]
    async with ModelServer(answers, prices=(2.0, 50.0)) as server:
        await asyncio.to_thread(ask, server, "France?")
    assert server.billed_usd == {"m": pytest.approx(0.0025)}


def test_the_model_server_refuses_when_it_has_to(model_server):
    model_server.answers = [failure(429, "slowly", retry_after=1)]
    with pytest.raises(OSError, match="429") as refused:
        ask(model_server, "anything")
    refused.value.close()


def test_the_repository_has_one_commit_and_nothing_to_commit(git_repository):
    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=git_repository, check=True, capture_output=True, text=True
        ).stdout

    assert git("rev-list", "--count", "main") == "1\n"
    assert git("status", "--porcelain") == ""


def test_eventually_returns_what_the_condition_came_to():
    values = iter([0, None, "", "there"])
    assert eventually(lambda: next(values)) == "there"


def test_a_condition_that_never_holds_fails_the_test_in_time():
    started = time.monotonic()
    with pytest.raises(AssertionError, match=r"not met within 0\.05 seconds"):
        eventually(lambda: False, timeout=0.05)
    assert 0.05 <= time.monotonic() - started < 5


async def test_the_event_loop_runs_on_while_a_test_waits():
    values = []
    asyncio.get_running_loop().call_later(0.02, values.append, "there")

    assert await eventually_async(lambda: values) == ["there"]


async def test_the_condition_may_be_a_coroutine_function():
    values = iter([0, 1])

    async def look():
        return next(values)

    assert await eventually_async(look) == 1
    with pytest.raises(AssertionError, match="not met"):
        await eventually_async(lambda: None, timeout=0.01)
