"""Members of the answers about sessions, trends, runs and comparisons, without a server."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from app_states import changed_state
from starlette.requests import Request
from stocked_runs import add_score, add_session

from proctor.errors import NotFound, ProctorError, UsageError
from proctor.jobs.evaluation.request import EvaluationRequest
from proctor.jobs.evaluation.state import open_evaluation
from proctor.session import Message, Metric, ToolCall
from proctor.store import timestamp
from proctor.store.annotations import Label
from proctor.store.transcripts import TranscriptPiece
from proctor.web import compare, evaluations, items, labels, live, otlp, run_views, runs, sessions, trends
from proctor.web.access import RECORD, RequestRecord
from proctor.web.state import AppState, Reading

# Sessions


def event(position: int) -> Any:
    piece = TranscriptPiece(text="text", size=9, is_cut=True)
    values = {"kind": "message", "step": 0, "timestamp": "t", "role": "user"}
    return {**values, "position": position, "content": piece}


def test_a_window_of_events_says_whether_there_are_more() -> None:
    answer = sessions._events([event(4), event(7), event(9)], 3, 2)
    assert [each.position for each in answer.events] == [4, 7]
    assert (answer.last_position, answer.has_more) == (7, True)
    content = answer.events[0].content
    assert content is not None and (content.text, content.size, content.is_cut) == ("text", 9, True)
    answer = sessions._events([event(4), event(7)], 3, 2)
    assert (answer.last_position, answer.has_more) == (7, False)
    assert (sessions._events([], 3, 2).last_position, sessions._events([], 3, 2).has_more) == (3, False)


@pytest.mark.parametrize(
    ("offset", "limit", "text", "is_cut"),
    [(0, 3, "abc", True), (0, 5, "abcde", False), (3, 2, "de", False), (3, 1, "d", True), (9, 2, "", False)],
)
def test_a_part_of_a_text(offset: int, limit: int, text: str, is_cut: bool) -> None:
    answer = sessions._part_of("abcde", offset, limit)
    assert (answer.text, answer.size, answer.is_cut, answer.offset) == (text, 5, is_cut, offset)


def test_metrics_with_several_steps_are_drawn(site: AppState) -> None:
    values = [Metric(name="warmth", value=0.5, step=1), Metric(name="warmth", value=0.7, step=2)]
    add_session(site.store, "talk", [*values, Metric(name="once", value=1.0, step=1)])
    (chart,) = sessions._over_steps(site, "talk")
    assert chart.caption == "warmth" and "step 2" in chart.svg and "warmth over turns" in chart.svg
    many = [Metric(name=f"m{name:02}", value=1.0, step=step) for name in range(13) for step in (1, 2)]
    add_session(site.store, "many", many)
    assert [each.caption for each in sessions._over_steps(site, "many")] == [
        f"m{name:02}" for name in range(12)
    ]


@pytest.mark.parametrize(
    ("merges", "is_there", "state"),
    [
        ([], True, "published"),
        ([], False, "gone"),
        (["conflict"], True, "published"),
        (["conflict", "success"], False, "merged"),
    ],
)
def test_the_diff_of_a_session_and_where_its_branch_is(
    merges: list[str], is_there: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "diff --git a/x b/x\n+1\ndiff --git a/y b/y\n+diff --git \n"
    monkeypatch.setattr(sessions, "session_diff", lambda store, row, environment: (text, is_there))
    read = SimpleNamespace(of_session=lambda table, id_: [{"result": each} for each in merges])
    site: Any = SimpleNamespace(store=SimpleNamespace(read=read), environment={})
    row: Any = {"id": "s", "branch": "b", "baseBranch": "main"}
    answer = sessions._diff(site, row)
    assert answer.model_dump(by_alias=False) == {
        "branch": "b",
        "base_branch": "main",
        "state": state,
        "diff": text,
        "is_cut": False,
        "files": 2,
        "problem": "",
    }
    monkeypatch.setattr(sessions, "SHOWN_CHARACTERS", len(text) - 1)
    cut = sessions._diff(site, row)
    assert (cut.diff, cut.is_cut, cut.files) == (text[:-1], True, 2)
    monkeypatch.setattr(sessions, "SHOWN_CHARACTERS", len(text))
    assert not sessions._diff(site, row).is_cut


def test_a_session_without_a_branch_or_repository_has_no_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    site: Any = SimpleNamespace(store=None, environment={})
    none = sessions._diff(site, {"id": "s", "branch": "", "baseBranch": ""})  # type: ignore[typeddict-item]
    assert (none.state, none.diff, none.files, none.is_cut) == ("none", "", 0, False)

    def fail(*_: object) -> Any:
        raise ProctorError("no repository\nmore")

    monkeypatch.setattr(sessions, "session_diff", fail)
    row: Any = {"id": "s", "branch": "b", "baseBranch": "main"}
    gone = sessions._diff(site, row)
    assert (gone.state, gone.problem, gone.files, gone.is_cut) == ("unavailable", "no repository", 0, False)
    monkeypatch.setattr(sessions, "find_session", lambda site, id_: row)
    with pytest.raises(NotFound, match=r"^the changes of s cannot be read: no repository"):
        sessions._patch(site, row)
    row["branch"] = ""
    with pytest.raises(UsageError, match=r"^session s has no branch\nOnly sessions of a repository have one"):
        sessions._patch(site, row)


def test_the_item_of_a_session_has_the_beginning_of_its_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sessions.HEAD_CHARACTERS
    row: Any = {"id": "i", "repeat": 2, "status": "fail", "factors": '{"a": "b"}'}

    def found(prompt: str, details: str) -> Any:
        monkeypatch.setattr(
            sessions, "item_row", lambda site, of: row | {"prompt": prompt, "details": details}
        )
        return sessions._item(None, None)  # type: ignore[arg-type]

    item = found("x" * size, json.dumps({"a": "y" * (sessions.MOST_DETAILS - 9)}))
    assert (item.prompt.text, item.prompt.size, item.prompt.is_cut) == ("x" * size, size, False)
    assert (item.id, item.repeat, item.status, item.factors) == ("i", 2, "fail", {"a": "b"})
    assert set(item.details) == {"a"}
    item = found("x" * (size + 1), json.dumps({"a": "y" * (sessions.MOST_DETAILS - 8)}) + " ")
    assert (item.prompt.text, item.prompt.size, item.prompt.is_cut) == ("x" * size, size + 1, True)
    assert item.details == {}
    monkeypatch.setattr(sessions, "item_row", lambda site, of: None)
    assert sessions._item(None, None) is None  # type: ignore[arg-type]


def test_the_answer_about_a_session(site: AppState) -> None:
    look = ToolCall(name="look", args={}, success=True, result="x")
    add_session(site.store, "talk", [Message(role="user", content="hi"), look], name="chat", model="m")
    answer = sessions.session_answer(site, "talk")
    assert (answer.id, answer.name, answer.status, answer.item) == ("talk", "chat", "success", None)
    assert (answer.last_position, answer.event_count) == (2, 2)
    assert [each.id for each in answer.attempts] == ["talk"]
    assert (answer.steps, answer.scores, answer.merges, answer.metrics) == ([], [], [], [])


@pytest.mark.parametrize(("most", "is_cut"), [(3, False), (2, True), (1, True)])
def test_an_outline_has_the_first_events(
    site: AppState, most: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [Message(role="user", content=f"word {number}") for number in range(3)]
    add_session(site.store, "talk", said)
    monkeypatch.setattr(sessions, "OUTLINE_EVENTS", most)
    routes = {route.name: route.endpoint for route in sessions.router(site).routes}  # type: ignore[attr-defined]
    answer = routes["outline"]("talk")
    assert [each.position for each in answer.entries] == [1, 2, 3][:most]
    assert answer.is_cut is is_cut


def test_events_and_calls_are_read_in_windows(site: AppState) -> None:
    call = ToolCall(name="look", args={"at": "sea"}, success=True, result="blue")
    add_session(site.store, "talk", [Message(role="user", content="hi"), call, call, call])
    routes = {route.name: route.endpoint for route in sessions.router(site).routes}  # type: ignore[attr-defined]

    def window(name: str, after: int, limit: int) -> tuple[list[int], int, bool]:
        answer = routes[name]("talk", after=after, limit=limit)
        return [each.position for each in answer.events], answer.last_position, answer.has_more

    assert window("events", 0, 3) == ([1, 2, 3], 3, True)
    assert window("events", 3, 3) == ([4], 4, False)
    assert window("events", 0, 4) == ([1, 2, 3, 4], 4, False)
    assert window("calls", 0, 2) == ([2, 3], 3, True)
    assert window("calls", 3, 2) == ([4], 4, False) and window("calls", 4, 2) == ([], 4, False)
    text = routes["text"]("talk", 2, "result", offset=1, limit=2)
    assert (text.text, text.size, text.offset, text.is_cut) == ("lu", 4, 1, True)
    found = routes["searched"]("talk", text="SEA", after=0, limit=2)
    assert ([each.position for each in found.hits], found.has_more) == ([2, 3], True)
    with pytest.raises(NotFound, match=r"^session talk has no turns\nOnly sessions of a scenario have"):
        routes["turns"]("talk", after=0, limit=10)


# Trends


def run(run_id: str, **members: Any) -> Any:
    values = {"job": "coding", "evaluation": "", "planPath": "", "planDigest": "d", "createdAt": run_id}
    return {"runId": run_id, "items": 10, "finishedAt": "f", **values, **members}


@pytest.mark.parametrize(
    ("members", "key", "name"),
    [
        ({"planPath": "/a/plan.yaml"}, ["coding", "/a/plan.yaml"], "plan.yaml"),
        ({"planPath": "plan.yaml"}, ["coding", "plan.yaml"], "plan.yaml"),
        ({}, ["coding", "d"], "plan of r"),
        ({"evaluation": "nightly", "planPath": "/a/b"}, ["coding", "nightly"], "nightly"),
        ({"job": "prompts", "planPath": "/a/"}, ["prompts", "/a/"], "plan of r"),
    ],
)
def test_runs_of_one_trend_have_a_plan_or_an_evaluation_in_common(
    members: Any, key: list[str], name: str
) -> None:
    assert json.loads(trends._key(run("r", **members))) == key
    assert trends._name(run("r", **members)) == name


def test_a_trend_has_the_last_twenty_runs_unless_they_are_large() -> None:
    def last(*sizes: int) -> list[str]:
        runs = [run(str(number), items=size) for number, size in enumerate(sizes)]
        return [each["runId"] for each in trends._last(runs)]

    assert last(*[1] * 21) == [str(number) for number in range(1, 21)]
    assert last(100_000, 50_000, 50_000) == ["0", "1", "2"]
    assert last(100_001, 50_000, 50_000) == ["1", "2"]
    # Two are shown, however large.
    assert last(1, 500_000, 500_000) == ["1", "2"]
    assert last(1, 200_000) == ["0", "1"]


@pytest.mark.parametrize(
    ("value", "null", "is_higher"),
    [(0.2, 0.0, True), (0.0, 0.0, False), (1.2, 1.0, True), (None, 0.0, False)],
)
def test_whether_tasks_of_a_change_are_higher(value: float | None, null: float, is_higher: bool) -> None:
    contrast: Any = SimpleNamespace(difference=SimpleNamespace(value=value, null=null))
    assert trends._is_higher(contrast) is is_higher
    contrast.difference = None
    assert trends._is_higher(contrast) is False


def test_plans_and_evaluators_with_several_runs_have_a_trend(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        run("9", planPath="/a.yaml"),
        run("8", evaluation="night", job="evaluation"),
        run("7", evaluation="day", job="older"),
        run("6", planPath="/a.yaml"),
        run("5", planPath="/b.yaml"),
        run("4", evaluation="night", job="evaluation"),
    ]
    monkeypatch.setattr(trends, "trend_runs", lambda read, now: runs)
    asked: list[Any] = []
    names = {"8": ["Builtin.Kind", "mine"], "7": ["Builtin.Kind"], "4": ["mine"]}
    monkeypatch.setattr(
        trends,
        "evaluators_of",
        lambda read, ids: asked.append(ids) or {each: names[each] for each in ids if each in names},
    )
    site: Any = SimpleNamespace(store=SimpleNamespace(read=None), now=lambda: None)
    made = trends.Trends(site)
    for _ in range(2):
        found = [
            (each.name, each.job, [one["runId"] for one in each.runs], each.evaluator)
            for each in made.plans()
        ]
        assert found == [
            ("a.yaml", "coding", ["6", "9"], ""),
            ("night", "evaluation", ["4", "8"], ""),
            ("Kind", "evaluation", ["7", "8"], "Builtin.Kind"),
        ]
    # All of them are read once.
    assert asked == [["8", "7", "4"]]
    assert json.loads(made.plans()[2].key) == ["evaluator", "Builtin.Kind"]
    with pytest.raises(NotFound, match="there is no such plan with several runs"):
        made.line("none", "")


# Runs


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:02.500Z", 2.5),
        ("2026-01-01T00:00:02Z", "2026-01-01T00:00:00Z", 0.0),
        (None, "2026-01-01T00:00:00Z", None),
        ("2026-01-01T00:00:00Z", None, None),
    ],
)
def test_how_long_an_item_took(start: str | None, end: str | None, seconds: float | None) -> None:
    assert run_views._seconds(start, end) == seconds


@pytest.mark.parametrize(
    ("status", "finished", "errors", "seconds", "rate"),
    [
        ("completed", 10, 4, 5.0, 2.0),
        ("aborted", 10, 4, 3.0, 2.0),
        ("aborted", 4, 4, 3.0, None),
        ("completed", 0, 0, 3.0, None),
        ("completed", 3, 0, 0.0, None),
    ],
)
def test_the_rate_of_a_run_that_has_ended(
    status: str, finished: int, errors: int, seconds: float, rate: float | None
) -> None:
    progress: Any = SimpleNamespace(
        status=status, finished=finished, counts={"error": errors}, elapsed_seconds=seconds
    )
    assert run_views._overall_rate(progress) == rate


def test_a_line_of_the_list_of_runs() -> None:
    row: Any = {
        "runId": "r",
        "createdAt": "c",
        "finishedAt": "f",
        "job": "coding",
        "status": "completed",
        "reason": "why",
        "planPath": "/p",
        "budgetUsd": 3.0,
        "crashes": 1,
    }
    totals: Any = {
        "items": 10,
        "finished": 8,
        "counts": {"success": 6},
        "passed": 3,
        "judged": 4,
        "tokens": 99,
        "costUsd": 0.5,
    }
    assert run_views._line(row, totals, 2).model_dump() == {
        "runId": "r",
        "createdAt": "c",
        "finishedAt": "f",
        "job": "coding",
        "status": "completed",
        "reason": "why",
        "planPath": "/p",
        "budgetUsd": 3.0,
        "itemCount": 10,
        "finishedCount": 8,
        "cutOffCount": 2,
        "counts": {"success": 6},
        "successRate": 0.75,
        "tokensTotal": 99,
        "costUsd": 0.5,
        "costIsLowerBound": True,
    }
    totals["judged"] = 0
    assert run_views._line(row, totals, 0).successRate is None


def test_progress_of_reading_and_money_of_a_run_without_a_budget() -> None:
    reading = run_views.reading_shape(Reading(3, 9))
    assert reading is not None and (reading.read, reading.total) == (3, 9)
    assert run_views.reading_shape(None) is None
    site: Any = SimpleNamespace(
        store=SimpleNamespace(read=SimpleNamespace(reserved_and_spent=lambda run_id: (1.0, 2.0)))
    )
    assert run_views.money_of(site, "r", None) == (0.0, 0.0)
    assert run_views.money_of(site, "r", 0.0) == (1.0, 2.0)


def test_only_more_than_elapsed_time_is_news_of_a_run(site: AppState) -> None:
    at = "2026-01-01T00:00:00.000Z"
    site.store.create_batch({"runId": "night", "createdAt": at, "job": "coding", "status": "completed"}, [])
    before, _ = run_views.run_state(site, "night")
    passing = {"elapsed_seconds": before.elapsed_seconds + 9, "eta_seconds": 3, "items_per_minute": 2.0}
    assert not live._is_news(before, before.model_copy(update=passing))
    for news in ({"status": "aborted"}, {"tokens": 7}, {"finished_count": 1}):
        assert live._is_news(before, before.model_copy(update=news))


def test_signatures_are_checked_every_thirty_seconds(site: AppState, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [datetime(2026, 1, 1, 0, 0, 29, tzinfo=UTC)]
    here = changed_state(site, now=lambda: moments[0])
    site.store.create_batch({"runId": "night", "createdAt": "t", "job": "coding", "status": "completed"}, [])
    checks: list[str] = []
    answer = runs.SignaturesAnswer(is_forged=False, notes=[], foreign=[])
    monkeypatch.setattr(runs, "_signatures", lambda site, run_id: checks.append(run_id) or answer)
    routes = {route.name: route.endpoint for route in runs.router(here).routes}  # type: ignore[attr-defined]
    for second, count in ((29, 1), (30, 2), (31, 2), (59, 2), (0, 3)):
        moments[0] = datetime(2026, 1, 1, 0, int(second == 0), second, tzinfo=UTC)
        assert routes["signatures"]("night") == answer
        assert checks == ["night"] * count


# Items


def test_the_first_session_before_or_after_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {60: "a", 130: "b"}
    asked: list[int] = []

    def sessions_at(read: object, run_id: str, positions: Any) -> list[Any]:
        asked.append(len(positions))
        return [known.get(each) for each in positions]

    monkeypatch.setattr(items.item_lists, "sessions_at", sessions_at)
    listings = items.Listings.__new__(items.Listings)
    listings._site = SimpleNamespace(store=SimpleNamespace(read=None))  # type: ignore[assignment]
    assert listings._first_session("r", range(200)) == "a" and asked == [50, 50]
    assert listings._first_session("r", range(61, 140)) == "b"
    assert listings._first_session("r", range(131, 140)) is None
    assert listings._first_session("r", []) is None


# Comparisons


def test_the_counts_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "success", 3), ("a", "fail", 1), ("a", "error", 1), ("", "success", 9), ("b", "queued", 2)]
    asked: list[str] = []
    monkeypatch.setattr(
        compare.pages,
        "status_counts_by",
        lambda read, run_id, by: (
            asked.append(by) or [{"level": level, "status": status, "n": n} for level, status, n in rows]
        ),
    )
    counts = {"success": 2, "fail": 1, "timeout": 1, "error": 1, "queued": 7, "running": 1}
    site: Any = SimpleNamespace(
        store=SimpleNamespace(read=SimpleNamespace(batch=lambda run_id, now: {"runId": f"{run_id}-whole"})),
        now=lambda: None,
        item_counts=SimpleNamespace(of=lambda batch: counts),
    )

    def found(runs: list[str], by: str) -> list[Any]:
        groups = compare._group_counts(site, runs, by)
        return [(each.name, each.finished, each.judged, each.succeeded) for each in groups]

    assert found(["x", "y"], "") == [("x-whole", 5, 4, 2), ("y-whole", 5, 4, 2)]
    assert found(["x"], "model") == [("a", 5, 4, 3), ("b", 0, 0, 0)] == found(["x"], "agent")
    assert asked == ["model", "agent"] and found(["x"], "temper") == []


def test_the_groups_of_a_run_follow_its_stop_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "groups_by", lambda results, by, *, pair: (results, by, pair))
    monkeypatch.setattr(compare, "groups_of", lambda results, *, pair: (results, pair))
    monkeypatch.setattr(
        compare, "with_stop_rule", lambda groups, read, run_id, by: (groups, read, run_id, by)
    )
    read = SimpleNamespace(batch=lambda run_id, now: {"runId": f"{run_id}-whole"})
    site: Any = SimpleNamespace(
        store=SimpleNamespace(read=read),
        now=lambda: None,
        results=SimpleNamespace(within=lambda batches, wait, *, recent: ("abc", recent)),
    )
    comparisons = compare._RecentComparisons(site)
    by_model: Any = comparisons.groups(compare._CompareQuery(("x",), "model", "item"))
    assert by_model == (("abc", "model", "item"), read, "x-whole", "model")
    both: Any = comparisons.groups(compare._CompareQuery(("x", "y"), "", ""))
    assert both == ("abc", "")


def test_the_session_of_an_item_that_evaluates_one_is_that_one() -> None:
    row: Any = {"settings": '{"session": "judged"}', "sessionId": "own"}
    assert compare._session_of(row) == "judged"
    assert compare._session_of({**row, "settings": "{}"}) == "own"


def test_what_is_known_of_a_comparison_while_items_are_read() -> None:
    answer = compare._not_yet(Reading(3, 9))
    assert answer.summary == "The items are being read: 3 of 9 items read."
    assert answer.reading is not None and answer.reading.read == 3
    assert (answer.is_current, answer.verdict, answer.is_better) == (False, None, None)
    answer = compare._not_yet(None)
    assert (answer.summary, answer.reading) == ("The items are being read.", None)
    assert (answer.groups, answer.contrasts, answer.charts, answer.gates) == ([], [], [], [])


# Evaluations and labels


def test_a_verdict_has_the_votes_behind_it() -> None:
    row = {
        "evaluator": "e",
        "level": "trace",
        "target": "t",
        "dimension": "d",
        "value": 0.0,
        "label": "Bad",
        "evaluatorDigest": "x",
        "explanation": "why",
        "error": "",
        "votes": "[1.0, 0.0]",
        "costUsd": 0.1,
    }
    verdict = evaluations.verdict_shape(row)
    assert verdict.votes == [1.0, 0.0] and (verdict.digest, verdict.explanation) == ("x", "why")
    assert (verdict.value, verdict.label, verdict.cost_usd) == (0.0, "Bad", 0.1)
    assert evaluations.verdict_shape({**row, "votes": ""}).votes == []


def test_an_evaluation_is_changed_by_its_whole_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SimpleNamespace(id="night-1")
    monkeypatch.setattr(evaluations, "evaluation_of", lambda store, id_, now: job)
    site: Any = SimpleNamespace(store=None, now=lambda: None)
    assert evaluations.find_job(site, "night-1") is job
    with pytest.raises(NotFound, match=r"^there is no evaluation night\nIt may have been deleted already"):
        evaluations.find_job(site, "night")


def test_results_of_an_evaluation_are_kept_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    calls: list[str] = []

    def results_of(store: object, id_: str) -> object:
        calls.append(id_)
        moment[0] += 2.0
        return object()

    monkeypatch.setattr(evaluations, "results_of", results_of)
    monkeypatch.setattr(evaluations.time, "monotonic", lambda: moment[0])
    site: Any = SimpleNamespace(store=None)
    lines = evaluations.EvaluationLines(site)
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def job(state: str = "IN_PROGRESS", id_: str = "a") -> Any:
        return SimpleNamespace(id=id_, state=state, updated_at=at, is_finished=state == "COMPLETED")

    first = lines.results(job())
    # For five times as long as they took.
    moment[0] = 111.9
    assert lines.results(job()) is first
    moment[0] = 112.0
    second = lines.results(job())
    assert second is not first and len(calls) == 2
    done = lines.results(job("COMPLETED"))
    moment[0] = 1e9
    assert lines.results(job("COMPLETED")) is done and len(calls) == 3
    lines.results(job(id_="b"))
    assert lines.results(job("COMPLETED")) is done, "the results of others do not replace them"


def test_labels_have_an_order_where_all_have_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def ratings(*pairs: tuple[str, float | None]) -> list[str]:
        shapes = [SimpleNamespace(label=label, value=value) for label, value in pairs]
        monkeypatch.setattr(labels, "ratings_of", lambda site, evaluator, dimension: shapes)
        return labels.order_of(None, "e", "")  # type: ignore[arg-type]

    assert ratings(("good", 1.0), ("bad", 0.0), ("fair", 0.5)) == ["bad", "fair", "good"]
    assert ratings(("good", 1.0), ("bad", None)) == [] == ratings()


def test_scores_and_labels_of_a_session_are_listed_together(
    site: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_session(site.store, "talk", [Message(role="user", content="hi")])
    writer = site.store.writer()
    add_score(writer, "talk", evaluator="b", value=0.2, label="Low")
    add_score(writer, "talk", minute=1, evaluator="b", value=0.9, label="High")
    add_score(writer, "talk", evaluator="a", dimension="tone", value=0.5)
    add_score(writer, "talk", evaluator="other", value=0.5, judged_session="another")
    writer.close()
    label = Label(
        session_id="talk", evaluator="c", who="ana", label="Yes", value=1.0, level="session", note="n"
    )
    site.store.save_label(label, site.now())
    answer = labels._answer(site, "talk")
    assert [
        (
            each.evaluator,
            each.dimension,
            each.verdict and each.verdict.value,
            [one.label for one in each.labels],
        )
        for each in answer.things
    ] == [("a", "tone", 0.5, []), ("b", "", 0.9, []), ("c", "", None, ["Yes"])]
    assert [each.level for each in answer.things] == ["session"] * 3 and answer.session_id == "talk"
    monkeypatch.setattr(labels, "MOST_THINGS", 2)
    assert len(labels._answer(site, "talk").things) == 2


def opened(site: AppState, name: str = "night", **members: Any) -> str:
    """A new evaluation, which no process executes."""
    document = {
        "batchEvaluationName": name,
        "evaluators": [{"evaluatorId": "Builtin.Helpfulness"}],
        "dataSourceConfig": {"store": {"runIds": ["r"]}},
        **members,
    }
    request = EvaluationRequest.from_document(document)
    return open_evaluation(site.store, request, now=site.now(), version="0").id


def test_an_evaluation_that_has_not_begun_is_described(site: AppState) -> None:
    truth = [{"dataset": "cases", "version": "1"}, {"other": "x"}]
    evaluation = opened(
        site, description="every night", votes=3, judge="m/judge", groundTruth=truth, budget=2.5
    )
    answer = evaluations.EvaluationLines(site).answer(evaluation)
    assert (answer.id, answer.name, answer.state) == (evaluation, "night", "PENDING")
    assert (answer.votes, answer.judge, answer.description) == (3, "m/judge", "every night")
    assert answer.ground_truth == ["cases"] and answer.source == {"store": {"runIds": ["r"]}}
    assert answer.evaluators == ["Builtin.Helpfulness"] and answer.is_online is False
    assert (answer.completed, answer.in_progress, answer.failed, answer.ignored) == (0, 0, 0, 0)
    assert (answer.sessions, answer.item_count, answer.finished_count) == (0, 0, 0)
    assert (answer.budget_usd, answer.chart, answer.insights, answer.averages) == (2.5, "", [], [])
    plain = evaluations.EvaluationLines(site).answer(opened(site, "plain"))
    assert (plain.votes, plain.judge, plain.description, plain.ground_truth) == (1, "", "", [])


def test_an_evaluation_whose_run_is_gone_has_no_counts(
    site: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = evaluations.EvaluationLines(site)
    job = evaluations.evaluation_of(site.store, opened(site), site.now())
    results = SimpleNamespace(total=0, summaries=[], cost_usd=None)
    monkeypatch.setattr(lines, "results", lambda job: results)
    line = lines._line(replace(job, sessions_found=4, error_details=("why",)), None, plots=False)
    assert line["counts"] == dict.fromkeys(("queued", "running", "success", "fail", "timeout", "error"), 0)
    assert (line["item_count"], line["finished_count"], line["budget_usd"]) == (0, 0, None)
    assert (line["sessions"], line["details"], line["averages"], line["cost_usd"]) == (4, ["why"], [], None)
    assert (line["created_at"], line["id"], line["state"]) == (timestamp(job.created_at), job.id, "PENDING")
    results.total = 9
    run: Any = SimpleNamespace(counts={"success": 3}, itemCount=9, finishedCount=3, budgetUsd=1.5)
    line = lines._line(job, run, plots=False)
    assert (line["item_count"], line["finished_count"], line["budget_usd"]) == (9, 3, 1.5)
    assert (line["sessions"], line["counts"], line["is_online"]) == (9, {"success": 3}, False)


def test_evaluations_are_listed_in_pages(site: AppState) -> None:
    calls = {route.name: route.endpoint for route in evaluations.router(site).routes}  # type: ignore[attr-defined]
    ids = [opened(site, name) for name in ("one", "two", "other")]
    listed = calls["listed"]

    def found(**members: Any) -> tuple[set[str], int, int]:
        page = listed(**{"search": "", "limit": 50, "offset": 0, **members})
        return {each.id for each in page.evaluations}, page.total, page.all

    assert found() == (set(ids), 3, 3)
    assert found(search="o\0ther") == ({ids[2]}, 1, 3)
    assert found(search="none") == (set(), 0, 3)
    first, second = found(limit=2), found(limit=2, offset=2)
    assert (len(first[0]), len(second[0]), first[0] | second[0]) == (2, 1, set(ids))
    stopped = calls["stop"](ids[0])
    assert (stopped.id, stopped.state) == (ids[0], "STOPPED")
    deleted = calls["delete"](ids[0])
    assert (deleted.id, deleted.state) == (ids[0], "DELETING")
    assert found() == (set(ids[1:]), 2, 2)


# Spans that arrive


async def test_sessions_are_built_by_one_task_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[asyncio.Event] = []

    async def build(intake: otlp.Intake) -> None:
        began.append(asyncio.Event())
        await began[-1].wait()

    monkeypatch.setattr(otlp.Intake, "_build", build)
    site: Any = SimpleNamespace()
    intake = otlp.Intake(site)
    intake.wake()
    await asyncio.sleep(0)
    intake.wake()
    await asyncio.sleep(0)
    assert len(began) == 1 and intake._arrived.is_set()
    began[0].set()
    assert intake._building is not None
    await intake._building
    intake.wake()
    await asyncio.sleep(0)
    assert len(began) == 2
    await intake.close()
    assert intake._building.cancelled()
    await otlp.Intake(site).close()


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"content-type": "application/json"}, None, ""),
        ({"content-type": " Application/X-Protobuf ; charset=x"}, None, ""),
        (
            {"content-type": "text/plain"},
            415,
            "the body should be application/x-protobuf or application/json",
        ),
        ({}, 415, "the body should be application/x-protobuf or application/json"),
        ({"content-type": "application/json", "content-length": "67108864"}, None, ""),
        (
            {"content-type": "application/json", "content-length": "67108865"},
            413,
            "a body may have 67,108,864 bytes",
        ),
        (
            {"content-type": "application/json", "content-length": "x"},
            413,
            "a body may have 67,108,864 bytes",
        ),
    ],
)
def test_what_is_sent_has_a_type_and_a_length(headers: Any, status: int | None, message: str) -> None:
    intake = otlp.Intake.__new__(otlp.Intake)
    intake._site = SimpleNamespace(access=SimpleNamespace(is_open=True))  # type: ignore[assignment]
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": "/v1/traces", "headers": pairs, RECORD: RequestRecord("1.2.3.4")}
    request = Request({**scope, "query_string": b"", "scheme": "http", "server": ("h", 80)})
    if status is None:
        intake._check(request)
    else:
        with pytest.raises(otlp.RejectedRequest) as refused:
            intake._check(request)
        assert (refused.value.status, str(refused.value)) == (status, message)
        assert refused.value.code == {415: 3, 413: 8}[status]
