"""A store with an online configuration whose sessions have scores."""

from datetime import timedelta

from filled import NOW
from proctor.item import Item
from proctor.score import Score
from proctor.store import Ownership, Recorder, RetrySelection, Store, batches, timestamp
from proctor.store.definitions import Token

OWNER = "nowhere:1:1:x"


def add_online_config(store: Store, config_id: str = "c1", name: str = "support") -> None:
    """A configuration with one evaluation, `online`, without sessions."""
    at = timestamp(NOW)
    row = {"id": config_id, "name": name, "enabled": 1, "createdAt": at, "updatedAt": at}
    row |= {"description": "", "enabledAt": at}
    document = {"evaluators": [{"evaluatorId": "Builtin.Helpfulness"}]}
    store.definitions.create_config(row, document, Token(operation="x", token="", request={}))
    store.definitions.update_config_state(config_id, runId="online")
    batch = {"runId": "online", "createdAt": at, "job": "evaluation", "status": "running"}
    store.create_batch(batch | {"planPath": "", "defaultsJson": "{}", "proctorVersion": "0"}, [])


def judged(store, values, *, evaluator="tidy", first=0):
    """Sessions of the configuration with these scores; a tuple is a session with several targets."""
    items = [
        Item(runner="evaluation", prompt=f"{evaluator} {number}")
        for number in range(first, first + len(values))
    ]
    store.extend_batch("online", {}, add=items, settle=(), drop=())
    store.resume_batch("online", OWNER, RetrySelection(), NOW)
    writer = store.writer(Ownership(run_id="online", owner=OWNER, aborted=lambda: None, failed=print))
    for number, (item, value) in enumerate(zip(items, values, strict=True), start=first):
        at = NOW + timedelta(seconds=number)
        session_id = f"{evaluator[:4]}-{number:05}"
        row = {"runId": "online", "itemId": item.id, "attempt": 1, "status": "running", "isMock": 0}
        recorder = Recorder(
            writer, session_id, row | {"startedAt": timestamp(at), "job": "evaluation"}, lambda at=at: at
        )
        for each in value if isinstance(value, tuple) else (value,):
            recorder.score(Score(evaluator=evaluator, value=each, judged_session=f"s{number:05}"))
        recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
        changes = {"status": "success", "sessionId": session_id, "finishedAt": timestamp(at)}
        writer.change("batch_items", ("online", item.id), changes)
    writer.close()
    store.change(batches.change, "online", {"owner": "", "status": "completed"})
