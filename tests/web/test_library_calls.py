"""What pages ask for is a call of the library in the server, not a command: in a thread where it blocks."""

import asyncio
import threading

import pytest
from app_states import changed_state

from proctor.web.actions import run_in_thread
from waiting import TIME_LIMIT_SECONDS


async def test_a_coroutine_in_a_thread_is_cancelled_with_its_caller_and_has_ended_by_then():
    # White-box: whoever hangs up sees no answer, and the end of what was under way is no part of any.
    begun, ended = threading.Event(), threading.Event()

    async def wait():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(run_in_thread(wait, seconds=TIME_LIMIT_SECONDS))
    assert await asyncio.to_thread(begun.wait, TIME_LIMIT_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended.is_set()
    with pytest.raises(TimeoutError):
        await run_in_thread(asyncio.Event().wait, seconds=0.01)


def test_programs_that_a_request_starts_do_not_get_the_secrets_of_the_server(site):
    secrets = {"PROCTOR_TOKEN": "hidden", "PROCTOR_ACCESS_KEYS": "a=b", "OPENAI_API_KEY": "kept"}
    state = changed_state(site, user_environment=secrets, environment={**secrets, "MORE": "kept"})

    settings = state.current_settings()

    assert settings.user_environment == {"OPENAI_API_KEY": "kept"}
    assert settings.environment == {"OPENAI_API_KEY": "kept", "MORE": "kept"}


def test_an_agent_is_tried_in_the_server_without_a_command(serve):
    server = serve(command=["/nonexistent/proctor"])

    tried = server.post("/api/trials", {"agent": "builtin", "model": "scripted/ok"}).json

    # It ran its task: the mock model says OK, and writes no file.
    assert tried["ok"] is False
    assert tried["message"].startswith("installed; fail (")
    assert "It ran and made no hello.txt." in tried["remedy"]
