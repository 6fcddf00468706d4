"""A store with a key, whole: real commands and a real server, killed, and every file below the home read."""

import base64
import json
import os
import re
import shutil
import socket
import zlib
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from databases import query
from proctor.errors import StoreError
from proctor.store import Store
from proctor.store.keys import Keys, LocalKey
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS, while_running

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluation"
SAID = "zanzibar-4711"
"""In the middle of everything that anybody says here."""
KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
KEY = base64.b64encode(bytes(range(32))).decode()
PLAN = f"""
runId: secrets
concurrency: 2
defaults:
  model: scripted/parrot
matrix:
  - prompt: Say {SAID} again
    runs: 8
    expect: {{contains: {SAID}}}
  - prompt: Fail with {SAID}
    runs: 2
    expect: {{contains: something else}}
"""
PARROT = f"""
latency_seconds: 0.1
rules:
  - reply: 'You said {SAID}. {SAID * 500}'
"""


@pytest.fixture
def desk(proctor, tmp_path):
    """What the user has, outside of Proctor's home, and a key in the environment."""
    shutil.copytree(EXAMPLE, tmp_path / "evaluation", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("sessions.jsonl", "judge.yaml", "truth.yaml"):
        file = tmp_path / "evaluation" / name
        text = file.read_text().replace("Oslo", SAID).replace("The agent", f"The {SAID} agent")
        file.write_text(text.replace("gave up on", f"gave {SAID} up on"))
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "parrot.yaml").write_text(PARROT)
    proctor.environment["PROCTOR_ENCRYPTION_KEY"] = KEY
    return tmp_path


def everything_below(folder):
    """The bytes of every file, and of what can be unpacked in it."""
    found = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for file, data in list(found.items()):
        at = data.find(b"x\x9c")
        while at != -1:
            try:
                found[file.with_name(f"{file.name}@{at}")] = zlib.decompressobj().decompress(
                    data[at:], 100_000
                )
            except zlib.error:
                pass
            at = data.find(b"x\x9c", at + 1)
    return found


def telling(folder):
    return [str(file) for file, data in everything_below(folder).items() if SAID.encode() in data]


def kill_after(process, what):
    eventually(while_running(process, what))
    process.kill()
    process.wait()
    process.stdout.close()


def finished(home):
    """How many items have ended so far."""
    try:
        with Store(str(home / "proctor.db"), KEYS) as store:
            (row,) = query(store, 'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "finishedAt" IS NOT NULL')
            return row["n"]
    except StoreError:
        return 0


def test_nothing_that_was_said_can_be_read_from_the_disk_and_all_of_it_with_the_key(proctor, desk):
    home = desk / "proctor-home"
    kill_after(proctor.start("batch", "plan.yaml"), lambda: finished(home) > 0)
    assert telling(home) == []
    assert proctor("batch", "plan.yaml", "--resume").returncode == 1
    assert proctor("import", "otlp", "evaluation/sessions.jsonl").returncode == 0
    judged = proctor("evaluate", "start", "evaluation/evaluation.yaml", "--detach", "--json")
    assert judged.returncode == 0, judged.stderr
    job = json.loads(judged.stdout)["batchEvaluationId"]
    assert proctor("evaluate", "watch", job).returncode == 0

    assert telling(home) == []
    assert (home / "proctor.db").stat().st_size > 100_000
    out = proctor("export", "--run", "secrets", "--format", "json", "--out", "tables")
    assert out.returncode == 0, out.stderr
    tables = "".join(file.read_text() for file in (desk / "tables").rglob("*") if file.is_file())
    assert tables.count(f"Say {SAID} again") >= 8 and tables.count(SAID * 500) >= 10
    assert proctor("evaluate", "results", job, "--output", "results").returncode == 0
    assert f"gave {SAID} up" in (desk / "results" / "records.jsonl").read_text()

    del proctor.environment["PROCTOR_ENCRYPTION_KEY"]
    listed = proctor("runs", "--json")
    assert {run["runId"] for run in json.loads(listed.stdout)["runs"]} == {"secrets", job}
    known = proctor("evaluate", "list", "--json")
    (evaluation,) = json.loads(known.stdout)["batchEvaluations"]
    assert (evaluation["batchEvaluationId"], evaluation["evaluators"]) == (job, [])
    assert evaluation["evaluationResults"]["totalNumberOfSessions"] == 6
    words = proctor("evaluate", "list").stdout
    assert job in words and "COMPLETED" in words and "(encrypted)" in words and SAID not in words
    assert proctor("evaluate", "get", job).returncode == 2
    shown = proctor("show", "secrets")
    assert shown.returncode == 2
    assert "is encrypted with the key local:" in shown.stderr and SAID not in shown.stderr + shown.stdout
    proctor.environment["PROCTOR_ENCRYPTION_KEY"] = base64.b64encode(os.urandom(32)).decode()
    wrong = proctor("batch", "plan.yaml", "--resume")
    assert wrong.returncode == 2 and "the configured key is local:" in wrong.stderr


