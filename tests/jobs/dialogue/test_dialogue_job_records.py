"""Files and checkpoints of dialogues, made from rows of the store, and the job around them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.dialogue.conversation import ConversationCheckpoint, Side
from proctor.errors import UsageError
from proctor.item import Item
from proctor.jobs.dialogue import files, job, report
from proctor.jobs.dialogue.job import JOB, DialogueFiles, DialogueJobPlan, DialogueOverrides, StoredDialogues
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


@pytest.mark.parametrize(
    ("steps", "turns"),
    [
        ([], None),
        ([step(1, standing(1)), step(2, standing(2))], 2),
        ([step(1, standing(1)), step(2, "no JSON"), step(3, "{}"), step(4, "[]")], 1),
        ([step(1, standing(1)), step(3, standing(2))], None),
    ],
)
def test_a_dialogue_resumes_after_the_last_turn_that_was_recorded(
    steps: list[Any], turns: int | None
) -> None:
    found = files._last_checkpoint(steps)
    assert (found and found.turns) == turns


def attempt(name: str, status: str = "error", reason: str = "") -> dict[str, Any]:
    return {"id": name, "status": status, "endReason": reason}


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        ([], None),
        ([attempt("two")], (2, "two")),
        ([attempt("two", "timeout")], (2, "two")),
        ([attempt("two", "fail", "cost_limit")], (2, "two")),
        ([attempt("two", "fail", "checks_failed")], None),
        ([attempt("two", "success")], None),
        ([attempt("two"), attempt("one")], (2, "two")),
        ([attempt("one"), attempt("two")], (2, "two")),
        ([attempt("two"), attempt("also two")], (2, "also two")),
        ([attempt("two"), attempt("none")], (2, "two")),
        ([attempt("none")], None),
    ],
)
def test_the_furthest_attempt_is_resumed_the_latest_of_equal_ones(
    attempts: list[Any], found: tuple[int, str] | None
) -> None:
    iterations = {
        "one": [step(1, standing(1))],
        "two": [step(2, standing(2))],
        "also two": [step(2, standing(2))],
    }
    furthest = files._furthest(reader(attempts=attempts, iterations=iterations), "r", "i")
    assert (furthest and (furthest[0].turns, furthest[1])) == found


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
    ("facts", "usage"),
    [
        ({}, {"client": {}, "therapist": {}, "total_cost": 0}),
        (
            {"usage.client.total_tokens": 5.0, "usage.client.total_cost": 0.5},
            {"client": {"total_tokens": 5, "total_cost": 0.5}, "therapist": {}, "total_cost": 0.5},
        ),
        (
            {"usage.client.total_cost": 0.5, "usage.therapist.total_tokens": 5.0},
            {"client": {"total_cost": 0.5}, "therapist": {"total_tokens": 5}, "total_cost": None},
        ),
        (
            {
                "usage.client.total_cost": 0.5,
                "usage.therapist.total_cost": 0.25,
                "usage.evaluators.total_cost": 0.25,
            },
            {
                "client": {"total_cost": 0.5},
                "therapist": {"total_cost": 0.25},
                "evaluators": {"total_cost": 0.25},
                "total_cost": 1.0,
            },
        ),
    ],
)
def test_the_total_cost_is_known_if_all_parts_are(facts: dict[str, Any], usage: dict[str, Any]) -> None:
    assert files._usage(facts) == usage


@pytest.mark.parametrize(("look_inside", "written"), [(False, ["new"]), (True, ["old", "broken", "new"])])
def test_missing_files_are_written_and_those_of_earlier_attempts_replaced(
    look_inside: bool, written: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("same", "old", "broken", "new")
    rows = [
        row(id=name, sessionId=f"s-{name}", settings=json.dumps(SETTINGS | {"file": f"{name}.json"}))
        for name in names
    ]
    for name, session_id in (("same", "s-same"), ("old", "earlier")):
        files.write_json(tmp_path / f"{name}.json", {"record": {"session_id": session_id}})
    (tmp_path / "broken.json").write_text("[]")
    seen: list[str] = []
    monkeypatch.setattr(files, "write_session", lambda folder, item, reader: seen.append(item["id"]))
    assert files.write_missing(tmp_path, reader(items=rows), "r", look_inside=look_inside) == len(written)
    assert seen == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "old.json", "same.json"]


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


def plan(tmp_path: Path, **changes: Any) -> DialogueJobPlan:
    config = {"human": None, "max_workers": 3, "output_dir": None, "budget_limit": None}
    config |= {"cost_per_run_limit": None, **changes.pop("config", {})}
    simulation: Any = SimpleNamespace(
        config=config, has_person=False, models=["m"], evaluators_by_name=[], remarks=["r"], digest="d"
    )
    for name, value in changes.items():
        setattr(simulation, name, value)
    return DialogueJobPlan(
        simulation=simulation, path="", folders=(tmp_path,), default_output=tmp_path / "default"
    )


@pytest.mark.parametrize(
    ("has_person", "human", "concurrency"),
    [(False, None, 3), (False, "web", 3), (True, "web", 3), (True, None, 1), (True, "terminal", 1)],
)
def test_a_person_at_the_terminal_has_one_dialogue_at_a_time(
    has_person: bool, human: str | None, concurrency: int, tmp_path: Path
) -> None:
    assert plan(tmp_path, has_person=has_person, config={"human": human}).concurrency == concurrency


def test_a_new_run_has_a_folder_without_results(tmp_path: Path) -> None:
    made = plan(tmp_path).for_new_run("r")
    assert made.output == tmp_path / "default" and made.output.is_dir()
    (tmp_path / "default" / files.SUMMARY).write_text("{}")
    with pytest.raises(UsageError, match="already contains a simulation"):
        plan(tmp_path).for_new_run("r")
    chosen = plan(tmp_path, config={"output_dir": str(tmp_path / "a" / "b")})
    assert chosen.for_new_run("r").output == tmp_path.resolve() / "a" / "b"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create the folder"):
        plan(tmp_path, config={"output_dir": str(tmp_path / "file")}).for_new_run("r")


@pytest.mark.parametrize(
    ("config", "needs_price"),
    [({}, False), ({"budget_limit": 0.0}, True), ({"cost_per_run_limit": 1.0}, True)],
)
def test_models_need_a_price_where_there_is_a_limit(
    config: dict[str, Any], needs_price: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def check_model(model: str, models: Any, *, needs_price: bool) -> Any:
        asked.append((model, models, needs_price))
        return [("no key", "set one"), ("no price", "")] if model == "bad" else []

    monkeypatch.setattr(job, "check_model", check_model)
    found: list[Any] = []
    attempts = SimpleNamespace(find_evaluator=lambda *arguments: found.append(arguments) or "evaluator")
    monkeypatch.setattr(DialogueJobPlan, "attempts", lambda self, ctx, models: attempts)
    monkeypatch.setattr(job, "check_evaluators", lambda evaluators, remarks: remarks.add("from check") or [])
    each = {"name": "e", "judging": {"judge": "j"}}
    made = plan(tmp_path, config=config, evaluators_by_name=[each])
    models: Any = "models"
    ctx: Any = None
    assert made.check(models, ctx) == ["r", "from check"]
    assert asked == [("m", "models", needs_price)]
    assert found == [("e", {"judge": "j"}, "models")]
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, models=["bad", "m"]).check(models, ctx)
    assert str(refused.value) == "no key\nset one\n\nno price"
    monkeypatch.setattr(job, "check_evaluators", lambda evaluators, remarks: [("no sandbox", "install it")])
    with pytest.raises(UsageError, match="`sandbox`: no sandbox\ninstall it"):
        plan(tmp_path).check(models, ctx)


class Recorded(list[str]):
    """A context that keeps what it is told."""

    def __init__(self, **store: Any) -> None:
        super().__init__()
        self.store = SimpleNamespace(**store)
        self.info = self.append
        self.people = "the person here"
        self.home = Path("nowhere")

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("resumed", "count", "notes"),
    [
        (True, 2, ["2 dialogues interrupted; will resume after the last completed turn"]),
        (True, 1, ["1 dialogue interrupted; will resume after the last completed turn"]),
        (True, 0, []),
        (False, 2, []),
    ],
)
def test_a_resumed_run_says_how_many_dialogues_go_on(
    resumed: bool, count: int, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    monkeypatch.setattr(job, "count_interrupted", lambda read, run_id: count)
    monkeypatch.setattr(
        job, "write_missing", lambda folder, read, run_id, look_inside: events.append((run_id, look_inside))
    )
    monkeypatch.setattr(job, "write_summary", lambda folder, read, batch: events.append(batch) or {"n": 1})
    monkeypatch.setattr(job, "unjudged_items", lambda read, run_id, items: events.append(items) or [])
    ctx: Any = Recorded(read=SimpleNamespace(batch=lambda run_id, now: f"batch {run_id}"))
    simulation: Any = SimpleNamespace(items=lambda: "planned")
    written = DialogueFiles(tmp_path / "out", "r", ctx, simulation)
    assert written.begin(resumed=resumed) is None
    assert list(ctx) == notes and (tmp_path / "out").is_dir()
    assert events == [("r", True), *(["planned"] if resumed else []), "batch r"]
    events.clear()
    assert written.finish(None) == {"outputDir": str(tmp_path / "out"), "summary": {"n": 1}}  # type: ignore[arg-type]
    assert events == [("r", False), "batch r"]


def test_dialogues_are_queued_again_for_new_evaluators(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(runner="dialogue", prompt=text) for text in "ab"]
    monkeypatch.setattr(job, "unjudged_items", lambda read, run_id, planned: items)
    calls: list[Any] = []
    ctx: Any = Recorded(
        read=None,
        requeue=lambda run_id, ids: calls.append((run_id, ids)),
        extend_batch=lambda run_id, changes, **named: calls.append((run_id, changes, named)),
    )
    simulation: Any = SimpleNamespace(items=list)
    DialogueFiles(Path("out"), "r", ctx, simulation)._queue_unjudged(simulation)
    assert calls == [
        ("r", [item.id for item in items]),
        ("r", {}, {"add": [], "settle": items, "drop": []}),
    ]
    assert list(ctx) == ["2 finished dialogues will be judged by the new evaluators"]


@pytest.mark.parametrize(("took", "pause"), [(0.0, 1.0), (0.04, 1.0), (0.5, 10.0)])
def test_summaries_take_at_most_a_twentieth_of_the_time(
    took: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 100.0 + took])
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(job, "write_summary", lambda *arguments: {})
    ctx: Any = Recorded(read=SimpleNamespace(batch=lambda run_id, now: None))
    written = DialogueFiles(Path("out"), "r", ctx)
    written._write_summary()
    assert written._next_summary == pytest.approx(100.0 + took + pause)


def test_the_file_of_an_item_is_written_and_the_summary_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    moments = [4.9]
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: moments[0]))
    monkeypatch.setattr(job, "write_session", lambda folder, row, read: calls.append((folder, row)))
    read = SimpleNamespace(exact_item=lambda run_id, item_id: [(item_id, run_id)])
    ctx: Any = Recorded(read=read)
    written = DialogueFiles(Path("out"), "r", ctx)
    monkeypatch.setattr(written, "_write_summary", lambda: calls.append("summary"))
    written._next_summary = 5.0
    item: Any = SimpleNamespace(id="i")
    written.item_finished(item)
    assert calls == [(Path("out"), ("i", "r"))] and not written._has_stale_files
    moments[0] = 5.0
    written.item_finished(item)
    assert calls[-1] == "summary"

    def fail(folder: Path, row: Any, read: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(job, "write_session", fail)
    with pytest.raises(OSError, match="full"):
        written.item_finished(item)
    # What could not be written is looked for at the end.
    assert written._has_stale_files


def batch(run_id: str, folder: str, digest: str) -> dict[str, Any]:
    return {"runId": run_id, "optionsJson": json.dumps({"outputDir": folder}), "planDigest": digest}


@pytest.mark.parametrize(("folder", "found"), [(None, "same plan"), ("/out/a", "in a"), ("/out/b", None)])
def test_the_earlier_run_is_that_of_the_folder_or_of_the_same_plan(
    folder: str | None, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [batch("other", "/out/c", "x"), batch("in a", "/out/a", "x"), batch("same plan", "/out/d", "d")]
    monkeypatch.setattr(job, "batches_of_job", lambda read, name: rows if name == "dialogue" else [])
    made = plan(tmp_path, config={"output_dir": folder})
    ctx: Any = Recorded(read=None)
    if found:
        assert JOB.earlier(made, ctx) == found
    else:
        with pytest.raises(UsageError, match="there is no earlier run of this simulation in /out/b"):
            JOB.earlier(made, ctx)


@pytest.mark.parametrize("human", ["web", "terminal", None])
def test_people_elsewhere_are_asked_through_the_store(human: str | None) -> None:
    options = {} if human is None else {"human": human}
    ctx: Any = Recorded(read=SimpleNamespace(batch=lambda run_id, now: {"optionsJson": json.dumps(options)}))
    assert (JOB.people("r", ctx) == "the person here") is (human != "web")  # type: ignore[comparison-overlap]
    ctx.people = None
    assert type(JOB.people("r", ctx)).__name__ == "StoreQuestions"


@pytest.mark.parametrize(("path", "folder"), [("/plans/a.yaml", Path("/plans")), ("", Path.cwd())])
def test_a_run_is_restored_from_the_store_alone(
    path: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_role_files", lambda run_id, ctx: [run_id])
    row: Any = {
        "optionsJson": json.dumps({"outputDir": "/out"}),
        "defaultsJson": json.dumps({"evaluators": ["a", {"name": "b", "judge": "x"}]}),
        "planPath": path,
        "runId": "r",
    }
    restored = JOB.restore(row, None)  # type: ignore[arg-type]
    assert (restored.folder, restored.output) == (folder, Path("/out"))
    assert (restored.evaluators, restored.role_files) == (["a", "b"], ["r"])
    row["defaultsJson"] = "{}"
    assert JOB.restore(row, None).evaluators == []  # type: ignore[arg-type]


def test_roles_of_earlier_versions_are_read_from_the_home(tmp_path: Path) -> None:
    roles = tmp_path / "dialogue-roles"
    inputs = [{"details": json.dumps({"client": {"digest": "b"}, "therapist": {"digest": "a"}})}]
    ctx: Any = Recorded(
        read=SimpleNamespace(item_inputs=lambda run_id: inputs, resource_digests=lambda run_id: [])
    )
    ctx.home = tmp_path
    assert job._role_files("r", ctx) == []
    roles.mkdir()
    found = job._role_files("r", ctx)
    assert found == [roles / "a.json", roles / "b.json"]
    ctx.store.read.resource_digests = lambda run_id: ["stored"]
    assert job._role_files("r", ctx) == []
    (roles / "a.json").write_text('{"name": "CBT"}')
    options: Any = None
    stored = StoredDialogues(options=options, folder=tmp_path, output=tmp_path, role_files=found)
    (resource,) = stored.resources()
    assert (resource.kind, resource.name, resource.digest) == ("role", "CBT", "a")
    assert resource.content == '{"name": "CBT"}'


def test_a_folder_is_named_for_the_time() -> None:
    moment = datetime(2026, 3, 1, 12, 5, 9).astimezone()
    assert job.default_output(moment) == "outputs/batch/2026-03-01_12-05-09"


def test_texts_have_as_many_keys_of_a_config_as_they_have() -> None:
    assert JOB.recognizes("clients: [a]\ntherapists: [b]\nother: 1\n") == 2
    sequence: Sequence[str] = JOB.speakers
    assert list(sequence) == ["client", "therapist"] and JOB.decision_rule(["model"]) is None


@pytest.mark.parametrize(
    ("value", "label", "expected"), [(0.5, "", 0.5), (0.0, "none", 0.0), (None, "calm", "calm")]
)
def test_a_metric_is_its_number_or_else_its_label(
    value: float | None, label: str, expected: float | str
) -> None:
    row: Any = {"value": value, "label": label}
    assert files.metric_value(row) == expected
