"""Own code as evaluators, part by part: the worker of a function, its answers, the ground truth it gets."""

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path

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


def exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, *messages: bytes) -> list[object]:
    """The answers of the worker of a function, and what it does with its limits."""
    limits: list[tuple[object, ...]] = []
    monkeypatch.setattr(function_worker.resource, "setrlimit", lambda *call: limits.append(call))
    (tmp_path / "own_function.py").write_text(source)
    path = str(tmp_path / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    answers: list[object] = []

    def ask() -> None:
        link = listener.accept()[0]
        stream = link.makefile("rwb")
        for message in messages:
            stream.write(message)
            stream.flush()
            answers.append(json.loads(stream.read(int(stream.readline()))))
        stream.write(b"\n")
        stream.close()
        link.close()

    asking = threading.Thread(target=ask)
    asking.start()
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_function", raising=False)
    function_worker.main(path, "own_function:f", str(tmp_path), 2000)
    asking.join()
    listener.close()
    memory = function_worker.resource.RLIMIT_AS
    assert limits == [(memory, (2000 << 20, 2000 << 20))]
    return answers


def framed(base: bytes, target: bytes) -> bytes:
    return b"%d %d\n" % (len(base), len(target)) + base + target


def test_targets_share_what_was_sent_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(event):\n    event['a'] = event.get('a', 0) + 1\n    return event\n"
    answers = exchanged(
        tmp_path,
        monkeypatch,
        source,
        framed(b"", b'{"b": 0}'),
        framed(b'{"a": 1}', b'{"b": 1}'),
        framed(b"", b'{"b": 2}'),
        framed(b'{"a": 5}', b'{"a": 6}'),
    )
    assert answers == [
        {"outcome": {"b": 0, "a": 1}},
        {"outcome": {"a": 2, "b": 1}},
        {"outcome": {"a": 2, "b": 2}},
        {"outcome": {"a": 7}},
    ]


def test_errors_and_results_that_are_too_large_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = "    if event['n'] < 0:\n        raise KeyError('x' * 3000)\n"
    source = f"def f(event):\n{fails}    return 'x' * event['n']\n"
    # `{"outcome": "…"}` has 15 characters around the text.
    messages = [framed(b"", b'{"n": %d}' % size) for size in (-1, (1 << 20) - 15, (1 << 20) - 14)]
    raised, largest, too_large = exchanged(tmp_path, monkeypatch, source, *messages)
    assert raised == {"raised": "KeyError", "message": f"'{'x' * 1999}"}
    assert isinstance(largest, dict) and len(largest["outcome"]) == (1 << 20) - 15
    assert too_large == {"raised": "ValueError", "message": "it returned more than a megabyte"}
