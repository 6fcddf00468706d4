"""A store with a row for every query, in which everything that people or agents say contains one text."""

from datetime import timedelta
from typing import Any

from proctor.item import Item
from proctor.score import Ballot, Score
from proctor.session import (
    Iteration,
    Merge,
    Message,
    Metric,
    ModelCall,
    Note,
    Session,
    Step,
    TimedEvent,
    ToolCall,
    Usage,
)
from proctor.store import Resource, Store, annotations, batches, timestamp
from proctor.store.annotations import Annotation, CalibrationRecord, Label
from proctor.store.definitions import Token
from proctor.store.drift import LineKey, NewScore
from proctor.store.evaluations import EvaluationRecord
from proctor.store.intake import LogEvent
from proctor.store.ledger import exchange
from proctor.telemetry.documents import SessionMark
from stocked import NOW, owned, session

LINE = LineKey("oc-1", "tidy", "")
TEXT = "the-cat-is-under-the-stairs"
LONG = TEXT * 400
SETTINGS = {"session": "s1", "evaluator": "tidy", "combination": "c", "run": 1, "say": TEXT}


def item(prompt: str, **more: Any) -> Item:
    return Item(runner="prompt", prompt=prompt, model="m", settings=SETTINGS, details={"said": TEXT}, **more)


ITEM = item("town", agent="amp", factors={"task": "fix", "model": "m"})
OTHER = item(TEXT, factors={"task": TEXT})
FAILED, QUEUED, CUT_OFF = item("failed"), item("later"), item("cut off")


def fill(store: Store) -> None:
    row = {"createdAt": timestamp(NOW), "planPath": "plan.yaml", "planDigest": "d", "owner": "me"}
    batch = {"runId": "run", "job": "scenario", "status": "running", "budgetUsd": 1.0}
    texts = {"planText": LONG, "defaultsJson": f'"{TEXT}"', "optionsJson": f'"{TEXT}"'}
    batch |= row | texts | {"heartbeatAt": timestamp(NOW)}
    store.create_batch(batch, [ITEM, OTHER, FAILED, QUEUED, CUT_OFF])
    writer = store.writer(owned("run", "me"))
    _record(writer, "s1", ITEM, "success")
    _record(writer, "s2", OTHER, "")
    _record(writer, "s3", FAILED, "fail")
    aborted = {"status": "error", "reason": "aborted", "error": TEXT}
    writer.change("batch_items", ("run", CUT_OFF.id), aborted)
    figures = {"limit": 4.0, "inUse": 1, "waiting": 0, "calls": 9, "limited": 0, "waitedSeconds": 0.5}
    pool = {"name": "openai/m", "runId": "run", "heldUntil": None, "cutAt": None} | figures
    writer.submit(lambda connection: exchange(connection, "me", [pool], NOW))
    writer.close()
    said = TimedEvent(event=Message(role="user", content=LONG))
    imported = Session(
        external_id="ext",
        source="otlp",
        log_group="g",
        name=TEXT,
        started_at=NOW,
        attributes={"said": TEXT},
        notes=[TEXT],
        steps=[Step(trace_id="t", events=[said])],
    )
    imported_id = store.save_imported(imported, NOW)
    store.save_label(Label(session_id="s1", evaluator="tidy", who="me", label=TEXT, note=LONG), NOW)
    for kind, text in (("tag", "odd"), ("tag", TEXT), ("note", TEXT)):
        store.annotate(Annotation(session_ids=["s1"], kind=kind, text=text, author="me"), NOW)
    calibration = CalibrationRecord(
        evaluator="tidy", evaluator_digest="d", targets=1, document={"pairs": [LONG]}
    )
    store.change(annotations.save_calibration, calibration, NOW)
    store.change(batches.ask, "run", ITEM.id, "mayor", f"question {TEXT}", NOW)
    store.change(batches.add_resources, "run", [Resource("role", "client", "d1", LONG)])
    for stream in ("", "s"):
        store.logs.create("g", stream, NOW)
    store.logs.put("g", "s", [LogEvent(timestamp_ms=1, message=text) for text in (TEXT, LONG)], NOW)
    _define(store)
    names = {"configId": "oc-1", "evaluator": "tidy", "dimension": "", "position": 1, "at": timestamp(NOW)}
    score = NewScore(evaluator="tidy", dimension="", sessionId="s1", value=0.5, at=timestamp(NOW))
    point = names | {"mean": 0.5, "low": 0.1, "high": 0.9}
    crossing = names | {"direction": "up", "beforeMean": 0.1, "beforeLow": 0.0, "beforeHigh": 0.2}
    crossing |= {"afterMean": 0.5, "afterLow": 0.4, "afterHigh": 0.6, "afterSessions": 9, "alert": "none"}
    crossing |= {"attempts": 0, "nextAt": None, "problem": ""}
    store.drift.add(LINE, 0, [score], [point], crossing)
    document = {"attributes": {"said": TEXT}}
    store.arrivals.save([(mark(span), document) for span in ("s" * 16, "u" * 16)], NOW)
    writer = store.writer()
    for span, session_id in (("s" * 16, "s1"), ("u" * 16, imported_id)):
        change = ('UPDATE "arrivals" SET "sessionId" = ? WHERE "spanId" = ?', (session_id, span))
        writer.submit(lambda connection, change=change: connection.run(*change))
    writer.close()
    job = EvaluationRecord(
        id="job-1",
        arn="arn:x/job-1",
        name="job",
        request={"description": TEXT},
        request_digest="d",
        metadata=[{"assertion": LONG}],
        definitions={"mine": {"instructions": TEXT}},
        output_group="g",
        output_stream="out",
    )
    store.evaluations.create(job, row | {"runId": "job-1", "job": "evaluation", "status": "running"}, NOW)
    store.evaluations.record_failure("job-1", TEXT)
    store.extend_batch("job-1", {}, add=[ITEM], settle=(), drop=())
    writer = store.writer()
    writer.change("batch_items", ("job-1", ITEM.id), {"sessionId": "s1"})
    writer.close()


