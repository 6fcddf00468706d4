"""Own code as evaluators, part by part: the worker of a function, its answers, the ground truth it gets."""

import asyncio
import json

import pytest

from proctor.evaluators import function_worker


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda event: ("one", event), ("one", {"a": 1})),
        (lambda event, context: ("two", context), ("two", None)),
        (lambda event, context="own": ("default", context), ("default", "own")),
        (lambda event, *rest, **more: ("rest", rest, more), ("rest", (), {})),
        (lambda event, *, x=3: ("keyword", x), ("keyword", 3)),
    ],
)
def test_a_function_gets_an_event_and_perhaps_a_context(function: object, expected: object) -> None:
    assert function_worker.call_function(function, {"a": 1}) == expected  # type: ignore[arg-type]


def test_a_coroutine_is_run_to_its_result() -> None:
    async def later(event: object) -> object:
        await asyncio.sleep(0)
        return event

    assert function_worker.call_function(later, {"a": 1}) == {"a": 1}
    assert function_worker.load_function("json:dumps") is json.dumps
