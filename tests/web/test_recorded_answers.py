"""Requests with all that the server answers, as recorded in `recorded/*.txt`.

A line that begins with `$ ` is a request: method, path and, in JSON, its body. Below it are its status unless
that is 200, and its body. Add a request and record with PROCTOR_RECORD_SNAPSHOTS=1, then read the difference.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from app_states import make_state
from stocked_judgments import compared_run
from stocked_runs import add_session

from filled import NOW, add_batch, carry_out, filled_store, items, task_items
from proctor.session import Message, Metric, ToolCall
from proctor.store import RetrySelection
from proctor.store.writer import this_process
from proctor.web.app import create_app
from recorded_files import check_transcript, mapped, written

RECORDED = Path(__file__).parent / "recorded"
TASKS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """Calls an application over a store that has runs, sessions and scores of all kinds."""
    from starlette.testclient import TestClient

    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with filled_store(home) as store:
        add_batch(store, "going", items()[:4])
        store.resume_batch("going", this_process(), RetrySelection(), NOW)
        for run, good in (("before", 2), ("after", 5)):
            outcomes = {task: "success" if place < good else "fail" for place, task in enumerate(TASKS)}
            compared_run(store, run, outcomes, model="m", score="kind")
        add_batch(store, "steps", task_items(tasks=4, repeats=2))
        carry_out(store, "steps")
        said = [Message(role="user", content="Is it open? " * 30), Message(role="assistant", content="Yes.")]
        measured = [Metric(name="warmth", value=0.5 * number, step=number) for number in (1, 2)]
        look = ToolCall(name="look", args={"at": "sea"}, success=False, result="x" * 3000, duration_ms=12.0)
        add_session(store, "talk", [*said, look, *measured, said[1]])
        site = make_state(
            store,
            home=home,
            folder=tmp_path,
            environment={},
            command=["false"],
            now=lambda: NOW + timedelta(hours=1),
        )
        yield TestClient(create_app(site), base_url="http://127.0.0.1:8765")


def answer(request: str, client: Any, folder: Path) -> str:
    """The status, unless it is 200, and the body, without what differs between runs and machines."""

    def masked(name: str, value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.9g}")
        if not isinstance(value, str):
            return value
        if name == "svg":
            return f"drawing {hashlib.sha256(value.encode()).hexdigest()[:8]}"
        if name == "python" or (name == "id" and re.fullmatch("[0-9a-f]{16}", value)):
            return f"<{name}>"
        return value.replace(str(folder), "FOLDER")

    method, path, body = (request.split(" ", 2) + [""])[:3]
    replied = client.request(
        method,
        path,
        content=body.encode() or None,
        headers={"Content-Type": "application/json"} if body else {},
    )
    kind = replied.headers.get("content-type", "").partition(";")[0]
    text = written(mapped(replied.json(), masked)) if kind == "application/json" else masked("", replied.text)
    if kind == "text/html":
        text = re.sub("(?<=<style>).*(?=</style>)|(?<='sha256-)[^']*", "…", text, flags=re.DOTALL)
    status = "" if replied.status_code == 200 else f"{replied.status_code} {kind}\n"
    return f"{status}{text}\n"


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.txt")))
def test_requests_are_answered_as_before(name: str, client: Any, tmp_path: Path) -> None:
    check_transcript(RECORDED / f"{name}.txt", "GET|POST|DELETE", lambda each: answer(each, client, tmp_path))