def _define(store: Store) -> None:
    times = {"createdAt": timestamp(NOW), "updatedAt": timestamp(NOW), "description": TEXT}
    token = Token(operation="o", token="", request={})
    evaluator = {"id": "ev-1", "name": "ev", "level": "SESSION", "kind": "llmAsAJudge"}
    store.definitions.create_evaluator(evaluator | times, {"instructions": LONG}, token)
    document = {"evaluators": [{"evaluatorId": "ev-1"}, {"evaluatorId": TEXT}]}
    store.definitions.create_config({"id": "oc-1", "name": "oc", "enabled": 1} | times, document, token)
    store.definitions.update_config_state("oc-1", failure=TEXT)
    store.definitions.record_decisions("oc-1", {"s1": "judge"}, NOW)
    store.definitions.tag("arn", {"team": "a"})
    dataset = {"id": "ds-1", "name": "ds", "schemaType": "THIRD_PARTY_EVALUATION_V1"} | times
    store.datasets.create(dataset, {"e1": {"text": LONG}, "e2": {"text": TEXT}}, token)
    store.datasets.publish("ds-1", token, NOW)
    advice = {"id": "r-1", "name": "r", "type": "SYSTEM_PROMPT_RECOMMENDATION"} | times
    store.recommendations.create(advice, {"text": LONG}, token)
    bundle = {"id": "b-1", "kind": "configuration-bundle", "name": "b"} | times
    store.definitions.create_resource(bundle, {"text": LONG}, token)


def mark(span: str = "s" * 16) -> SessionMark:
    return SessionMark(
        trace_id="t" * 32,
        span_id=span,
        part="span",
        parent_id="",
        session_key="ext",
        service="svc",
        log_group="g",
        has_log_group=True,
        started=1,
    )


def _record(writer: Any, session_id: str, of: Item, status: str) -> None:
    facts = {"attempt": 1, "agent": "amp", "model": "m", "isMock": 1, "job": "scenario", "source": "batch"}
    recorder = session(writer, session_id, item_id=of.id, name=f"name {TEXT}", **facts)
    usage = Usage(input_tokens=10, output_tokens=5)
    merge = {"base_branch": "main", "mode": "squash", "message": TEXT, "error": TEXT}
    for event in (
        Message(role="user", content=LONG),
        ToolCall(name="look", args={"at": LONG}, result=TEXT, success=True, duration_ms=5.0),
        ToolCall(name="look", args={"at": TEXT}, result=LONG),
        ModelCall(
            model="m", usage=usage, cost_usd=0.1, latency_ms=1.0, request='{"tools": []}', response=LONG
        ),
        ModelCall(model="m", request=LONG, response=TEXT, error=TEXT),
        Metric(name="num_turns", value=3),
        Metric(name="mood", value=0.5, step=1),
        Metric(name="mood", value=TEXT),
        Note(text=TEXT),
        Merge(result="success", **merge),
        Iteration(output=LONG, test_output=TEXT, test_result="pass", commit_sha="abc", changed_files=1),
        ModelCall(model="m", usage=usage, cost_usd=0.1),
        Message(role="assistant", content=TEXT),
    ):
        recorder.record(event)
    if session_id != "s1":
        # The tools of the first are those of its first request.
        recorder.record_tools([{"name": TEXT}])
    recorder.score(
        Score(evaluator="tidy", value=0.5, explanation=LONG, label=TEXT, error=TEXT, cost_usd=0.01)
    )
    votes = (0.6, 0.8, TEXT)
    recorder.score(Score(evaluator="tidy", value=0.7, label="good", judged_session="s1", votes=votes))
    recorder.score(Score(evaluator="jury", value=1.0, ballots=(Ballot(model="m", label=TEXT, value=1.0),)))
    changes: dict[str, Any] = {"status": "running", "startedAt": timestamp(NOW), "sessionId": session_id}
    if status:
        recorder.end(status, "completed", TEXT, work_seconds=1.5, waiting_seconds=0.5)
        changes |= {"status": status, "finishedAt": timestamp(NOW + timedelta(seconds=2.5)), "error": TEXT}
        changes |= {"costUsd": 0.2, "tokensTotal": 30}
    writer.change("batch_items", ("run", of.id), changes)
