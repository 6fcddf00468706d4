"""One SQLite store of several processes at a time: a server that receives spans, runs, evaluations, reports.

`PROCTOR_TEST_SECONDS=60` makes it last a minute.
"""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

from databases import query
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS, while_running

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = float(os.environ.get("PROCTOR_TEST_SECONDS", "4"))
SESSIONS_AT_ONCE = 10
PLAN = """
concurrency: 8
defaults: {model: scripted/replies, expect: {contains: OK}}
matrix:
"""


def spans(number):
    """A request with a few sessions of two spans."""
    made = []
    for place in range(SESSIONS_AT_ONCE):
        trace = f"{number * SESSIONS_AT_ONCE + place + 1:032x}"
        told = [{"role": "user", "parts": [{"type": "text", "content": f"Hello {trace}?"}]}]
        for span, parent, operation in (("1" * 16, "", "invoke_agent"), ("2" * 16, "1" * 16, "chat")):
            words = {"gen_ai.operation.name": operation, "gen_ai.input.messages": json.dumps(told)}
            made.append(
                {
                    "traceId": trace,
                    "spanId": span,
                    "parentSpanId": parent,
                    "name": operation,
                    "startTimeUnixNano": str(time.time_ns()),
                    "endTimeUnixNano": str(time.time_ns()),
                    "attributes": [
                        {"key": key, "value": {"stringValue": value}} for key, value in words.items()
                    ],
                }
            )
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "agent"}, "spans": made}]}]}


def sends(address, sent, deadline, first):
    number = first
    while time.monotonic() < deadline:
        body = json.dumps(spans(number)).encode()
        request = Request(f"{address}/v1/traces", data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=TIME_LIMIT_SECONDS) as answer:
            sent.append((number, answer.status))
        number += 1


def repeated(proctor, ended, deadline, *words):
    """Run a command again and again; what it returned and printed as an error."""
    number = 0
    while not number or time.monotonic() < deadline:
        done = proctor(*(word.format(number) for word in words))
        ended.append((words[0], done.returncode, done.stderr if done.returncode else ""))
        number += 1


def test_a_server_runs_evaluations_and_reports_share_a_store_under_load(proctor, tmp_path):
    shutil.copytree(EXAMPLES / "evaluation", tmp_path / "evaluation")
    (tmp_path / "replies.yaml").write_text("rules: [{reply: OK}]\n")
    entries = (f"  - prompt: Question {number}\n" for number in range(60))
    (tmp_path / "plan.yaml").write_text(PLAN + "".join(entries))
    assert proctor("batch", "plan.yaml", "--run-id", "first").returncode == 0
    server = proctor.start("serve", "--no-token", "--port", "0", "--json")
    printed = ""
    while not printed.rstrip().endswith("}"):
        printed += server.stdout.readline()
    address = json.loads(printed)["url"].rstrip("/")
    deadline, sent, ended = time.monotonic() + SECONDS, list[tuple[int, int]](), list[tuple[str, int, str]]()

    threads = [
        threading.Thread(target=sends, args=(address, sent, deadline, first)) for first in (0, 1_000_000)
    ]
    commands = (
        ("batch", "plan.yaml", "--run-id", "run-{}"),
        ("evaluate", "start", "evaluation/evaluation.yaml", "--name", "job_{}"),
        ("report", "--run", "first", "--out", "report.md"),
    )
    threads += [
        threading.Thread(target=repeated, args=(proctor, ended, deadline, *words)) for words in commands
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT_SECONDS)

    assert {name for name, *_ in ended} == {"batch", "evaluate", "report"}
    assert [each for each in ended if each[1:] != (0, "")] == []
    assert {status for _, status in sent} == {200} and len(sent) > 2
    with proctor.open_store() as store:

        def unbuilt():
            return query(store, 'SELECT COUNT(*) AS "n" FROM "arrivals" WHERE "isNew" = 1')[0]["n"]

        eventually(while_running(server, lambda: unbuilt() == 0))
        # The evaluation's own sessions have a service.
        (received,) = query(store, 'SELECT COUNT(*) AS "n" FROM "arrivals" WHERE "service" = \'\'')
        assert received["n"] == len(sent) * SESSIONS_AT_ONCE * 2
        states = query(store, 'SELECT DISTINCT "status" FROM "batches"')
        assert [each["status"] for each in states] == ["completed"]
        (open_items,) = query(store, 'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "finishedAt" IS NULL')
        assert open_items["n"] == 0
    server.send_signal(signal.SIGINT)
    server.wait(TIME_LIMIT_SECONDS)
    printed = server.stdout.read()
    assert "locked" not in printed and "Traceback" not in printed
