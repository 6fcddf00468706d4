"""Functions behind pages, without a server: questions, resuming, retrying, labels, kinds of values."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import NotFound, ProctorError, UsageError
from proctor.job import BatchChanges
from proctor.store import RetrySelection
from proctor.web import actions, inventory, items, labels, new_evaluation, results

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def site(**store: Any) -> Any:
    read = SimpleNamespace(**store.pop("read", {}))
    return SimpleNamespace(store=SimpleNamespace(read=read, **store), now=lambda: NOW)


def batch(status: str = "halted", owner: str = "") -> dict[str, str]:
    return {"runId": "nightly-42", "status": status, "owner": owner, "job": "coding"}


# --- Questions ---


QUESTION = {"id": "q", "itemId": "i", "sessionId": None, "actor": "port", "prompt": "What?", "askedAt": "t"}


async def test_open_questions_are_sent_when_they_change() -> None:
    rows = [QUESTION]
    here = site(read={"batch": lambda run_id, now: batch()}, open_questions=lambda run_id: list(rows))
    topic = actions.QuestionsTopic(here, "night")
    expected = {"questions": [QUESTION | {"sessionId": ""}]}
    assert await topic.state(0) == (2, expected)
    assert await topic.state(2) == (2, None)
    assert await topic.state(1) == (2, expected)
    rows.clear()
    assert await topic.state(2) == (3, {"questions": []})


def test_a_question_is_answered_under_its_run() -> None:
    answers: list[Any] = []
    here = site(
        read={"batch": lambda run_id, now: batch()},
        answer_question=lambda *arguments: answers.append(arguments),
        open_questions=lambda run_id: [QUESTION] if run_id == "nightly-42" else [],
    )
    listed, answered = (route.endpoint for route in actions.router(here).routes)  # type: ignore[attr-defined]
    assert [each.id for each in listed("night").questions] == ["q"]
    assert answered("r", "q", actions.QuestionAnswer(answer="yes")).id == "q"
    assert answers == [("r", "q", "yes", NOW)]


# --- Resume and retry ---


@pytest.mark.parametrize(
    ("status", "owner", "is_owned"),
    [("running", "host:12:x", True), ("running", "host:123:x", False), ("halted", "host:12:x", False)],
)
def test_who_owns_a_run(status: str, owner: str, is_owned: bool) -> None:
    here = site(read={"batch": lambda run_id, now: batch(status, owner)})
    assert actions._is_owned_by(here, "r", 12) is is_owned


def routes(here: Any) -> tuple[Any, Any, Any]:
    abort, resume, retry = (route.endpoint for route in actions.steering_router(here).routes)  # type: ignore[attr-defined]
    return abort, resume, retry


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    async def resume(site: Any, batch: Any, retry: Any, changes: Any) -> str:
        calls.append((batch["runId"], retry, changes))
        return "answer"

    monkeypatch.setattr(actions, "_resume", resume)
    return calls


def counted(monkeypatch: pytest.MonkeyPatch, **counts: int) -> None:
    found = dict.fromkeys(("queued", "error", "fail", "timeout", "success"), 0) | counts
    monkeypatch.setattr(actions.items, "status_counts", lambda read, run_id: found)


@pytest.mark.parametrize(
    ("status", "queued", "is_refused"),
    [("halted", 0, False), ("completed", 1, False), ("completed", 0, True), ("running", 1, True)],
)
async def test_a_run_is_resumed_unless_it_runs_or_is_done(
    status: str, queued: int, is_refused: bool, resumed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(monkeypatch, queued=queued)
    _, resume, _ = routes(site(read={"batch": lambda run_id, now: batch(status)}))
    if is_refused:
        with pytest.raises(UsageError, match=r"is completed|is already running"):
            await resume("night", stop_early=True, budget=None)
    else:
        assert await resume("night", stop_early=False, budget=3.0) == "answer"
        changes = BatchChanges(budget_usd=3.0, stops_early=False)
        assert resumed == [("nightly-42", RetrySelection(), changes)]


@pytest.mark.parametrize(
    ("counts", "errors", "failed", "is_refused"),
    [
        ({"error": 1}, True, True, False),
        ({"error": 1}, False, True, True),
        ({"fail": 1}, True, True, False),
        ({"fail": 1}, True, False, True),
        ({"timeout": 1}, False, True, False),
        ({"fail": 1, "timeout": 1}, False, True, False),
        ({"success": 5}, True, True, True),
    ],
)
async def test_items_that_did_not_succeed_are_retried(
    counts: dict[str, int],
    errors: bool,
    failed: bool,
    is_refused: bool,
    resumed: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted(monkeypatch, **counts)
    _, _, retry = routes(site(read={"batch": lambda run_id, now: batch()}))
    if is_refused:
        with pytest.raises(UsageError, match="has no items to retry"):
            await retry("night", errors=errors, failed=failed, item=None)
    else:
        assert await retry("night", errors=errors, failed=failed, item=None) == "answer"
        assert resumed == [("nightly-42", RetrySelection(errors=errors, failures=failed), BatchChanges())]


async def test_some_items_are_retried_unless_they_succeeded(
    resumed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"a": "success", "b": "fail", "c": "error", "d": "timeout", "e": "queued"}
    asked: list[Any] = []
    monkeypatch.setattr(
        actions.items,
        "item_results",
        lambda read, run_id, ids: asked.append(ids) or [{"id": each, "status": states[each]} for each in ids],
    )
    _, _, retry = routes(site(read={"batch": lambda run_id, now: batch()}))
    await retry("night", item=["a", "b\0", "c", "d", "e"])
    assert asked == [["a", "b", "c", "d", "e"]]
    assert resumed == [("nightly-42", RetrySelection(item_ids=("b", "c", "d")), BatchChanges())]
    with pytest.raises(UsageError, match="none of these items can be retried"):
        await retry("night", item=["a", "e"])


@pytest.mark.parametrize("status", ["completed", "aborted"])
async def test_a_run_that_has_ended_cannot_be_stopped(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["running", "aborted"]
    stopped: list[Any] = []
    monkeypatch.setattr(
        actions, "abort_run", lambda store, run_id, **named: stopped.append((run_id, named["now"]()))
    )
    abort, _, _ = routes(site(read={"batch": lambda run_id, now: batch(states.pop(0))}))
    answer = await abort("night")
    assert (answer.run_id, answer.status) == ("nightly-42", "aborted") and stopped == [("nightly-42", NOW)]
    states.append(status)
    with pytest.raises(UsageError, match=f"run nightly-42 is already {status}"):
        await abort("night")


@pytest.mark.parametrize(
    ("polls", "message", "problem"),
    [
        ([None, 0, 0], "", None),
        ([2], "", "the command failed without a message"),
        ([2], "no plan", "no plan"),
    ],
)
async def test_a_resumed_run_is_waited_for(
    polls: list[int | None], message: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    launches: list[Any] = []
    process = SimpleNamespace(poll=lambda: polls[0] if len(polls) == 1 else polls.pop(0), pid=7)
    launched = SimpleNamespace(process=process, document=None, messages=None)
    monkeypatch.setattr(actions.asyncio, "sleep", sleep)
    monkeypatch.setattr(actions, "error_message", lambda document, messages: message, raising=False)
    monkeypatch.setattr(actions, "_is_owned_by", lambda site, run_id, pid: False)
    here = site(read={"batch": lambda run_id, now: batch("completed")})
    here.launcher = SimpleNamespace(launch=lambda request, name: launches.append((request, name)) or launched)
    retry, changes = RetrySelection(errors=True), BatchChanges(budget_usd=2.0)
    resuming = actions._resume(here, batch(), retry, changes)  # type: ignore[arg-type]
    if problem:
        with pytest.raises(UsageError, match=problem):
            await resuming
    else:
        assert (await resuming).status == "completed"
    ((request, name),) = launches
    assert (request.job, request.run_id, request.retry, request.changes) == (
        "coding",
        "nightly-42",
        retry,
        changes,
    )
    assert name.startswith("resume-nightly-42-")


async def test_what_blocks_runs_in_a_thread_of_its_own_and_ends_with_its_request() -> None:
    async def quick() -> str:
        return "done"

    assert await actions.run_in_thread(quick, seconds=5) == "done"

    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(TimeoutError):
        await actions.run_in_thread(slow, seconds=0.01)
    ended: list[str] = []
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def cancelled() -> None:
        loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    task = asyncio.create_task(actions.run_in_thread(cancelled, seconds=60))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


def test_an_error_of_a_body_is_one_of_the_request() -> None:
    for error in (NotFound("there is no run x"), ProctorError("failed")):
        with pytest.raises(UsageError, match=str(error)), actions.errors_of_request():
            raise error


# --- Kinds of values in the description of the interface ---


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"$ref": "#/components/schemas/Run"}, "Run"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "string"}]}, "string or null"),
        ({"oneOf": [{"type": "integer"}, {"$ref": "#/x/Y"}]}, "integer or Y"),
        ({"enum": ["a", 1]}, "a | 1"),
    ],
)
def test_the_kind_of_a_value(schema: dict[str, Any], kind: str) -> None:
    assert inventory._kind(schema) == kind


# --- Uploads ---


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("traces.jsonl", "traces.jsonl"),
        ("../../a b.csv", "a-b.csv"),
        (".hidden.", "hidden"),
        ("ü", "records"),
    ],
)
def test_an_uploaded_file_has_a_safe_name_in_a_folder_of_its_own(
    name: str, safe: str, tmp_path: Path
) -> None:
    here: Any = SimpleNamespace(
        data_folder=tmp_path,
        store=SimpleNamespace(data_keys=SimpleNamespace(is_encrypted=False)),
    )
    routes_ = {route.name: route.endpoint for route in new_evaluation.router(here).routes}  # type: ignore[attr-defined]
    function = routes_["upload"]
    uploaded = SimpleNamespace(name=name, text="content")
    first, second = function(uploaded), function(uploaded)
    assert first.path.endswith(f"/{safe}") and first.path != second.path
    assert Path(first.path).read_text() == "content"
    here.store.data_keys.is_encrypted = True
    with pytest.raises(UsageError, match="the store is encrypted"):
        function(uploaded)


# --- Labels of people ---


RATINGS: Any = [SimpleNamespace(label="Bad", value=0.0), SimpleNamespace(label="Good", value=1.0)]


@pytest.mark.parametrize(
    ("label", "value", "found"),
    [
        ("good", None, ("Good", 1.0)),
        ("GOOD", 0.5, ("Good", 0.5)),
        ("other", None, ("other", None)),
        ("", 0.0, ("Bad", 0.0)),
        ("", 0.3, ("", 0.3)),
        ("", None, ("", None)),
    ],
)
def test_a_label_is_on_the_scale_of_the_evaluator(
    label: str, value: float | None, found: tuple[str, float | None]
) -> None:
    assert labels._on_scale(RATINGS, label, value) == found


@pytest.mark.parametrize(
    ("person", "typed", "who"),
    [("ana", "ben", "ana"), ("", " ben ", "ben"), ("", " ", "someone"), ("ana", "", "ana")],
)
def test_a_label_has_the_name_of_the_token_or_the_typed_one(
    person: str, typed: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "ratings_of", lambda site, evaluator, dimension: RATINGS)
    label = labels.NewLabel(evaluator="tidy", who=typed, label=" good ", note="why")
    saved = labels._label(site(), "s", label, person)
    assert (saved.who, saved.label, saved.value, saved.level) == (who, "Good", 1.0, "session")
    assert (saved.session_id, saved.evaluator, saved.note) == ("s", "tidy", "why")
    rating = labels.NewLabel(evaluator=labels.RATING, label="7")
    monkeypatch.setattr(labels, "ratings_of", lambda site, evaluator, dimension: [])
    with pytest.raises(UsageError, match="a rating is a whole number from 1 to 5"):
        labels._label(site(), "s", rating, person)


@pytest.mark.parametrize(
    ("agents", "models", "varied"),
    [
        (["a"], ["m"], []),
        (["a", "b"], ["m"], ["agent"]),
        (["a", ""], ["m", "n"], ["model"]),
        (["a", "b"], ["m", "n"], ["agent", "model"]),
    ],
)
def test_what_varies_in_a_run(
    agents: list[str], models: list[str], varied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [{"agent": agent, "model": model} for agent in agents for model in models]
    monkeypatch.setattr(results.stored_items, "agent_model_counts", lambda read, run_id: pairs)
    owner = next(each for each in vars(results).values() if hasattr(each, "_varied"))
    made = owner.__new__(owner)
    made._site = site()
    assert made._varied("r") == varied
    many = [{"agent": "a", "model": f"m{number}"} for number in range(results.MOST_COMPARED + 1)]
    monkeypatch.setattr(results.stored_items, "agent_model_counts", lambda read, run_id: many)
    assert made._varied("r") == []
    monkeypatch.setattr(results.stored_items, "agent_model_counts", lambda read, run_id: many[1:])
    assert made._varied("r") == ["model"]


def test_what_a_label_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        labels.transcripts, "scores", lambda read, session_id: [{"target": "judged", "level": "tool_call"}]
    )
    evidence = SimpleNamespace(
        traces=[SimpleNamespace(id="turn")], tool_calls=[SimpleNamespace(call_id="call")]
    )
    here = site(read={"evidence": lambda session_id: evidence})
    targets = ("", "judged", "turn", "call")
    found = [labels._level(here, "s", target) for target in targets]
    assert found == ["session", "tool_call", "trace", "tool_call"]
    with pytest.raises(UsageError, match="the session has no turn and no tool call x"):
        labels._level(here, "s", "x")


@pytest.mark.parametrize(
    ("things", "kappa", "words"),
    [
        (0, None, "It has judged nothing that people have labeled."),
        (4, None, "The same as people in 3 of 4."),
        (4, 0.0, "The same as people in 3 of 4: no agreement beyond chance."),
        (4, 0.1, "The same as people in 3 of 4: slight agreement beyond chance."),
        (4, 0.4, "The same as people in 3 of 4: fair agreement beyond chance."),
        (4, 0.5, "The same as people in 3 of 4: moderate agreement beyond chance."),
        (4, 0.7, "The same as people in 3 of 4: substantial agreement beyond chance."),
        (4, 0.81, "The same as people in 3 of 4: almost perfect agreement beyond chance."),
    ],
)
def test_agreement_in_words(things: int, kappa: float | None, words: str) -> None:
    calibration = SimpleNamespace(
        things=things,
        agreement=SimpleNamespace(successes=3, trials=4),
        kappa=SimpleNamespace(value=kappa),
    )
    judge: Any = SimpleNamespace(calibration=calibration)
    assert labels._summary(judge) == words


@pytest.mark.parametrize(("kind", "is_built"), [("arrived", True), ("runs", False)])
def test_sessions_are_built_before_those_that_arrived_are_listed(
    kind: str, is_built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []

    found: list[Any] = []
    monkeypatch.setattr(new_evaluation, "build_sessions", lambda store, now: built.append(now))
    monkeypatch.setattr(new_evaluation, "discover", lambda read, sessions: found.append(sessions) or "found")
    source: Any = SimpleNamespace(kind=kind, document={"store": {"runIds": ["r"]}})
    assert new_evaluation._discover(site(), source) == "found" and len(found) == 1
    assert built == ([NOW] if is_built else [])


def test_a_matrix_that_is_still_read_has_no_rows() -> None:
    class Table:
        by, levels, has_more_levels, scores = "model", ("a", "b"), True, ("tidy",)

        def __len__(self) -> int:
            return 7

    table: Any = Table()
    answer = items._no_rows(table, None)
    assert (answer.by, answer.levels, answer.has_more_levels) == ("model", ["a", "b"], True)
    assert (answer.rows, answer.offset, answer.total, answer.tasks) == ([], 0, 0, 7)
    assert not answer.is_current and answer.reading is None