def test_what_comes_in_through_the_server_lies_open_nowhere(proctor, desk):
    home = desk / "proctor-home"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = proctor.start("serve", "--no-token", "--port", str(port))
    address = f"http://127.0.0.1:{port}"

    def call(path, document):
        body = json.dumps(document).encode()
        request = Request(address + path, data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=TIME_LIMIT_SECONDS) as answer:
            return json.loads(answer.read() or b"{}")

    def is_up():
        try:
            urlopen(address, timeout=TIME_LIMIT_SECONDS).close()
        except OSError:
            return False
        return True

    eventually(while_running(server, is_up))
    for line in (desk / "evaluation" / "sessions.jsonl").read_text().splitlines():
        call("/v1/traces", json.loads(line))
    call("/api/runs", {"text": PLAN})
    source = {"kind": "arrived", "logGroups": ["/agents/travel"]}
    started = {"name": "sealed", "source": source, "evaluators": ["Builtin.TrajectoryAnyOrderMatch"]}
    with urlopen(f"{address}/evaluations/{call('/api/evaluations', started)['id']}") as page:
        # Names are sealed, so that no search finds them: the page says so and does not try.
        assert 'placeholder="Session names are encrypted"' in page.read().decode()
    kill_after(server, lambda: finished(home) > 0)

    eventually(lambda: all(run["status"] != "running" for run in proctor.json("runs")["runs"]))
    assert telling(home) == []


def report(proctor):
    """What the run came to, but for the minute in which that is asked."""
    return re.sub(r"\d\d:\d\d UTC", "", proctor("report", "--run", "secrets").stdout)


def test_keys_are_made_looked_at_and_changed_on_the_command_line(proctor, desk):
    home = desk / "proctor-home"
    del proctor.environment["PROCTOR_ENCRYPTION_KEY"]
    (desk / "parrot.yaml").write_text(PARROT.replace("0.1", "0"))
    assert proctor("batch", "plan.yaml").returncode == 1
    assert telling(home) != []
    reported = report(proctor)
    assert proctor.json("encryption", "status")["sealed"] is False
    made = proctor.json("encryption", "new-key", "keys/first")
    assert proctor("encryption", "new-key", "keys/first").returncode == 2
    assert (desk / "keys" / "first").stat().st_mode & 0o077 == 0
    (desk / "proctor.toml").write_text('[encryption]\nkey_file = "keys/first"\n')
    misplaced = proctor("runs")
    assert misplaced.returncode == 2 and f"Move its section [encryption] to {home}" in misplaced.stderr
    (desk / "proctor.toml").unlink()
    (home / "proctor.toml").write_text('[encryption]\nkey_file = "../keys/first"\n')

    status = proctor.json("encryption", "status")
    assert (status["sealed"], status["isHere"], status["keyId"]) == (True, True, made["keyId"])
    assert status["tables"]["messages"]["plain"] > 0
    printed = proctor("encryption", "status").stdout
    assert printed.startswith(f"The store is encrypted with the key {made['keyId']} (available).\n")
    assert "Encrypt it:  proctor encryption rotate --re-encrypt" in printed
    assert proctor.json("encryption", "rotate", "--again")["rows"] > 10
    assert telling(home) == []
    assert report(proctor) == reported
    status = proctor.json("encryption", "status")
    assert all(counts["plain"] == counts["retired"] == 0 for counts in status["tables"].values())

    second = proctor.json("encryption", "new-key", "keys/second")
    assert proctor.json("encryption", "rotate", "--new-key-file", "keys/second")["keyId"] == second["keyId"]
    refused = proctor("show", "secrets")
    assert refused.returncode == 2 and second["keyId"] in refused.stderr
    assert proctor.json("encryption", "status")["isHere"] is False
    assert f"{second['keyId']} (not available).\n" in proctor("encryption", "status").stdout
    (home / "proctor.toml").write_text('[encryption]\nkey_file = "../keys/second"\n')
    assert SAID in proctor("show", "secrets").stdout
