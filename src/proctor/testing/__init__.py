"""Helpers for tests of agents, evaluators and plans: `eventually`, a git repository, and two modules.

`proctor.testing.model_server` is a provider on loopback, `proctor.testing.fixtures` a pytest plugin.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.01, 0.2
GIT_SETTINGS = (
    "user.name=Test",
    "user.email=test@localhost",
    "commit.gpgsign=false",
    "core.hooksPath=/dev/null",
)
"""Commits are the same whatever the user has configured."""


def eventually(condition: Callable[[], Value], timeout: float = 120.0) -> Value:
    """Call `condition` until it returns something true, and return that.

    Between two calls it waits 10 ms, or three times as long as the first of them took, at most 0.2 s.
    Raises AssertionError after `timeout` seconds. For tests that are not `async`: see `eventually_async`.
    """
    deadline = time.monotonic() + timeout
    while True:
        started = time.monotonic()
        if value := condition():
            return value
        _check(deadline, timeout)
        time.sleep(_pause(started))


async def eventually_async(
    condition: Callable[[], Value] | Callable[[], Awaitable[Value]],
    timeout: float = 120.0,  # noqa: ASYNC109  as `eventually`
) -> Value:
    """As `eventually`, while the event loop runs on. `condition` may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        started = time.monotonic()
        value = condition()
        result: Value = await value if isawaitable(value) else value
        if result:
            return result
        _check(deadline, timeout)
        await asyncio.sleep(_pause(started))


def _pause(started: float) -> float:
    """How long to wait before the next call: what is waited for needs the processor more than the test."""
    return min(MAX_POLL_SECONDS, max(MIN_POLL_SECONDS, 3 * (time.monotonic() - started)))


def _check(deadline: float, timeout: float) -> None:
    # pytest leaves this frame out of the traceback.
    __tracebackhide__ = True
    if time.monotonic() > deadline:
        raise AssertionError(f"the condition was not met within {timeout:g} seconds")


def make_git_repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a git repository with one commit of `files` (contents by path) on `main`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    settings = [word for setting in GIT_SETTINGS for word in ("-c", setting)]
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *settings, *arguments], cwd=folder, check=True)
    return folder
