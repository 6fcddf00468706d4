"""Files and checkpoints of dialogues, made from rows of the store, and the job around them."""

import json
from datetime import datetime
from typing import Any

import pytest

from proctor.dialogue.conversation import ConversationCheckpoint, Side
from proctor.item import Item
from proctor.jobs.dialogue import files, job, report
from proctor.jobs.dialogue.job import DialogueOverrides
from proctor.score import Score


class Rows:
    """A reader of the store with given rows."""

    def __init__(self, **tables: Any) -> None:
        self.tables = tables

    def of_session(self, table: str, session_id: str) -> list[Any]:
        return list(self.tables.get(table, {}).get(session_id, ()))

    def session(self, session_id: str) -> Any:
        return self.tables["sessions"][session_id]

    def attempts(self, run_id: str, item_id: str) -> list[Any]:
        assert (run_id, item_id) == ("r", "i")
        return list(self.tables["attempts"])

    def exact_item(self, run_id: str, item_id: str) -> list[Any]:
        assert (run_id, item_id) == ("r", "i")
        return [self.tables["item"]]

    def items(self, run_id: str, chosen: Any, *, limit: int, offset: int) -> list[Any]:
        rows = [row for row in self.tables["items"] if row["status"] in chosen.statuses]
        return rows[offset : offset + min(limit, 2)]


def reader(**tables: Any) -> Any:
    return Rows(**tables)


def metric(name: str, value: Any = None, label: str = "", step: int = 0) -> dict[str, Any]:
    return {"name": name, "value": value, "label": label, "step": step}


def side(state: Any) -> Side:
    return Side(state=state, usage={"usage": {}, "cost": None, "calls": 0})  # type: ignore[typeddict-item]


def standing(turns: int, world: Any = None) -> str:
    sides = {"client": side({"mood": turns}), "therapist": side({})}
    return ConversationCheckpoint(turns=turns, seed=9, sides=sides, world=world).to_json()


def step(number: int, output: str) -> dict[str, Any]:
    return {"step": number, "output": output}


# --- Checkpoints ---


def attempt(name: str, status: str = "error", reason: str = "") -> dict[str, Any]:
    return {"id": name, "status": status, "endReason": reason}


def message(content: str, step: int, role: str = "assistant", name: str = "client") -> dict[str, Any]:
    return {"role": role, "name": name, "content": content, "step": step}


def test_a_checkpoint_has_the_messages_and_metrics_up_to_its_turn() -> None:
    read = reader(
        item={"settings": json.dumps({"underTest": "therapist"})},
        attempts=[attempt("two")],
        iterations={"two": [step(2, standing(2))]},
        messages={"two": [message("a", 0), message("b", 2), message("c", 3)]},
        metrics={
            "two": [
                metric("run", 1.0),
                metric("x", 0.0, step=1),
                metric("y", label="l", step=2),
                metric("z", 1.0, step=3),
            ]
        },
    )
    checkpoint = files.read_checkpoint(read, "r", "i")
    assert checkpoint is not None and checkpoint.conversation.turns == 2 and not checkpoint.is_finished
    assert [each["content"] for each in checkpoint.messages] == ["a", "b"]
    assert checkpoint.messages[0] == {"role": "assistant", "name": "client", "content": "a"}
    assert list(checkpoint.metrics) == [
        {"name": "x", "value": 0.0, "step": 1},
        {"name": "y", "value": "l", "step": 2},
    ]
    read.tables["attempts"] = []
    assert files.read_checkpoint(read, "r", "i") is None


SCORE_ROW = {
    "evaluator": "e",
    "value": 0.5,
    "label": "Good",
    "explanation": "why",
    "level": "trace",
    "target": "t",
    "evaluatorDigest": "d",
    "error": "",
    "dimension": "tone",
    "costUsd": 0.0,
}
CALL_ROW = {"toolName": "client: look", "argsJson": '{"a": 1}', "success": 1, "result": "seen"}


