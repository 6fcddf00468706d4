"""Own code as evaluators, part by part: the worker of a function, its answers, the ground truth it gets."""

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.evaluators import code, function_worker
from proctor.evaluators.code import FunctionProcess, ProcessDied, _references


async def answer_of(data: bytes) -> object:
    """The answer that a process reads from these bytes."""
    process = FunctionProcess.__new__(FunctionProcess)
    process._reader = asyncio.StreamReader()
    process._reader.feed_data(data)
    process._reader.feed_eof()
    return await process.answer()


async def test_an_answer_has_a_length_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code.LONGEST_ANSWER == 4 << 20
    monkeypatch.setattr(code, "LONGEST_ANSWER", 4)
    assert await answer_of(b"4\ntrue") is True
    assert await answer_of(b"1\n7rest") == 7
    for broken in (b"5\nfalse", b"-1\n", b"", b"x\n", b"4\ntru", b"0\n", b"2\n{x"):
        with pytest.raises(ProcessDied, match="the function's process ended without an answer"):
            await answer_of(broken)


def test_ground_truth_of_a_turn_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [SimpleNamespace(id=f"t{number}") for number in range(2)]
    monkeypatch.setattr(code, "turns_of", lambda evidence: turns)
    truth = {"assertions": ["a"], "turns": []}
    monkeypatch.setattr(code, "reference_document", lambda reference: truth)
    reference = SimpleNamespace(responses={2: "none", 1: "second", 0: "first"})
    evidence = SimpleNamespace(reference=reference, session_id="s")

    def found(level: str, turn: int) -> list[tuple[object, ...]]:
        entries = _references(evidence, SimpleNamespace(level=level, turn=turn))  # type: ignore[arg-type]
        assert entries[0] == {"context": {"spanContext": {"sessionId": "s"}}, "assertions": ["a"]}
        return [
            (each["context"]["spanContext"]["traceId"], each["expectedResponse"]["text"])  # type: ignore[index, call-overload]
            for each in entries[1:]
        ]

    assert found("session", 0) == [("t0", "first"), ("t1", "second")]
    assert found("trace", 1) == [("t1", "second")]
    assert found("tool_call", 0) == [("t0", "first")]
    assert found("trace", 2) == []
    truth.pop("assertions")
    assert [*_references(evidence, SimpleNamespace(level="trace", turn=5))] == []  # type: ignore[arg-type]
    evidence.reference = None
    assert _references(evidence, SimpleNamespace(level="session", turn=0)) == []  # type: ignore[arg-type]


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
