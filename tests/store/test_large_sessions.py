"""A received session of thousands of spans is written in several short transactions."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from test_intake import mark, rows

from proctor.errors import Contradiction
from proctor.session import Message, Session, Step, TimedEvent, ToolCall
from proctor.store import Store

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
SPANS = 3_000
# No public entry dies between two transactions of a session: they take a tenth of a second together.
DIE = """
import os, signal, sys
from datetime import UTC, datetime
sys.path[:0] = {path!r}
from test_large_sessions import NOW, build
from proctor.store import Store, intake

def dying(session, insertions=intake._LargeSession._insertions):
    steps = list(insertions(session))
    return [*steps[:1], lambda connection: os.kill(os.getpid(), signal.SIGKILL), *steps[1:]]

intake._LargeSession._insertions = dying
with Store({url!r}) as store:
    store.arrivals.build_sessions(build, NOW)
"""


def text_of(number, word):
    return f"{word} {number} " * (1000 if number % 10 == 0 else 1)


def build(name, documents, left_out=0):
    """A message and a tool call of every span; every tenth text is long."""
    events = []
    for document in documents:
        text = text_of(document["number"], document["word"])
        call = ToolCall(name="look", args={"n": document["number"]}, result=text)
        events += [TimedEvent(event=Message(role="user", content=text)), TimedEvent(event=call)]
    return Session(
        external_id=name.external_id, source="otlp", service=name.service, steps=[Step(events=events)]
    )


def send(store, numbers, word="hello", now=NOW):
    store.arrivals.save(
        [(mark("t", f"{n:05}", started=n), {"number": n, "word": word}) for n in numbers], now
    )


def assert_whole(store, words):
    """The one session has every event once, and nothing is left to do."""
    ((session_id,),) = rows(store, "sessions", "id")
    evidence = store.read.evidence(str(session_id))
    texts = [text_of(number, words.get(number, "hello")) for number in range(SPANS)]
    assert [each.content for each in evidence.messages] == texts
    assert [each.result for each in evidence.tool_calls] == texts
    assert rows(store, "sessions", "status endReason") == [("success", "completed")]
    assert not store.arrivals.has_new()


def test_a_large_session_is_written_once_by_two_at_a_time_and_again_when_a_span_changes(url):
    with Store(url) as store, Store(url) as other:
        send(store, range(SPANS))
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda each: each.arrivals.build_sessions(build, NOW), (store, other)))
        assert_whole(store, {})

        send(store, [7, 20], "changed", NOW + timedelta(seconds=1))
        store.arrivals.build_sessions(build, NOW)
        assert_whole(store, {7: "changed", 20: "changed"})


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_large_session_is_built_again_after_a_kill_and_not_read_before(url):
    with Store(url) as store:
        send(store, range(SPANS))
        store.arrivals.build_sessions(build, NOW)
        send(store, [5], "changed", NOW + timedelta(seconds=1))
        died = subprocess.run([sys.executable, "-c", DIE.format(path=sys.path, url=url)], check=False)
        assert died.returncode == -signal.SIGKILL
        ((session_id, status),) = rows(store, "sessions", "id status")

        assert status == "running" and store.arrivals.has_new()
        with pytest.raises(Contradiction, match="being written"):
            store.read.evidence(str(session_id))
        store.arrivals.build_sessions(build, LATER)
        assert_whole(store, {5: "changed"})