def test_a_finished_dialogue_is_judged_with_all_that_it_recorded() -> None:
    facts = [
        metric("num_turns", 3.0),
        metric("seed", 7.0),
        metric("end_reason", label="goodbye"),
        metric("usage.client.prompt_tokens", 10.0),
        metric("usage.client.completion_tokens", 5.0),
        metric("usage.client.total_tokens", 15.0),
        metric("usage.client.total_cost", 0.25),
        metric("client.mood", 2.0, step=1),
    ]
    read = reader(
        item={"settings": json.dumps({"underTest": "therapist", "judgedSession": "s"})},
        iterations={"s": [step(3, standing(3, {"state": {"n": 1}}))]},
        messages={"s": [message("a", 1)]},
        metrics={"s": facts},
        scores={"s": [SCORE_ROW]},
        tool_calls={"s": [CALL_ROW, CALL_ROW | {"toolName": "find", "argsJson": None, "success": 0}]},
    )
    checkpoint = files.read_checkpoint(read, "r", "i")
    assert checkpoint is not None and checkpoint.is_finished
    talk = checkpoint.conversation
    assert (talk.turns, talk.seed, talk.end_reason) == (3, 7, "goodbye")
    assert talk.sides["client"].state == {"mood": 3}
    usage = {"usage": {"input_tokens": 10, "output_tokens": 5}, "cost": 0.25, "calls": 1}
    assert talk.sides["client"].usage == usage
    nothing = {"usage": {"input_tokens": 0, "output_tokens": 0}, "cost": None, "calls": 0}
    assert talk.sides["therapist"].usage == nothing
    assert talk.world == {
        "state": {"n": 1},
        "actions": [
            {"side": "client", "tool": "look", "arguments": {"a": 1}, "success": True, "result": "seen"},
            {"side": "therapist", "tool": "find", "arguments": {}, "success": False, "result": "seen"},
        ],
    }
    assert list(checkpoint.metrics) == [{"name": "client.mood", "value": 2.0, "step": 1}]
    assert list(checkpoint.scores) == [
        Score(
            evaluator="e",
            value=0.5,
            label="Good",
            explanation="why",
            level="trace",
            target="t",
            evaluator_digest="d",
            dimension="tone",
        )
    ]
    # Without steps and facts: a dialogue of no turns and no world.
    bare = files.finished_checkpoint(reader(), "s", "therapist").conversation
    assert (bare.turns, bare.seed, bare.end_reason, bare.world) == (0, 0, "ended", None)
    assert bare.sides["client"].state == {}


@pytest.mark.parametrize(
    ("row", "session", "evaluators", "is_queued"),
    [
        ({}, {}, ["a"], False),
        ({}, {}, ["a", "b"], True),
        ({"known": None}, {}, ["a"], True),
        ({"status": "queued"}, {}, ["a"], True),
        ({"status": "queued"}, {"status": "fail", "endReason": "checks_failed"}, ["a", "b"], False),
        ({"status": "fail"}, {"status": "fail", "endReason": "checks_failed"}, ["a", "b"], True),
        ({"status": "error"}, {"status": "error", "endReason": "x"}, ["a", "b"], False),
        ({"sessionId": None}, {}, ["a", "b"], False),
        ({}, {}, [], False),
    ],
)
def test_finished_dialogues_are_judged_by_evaluators_that_are_new(
    row: dict[str, Any], session: dict[str, Any], evaluators: list[str], is_queued: bool
) -> None:
    item = Item(runner="dialogue", prompt="p", settings={"evaluators": evaluators})
    known = row.pop("known", ["a"])
    stored = {
        "id": item.id,
        "status": "success",
        "sessionId": "s",
        "settings": json.dumps({"evaluators": known}),
    }
    read = reader(
        items=[stored | row, {"id": "another", "status": "success", "sessionId": "s", "settings": "{}"}],
        sessions={"s": {"id": "s", "status": "success", "endReason": "completed"} | session},
    )
    found = files.unjudged_items(read, "r", [item])
    assert [each.settings for each in found] == (
        [{"evaluators": evaluators, "judgedSession": "s"}] if is_queued else []
    )


# --- Files ---


DETAILS = {
    side: {
        "profile": {"name": side},
        "label": f"{side} label",
        "role": side,
        "digest": "d",
        "profileName": "p",
        "options": {},
        "model": "m",
        "parameters": {},
    }
    for side in ("client", "therapist")
} | {"maxTurns": 5, "opens": "client"}
SETTINGS = {"run": 2, "combination": "a_b", "underTest": "therapist", "file": "a_b_run2.json"}


def row(**changes: Any) -> Any:
    usual: dict[str, Any] = {"id": "i", "runId": "r", "status": "success", "reason": "completed", "error": ""}
    usual |= {"details": json.dumps(DETAILS), "settings": json.dumps(SETTINGS), "sessionId": "s"}
    return usual | {"factors": json.dumps({"client": "a", "therapist": "b"})} | changes


def sessions(**changes: Any) -> Any:
    usual: dict[str, Any] = {"standIn": 1, "attempt": 2, "startedAt": "t0", "finishedAt": "t1"}
    usual |= {"workSeconds": 1.5, "waitingSeconds": 0.5, "modelCalls": 3, "totalTokens": 9, "costUsd": 0.1}
    return {"s": usual | {"notes": '["n"]'} | changes}


def test_the_file_of_a_dialogue() -> None:
    read = reader(
        sessions=sessions(),
        metrics={
            "s": [
                metric("num_turns", 3.0),
                metric("seed", 0.0),
                metric("mood", 1.0, step=1),
                metric("tone", label="kind", step=1),
                metric("mood", 2.0, step=2),
            ]
        },
        messages={"s": [message("a", 1), message("b", 1, name="moderator")]},
        scores={"s": [SCORE_ROW]},
    )
    document = files.session_document(read, row())
    assert (document["num_turns"], document["seed"], document["repeat"]) == (3, 0, 2)
    assert (document["status"], document["end_reason"], document["stand_in"]) == (
        "success",
        "completed",
        True,
    )
    assert (document["client"], document["therapist"]) == ("client label", "therapist label")
    assert document["messages"] == [{"role": "client", "content": "a"}]
    assert document["states"] == [{"turn": 0, "mood": 1.0, "tone": "kind"}, {"turn": 1, "mood": 2.0}]
    (score,) = document["scores"]
    assert score == {
        "evaluator": "e",
        "digest": "d",
        "level": "trace",
        "target": "t",
        "value": 0.5,
        "label": "Good",
        "explanation": "why",
        "cost_usd": 0.0,
    }
    assert "task" not in document and "error" not in document
    assert list(document)[-1] == "record" and document["record"] == {
        "batch_id": "r",
        "session_id": "s",
        "attempt": 2,
        "started_at": "t0",
        "finished_at": "t1",
        "work_seconds": 1.5,
        "waiting_seconds": 0.5,
        "model_calls": 3,
        "tokens": 9,
        "cost_usd": 0.1,
        "notes": ["n"],
    }


@pytest.mark.parametrize(
    ("status", "word"), [("fail", "fail"), ("timeout", "timeout"), ("error", "error"), ("aborted", "error")]
)
def test_a_dialogue_that_did_not_succeed_says_why(status: str, word: str) -> None:
    read = reader(sessions=sessions())
    document = files.session_document(read, row(status=status, reason="halted"))
    assert (document["status"], document["error"], document["reason"]) == (word, "halted", "halted")
    assert (document["caused_by"], document["seed"], document["num_turns"]) == ("infrastructure", None, 0)
    blamed = reader(sessions=sessions(), metrics={"s": [metric("caused_by", label="client")]})
    document = files.session_document(blamed, row(status=status, error="boom"))
    assert (document["error"], document["caused_by"]) == ("boom", "client")
    never = files.session_document(reader(), row(status=status, sessionId=None))
    assert (
        never["stand_in"] is False and never["record"]["attempt"] is None and never["record"]["notes"] == []
    )


def test_the_file_of_a_task_has_actions_and_changes_of_its_world() -> None:
    details = DETAILS | {"world": "w", "task": {"name": "refund"}}
    read = reader(
        sessions=sessions(),
        tool_calls={"s": [CALL_ROW]},
        messages={"s": [message("a", 1), message('{"n": [1, 2]}', 1, name="world")]},
    )
    document = files.session_document(read, row(details=json.dumps(details)))
    assert document["task"] == "refund" and document["world_changes"] == {"n": [1, 2]}
    assert document["actions"][0]["tool"] == "look"
    unfinished = reader(sessions=sessions(), messages={"s": [message("a", 1)]})
    assert files.session_document(unfinished, row(details=json.dumps(details)))["world_changes"] is None


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"low": 1.0, "high": 2.0}, "1 to 2"),
        ({"low": None, "high": 2.0}, "none"),
        ({"low": 1.0, "high": None}, "none"),
        ({"low": None, "high": None, "needs": 3}, "none; needs 3 dialogues"),
    ],
)
def test_an_interval_in_words(estimate: dict[str, Any], text: str) -> None:
    assert report.around(estimate) == text


# --- The job ---


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (None, {}),
        ("openai/gpt", {"model_name": "openai/gpt", "model_type": ""}),
        ("gpt", {"model_name": "gpt"}),
        ("/gpt", {"model_name": "/gpt"}),
    ],
)
def test_a_model_with_its_provider_replaces_the_type(model: str | None, settings: dict[str, Any]) -> None:
    assert DialogueOverrides(model=model).settings() == settings
    plain = DialogueOverrides(pairs=(("a", "b"),), seed=0).settings()
    assert plain == {"pairs": [["a", "b"]], "seed": 0}


def batch(run_id: str, folder: str, digest: str) -> dict[str, Any]:
    return {"runId": run_id, "optionsJson": json.dumps({"outputDir": folder}), "planDigest": digest}


def test_a_folder_is_named_for_the_time() -> None:
    moment = datetime(2026, 3, 1, 12, 5, 9).astimezone()
    assert job.default_output(moment) == "outputs/batch/2026-03-01_12-05-09"


@pytest.mark.parametrize(
    ("value", "label", "expected"), [(0.5, "", 0.5), (0.0, "none", 0.0), (None, "calm", "calm")]
)
def test_a_metric_is_its_number_or_else_its_label(
    value: float | None, label: str, expected: float | str
) -> None:
    row: Any = {"value": value, "label": label}
    assert files.metric_value(row) == expected
