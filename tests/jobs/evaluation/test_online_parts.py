"""Which sessions online evaluation judges, how its evaluation grows, what recommendations are made from."""

import json
import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import AttemptError, NotFound, UsageError
from proctor.jobs.evaluation import online, recommendation
from proctor.jobs.evaluation.online import OnlineEvaluationState, OnlineWatch, does_match, is_sampled
from proctor.jobs.evaluation.recommendation import TracedSession
from proctor.score import Score
from proctor.store import timestamp
from proctor.store.session_selection import Period

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "operator", "expected", "matches"),
    [
        ("a", "Equals", "a", True),
        ("a", "Equals", "b", False),
        (None, "Equals", "a", False),
        (None, "NotEquals", "a", True),
        ("a", "NotEquals", "a", False),
        ("1.0", "Equals", 1, True),
        ("x", "Equals", 1, False),
        (0, "Equals", 0, True),
        (True, "Equals", "TRUE", True),
        ("false", "Equals", False, True),
        (True, "Equals", 1, False),
        ("abc", "Contains", "b", True),
        ("abc", "NotContains", "b", False),
        (["ab", 5], "Contains", "5", True),
        (["ab", 5], "Contains", "a", False),
        (None, "Contains", "a", False),
        (2, "GreaterThan", 2, False),
        (3, "GreaterThan", 2, True),
        (2, "GreaterThanOrEqual", 2, True),
        (1, "GreaterThanOrEqual", 2, False),
        (2, "LessThan", 2, False),
        ("1", "LessThan", 2, True),
        (2, "LessThanOrEqual", 2, True),
        (3, "LessThanOrEqual", 2, False),
        ("x", "LessThan", 2, False),
        (1, "LessThan", "x", False),
        ([1], "LessThan", 2, False),
    ],
)
def test_a_filter_compares_an_attribute(value: Any, operator: str, expected: Any, matches: bool) -> None:
    condition = {"key": "k", "operator": operator, "value": {"someValue": expected}}
    assert does_match({} if value is None else {"k": value}, condition) is matches


def test_a_sample_has_its_share_and_grows_with_the_percentage() -> None:
    names = [f"session-{number}" for number in range(2000)]
    shares = {share: {name for name in names if is_sampled("c", name, share)} for share in (0, 10, 50, 100)}
    assert not shares[0] and shares[100] == set(names)
    assert shares[10] < shares[50]
    # Within five standard deviations of the expected number.
    assert abs(len(shares[10]) - 200) < 5 * math.sqrt(180) and abs(len(shares[50]) - 1000) < 5 * math.sqrt(
        500
    )
    assert shares[50] != {name for name in names if is_sampled("other", name, 50)}


def config(**changes: Any) -> Any:
    document: dict[str, Any] = {
        "rule": {"samplingConfig": {"samplingPercentage": 100.0}},
        "dataSourceConfig": {
            "cloudWatchLogs": {"serviceNames": ["svc"], "logGroupNames": ["g"], "logGroupNamePrefixes": ["p"]}
        },
        "evaluators": [{"evaluatorId": "e"}],
        "insights": ["i"],
        "outputConfig": {"cloudWatchConfig": {"logGroupName": "out"}},
    }
    document |= changes.pop("document", {})
    usual = {
        "id": "c",
        "name": "watch",
        "document": document,
        "runId": "",
        "failure": "",
        "enabledAt": "2026",
    }
    return usual | changes


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        ({}, "judge"),
        ({"samplingConfig": {"samplingPercentage": 0.0}}, "not_sampled"),
        ({"filters": [{"key": "service.name", "operator": "Equals", "value": {"s": "svc"}}]}, "judge"),
        ({"filters": [{"key": "user", "operator": "Equals", "value": {"s": "ana"}}]}, "judge"),
        ({"filters": [{"key": "model", "operator": "Equals", "value": {"s": "m"}}]}, "judge"),
        ({"filters": [{"key": "id", "operator": "Equals", "value": {"s": "s"}}]}, "filtered"),
        (
            {
                "filters": [
                    {"key": "user", "operator": "Equals", "value": {"s": "ana"}},
                    {"key": "user", "operator": "Equals", "value": {"s": "ben"}},
                ]
            },
            "filtered",
        ),
    ],
)
def test_a_session_is_sampled_then_filtered(rule: dict[str, Any], decision: str) -> None:
    row: Any = {
        "id": "s",
        "externalId": "x",
        "service": "svc",
        "model": "m",
        "attributesJson": '{"user": "ana"}',
    }
    watched = config(document={"rule": {"samplingConfig": {"samplingPercentage": 100.0}, **rule}})
    assert online._decision(watched, row) == decision
    head = {name: value for name, value in row.items() if name != "id"}
    passes = recommendation._passes(head, watched["document"]["rule"].get("filters") or ())
    assert passes is (decision != "filtered")


STATE = OnlineEvaluationState(judging={"judge": "m"}, version="1", region="r", account="a")


class Watched:
    """A store that keeps what a watch asks of it."""

    def __init__(self, **values: Any) -> None:
        self.calls: list[Any] = []
        self.values = {"sessions_of": [], "watch_config": True, "oldest_new": None} | values
        names = ("watch_config", "record_decisions", "sessions_of", "assign_sessions", "unassign_sessions")
        self.definitions = SimpleNamespace(
            **{name: self._call(name) for name in (*names, "update_config_state")}
        )
        self.arrivals = SimpleNamespace(oldest_new=self._call("oldest_new"))
        self.read = SimpleNamespace(batch=lambda run_id, now: self.values["batch"])

    def _call(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if name in ("assign_sessions", "unassign_sessions", "update_config_state", "record_decisions"):
                self.calls.append((name, *arguments, *([named] if named else [])))
            return self.values.get(name)

        return call


def watch(store: Any, state: OnlineEvaluationState = STATE) -> OnlineWatch:
    return OnlineWatch(store, state, owner="me")


@pytest.mark.parametrize(
    ("rule", "seconds", "waits"),
    [
        ({}, None, 900.0),
        ({"sessionConfig": None}, None, 900.0),
        ({"sessionConfig": {"sessionTimeoutMinutes": 2}}, None, 120.0),
        ({"sessionConfig": {"sessionTimeoutMinutes": 2}}, 0.0, 0.0),
    ],
)
def test_how_long_a_session_is_quiet_before_it_has_ended(
    rule: dict[str, Any], seconds: float | None, waits: float
) -> None:
    state = OnlineEvaluationState(judging={}, version="", region="", account="", quiet_seconds=seconds)
    assert watch(Watched(), state)._quiet_seconds(config(document={"rule": rule})) == waits


def test_sessions_are_examined_once_in_the_order_of_their_last_span(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def quiet(read: Any, config_id: str, **named: Any) -> Any:
        asked.append(named)
        return [{"id": "s", "externalId": "x", "service": "svc", "attributesJson": ""}]

    monkeypatch.setattr(online, "quiet_sessions", quiet)
    store = Watched()
    looking = watch(store)
    assert looking._decide(config(), NOW) == {"s": "judge"}
    over = timestamp(NOW - timedelta(minutes=15))
    source = {"service": "svc", "log_groups": ["g"], "prefixes": ["p"]}
    assert asked.pop() == {**source, "since": "2026", "until": over}
    looking._decide(config(enabledAt=None), NOW + timedelta(minutes=1))
    assert asked.pop()["since"] == over
    # What arrived and is not built yet may be older.
    store.values["oldest_new"] = "2026-01"
    looking._decide(config(), NOW)
    looking._decide(config(enabledAt="2025"), NOW)
    assert asked.pop()["since"] == "2026-01"


def job(state: str = "COMPLETED", *, is_finished: bool = True) -> Any:
    return SimpleNamespace(id="run", state=state, is_finished=is_finished, error_details=["no", "judge"])


@pytest.mark.parametrize(
    ("changes", "found", "values", "yielded", "calls"),
    [
        ({}, None, {"watch_config": False, "sessions_of": ["s"]}, [], None),
        ({"failure": "broken"}, None, {"sessions_of": ["s"]}, [], []),
        ({}, None, {}, [], []),
        ({}, None, {"sessions_of": ["s"]}, ["begun"], [("assign_sessions", "c", ["s"], "begun")]),
        ({}, job(), {"sessions_of": ["s"]}, ["grown"], [("assign_sessions", "c", ["s"], "grown")]),
        ({}, job(), {"sessions_of": ["s"], "batch": {"owner": "alive"}}, [], []),
        (
            {},
            job(is_finished=False),
            {"sessions_of": ["s"], "batch": {"owner": "", "status": "running"}},
            ["run"],
            [],
        ),
        ({}, job(is_finished=False), {"batch": {"owner": "x", "status": "halted"}}, ["run"], []),
        ({}, job(is_finished=False), {"batch": {"owner": "x", "status": "running"}}, [], []),
        (
            {},
            job("FAILED"),
            {"sessions_of": ["s"]},
            [],
            [
                ("unassign_sessions", "c", "run"),
                ("update_config_state", "c", {"failure": "no judge", "runId": ""}),
            ],
        ),
    ],
)
def test_new_sessions_are_added_when_their_evaluation_is_done(
    changes: Any, found: Any, values: Any, yielded: Any, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Watched(**{"batch": {"owner": "", "status": "completed"}} | values)
    monkeypatch.setattr(OnlineWatch, "_decide", lambda self, config, now: {"d": "judge"})
    monkeypatch.setattr(OnlineWatch, "_job_of", lambda self, config, now: found)
    monkeypatch.setattr(OnlineWatch, "_begin", lambda self, config, due, now: "begun")
    monkeypatch.setattr(OnlineWatch, "_grow", lambda self, config, due: "grown")
    monkeypatch.setattr(online, "is_alive", lambda owner, heartbeat, now: owner == "alive")
    assert list(watch(store)._look_for(config(**changes), NOW)) == yielded
    recorded = ("record_decisions", "c", {"d": "judge"}, NOW)
    assert store.calls == ([] if calls is None else [recorded, *calls])


def test_the_request_of_an_online_evaluation() -> None:
    request = watch(Watched())._request(config(), ["a", "b"])
    assert request == {
        "batchEvaluationName": "watch",
        "evaluators": [{"evaluatorId": "e"}],
        "insights": ["i"],
        "dataSourceConfig": {"store": {"sessionIds": ["a", "b"]}},
        "outputConfig": {"cloudWatchConfig": {"logGroupName": "out"}},
        "judge": "m",
        "onlineEvaluationConfigId": "c",
    }
    assert online.is_online(request) and not online.is_online({"batchEvaluationName": "x"})
    to_source = {"outputConfig": {"cloudWatchConfig": {"resultDestination": "SOURCE_LOG_GROUP"}}}
    for source, group in (
        ({"logGroupNames": ["g", "h"], "logGroupNamePrefixes": ["p"]}, "g"),
        ({"logGroupNames": None, "logGroupNamePrefixes": ["p"]}, "p"),
    ):
        watched = config(document=to_source | {"dataSourceConfig": {"cloudWatchLogs": source}})
        output = watch(Watched())._request(watched, [])["outputConfig"]["cloudWatchConfig"]
        assert output["logGroupName"] == group


def test_an_evaluation_is_opened_with_a_token_of_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_(store: Any, request: Any, **named: Any) -> Any:
        opened.append((request.client_token, named))
        return SimpleNamespace(id="run")

    monkeypatch.setattr(online, "open_evaluation", open_)
    monkeypatch.setattr(online, "copies_of", lambda store, names: {"copied": list(names)})
    store = Watched()
    assert watch(store)._begin(config(), ["a", "b"], NOW) == "run"
    assert store.calls == [("update_config_state", "c", {"runId": "run"})]
    token, named = opened.pop()
    assert token.startswith("online-") and len(token) == len("online-") + 40
    assert named == {
        "now": NOW,
        "version": "1",
        "region": "r",
        "account": "a",
        "definitions": {"copied": ["e"]},
        "is_detached": True,
    }
    for other in (["a"], ["b", "a"]):
        watch(store)._begin(config(), other, NOW)
        assert opened.pop()[0] != token
    watch(store)._begin(config(), ["a", "b"], NOW)
    assert opened.pop()[0] == token


def test_a_grown_evaluation_is_unfinished_and_has_no_owner() -> None:
    changes: list[Any] = []
    row = {"id": "run", "arn": "arn", "name": "n", "definitionsJson": '{"d": 1}'}
    store: Any = SimpleNamespace(
        evaluations=SimpleNamespace(row=lambda run_id: row, change_request=changes.append),
        change_batch=lambda run_id, columns: changes.append((run_id, columns)),
    )
    assert watch(store)._grow(config(runId="run"), ["a"]) == "run"
    record, (run_id, columns) = changes
    assert (record.id, record.arn, record.name, record.definitions) == ("run", "arn", "n", {"d": 1})
    assert record.request["dataSourceConfig"] == {"store": {"sessionIds": ["a"]}}
    assert run_id == "run" and columns == {
        "status": "running",
        "reason": "",
        "owner": "",
        "heartbeatAt": None,
        "finishedAt": None,
        "abortRequestedAt": None,
    }


def test_the_evaluation_of_a_configuration_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(store: Any, run_id: str, now: Any) -> Any:
        raise NotFound("gone")

    monkeypatch.setattr(online, "evaluation_of", missing)
    looking = watch(Watched())
    assert looking._job_of(config(), NOW) is None and looking._job_of(config(runId="r"), NOW) is None
    monkeypatch.setattr(online, "evaluation_of", lambda store, run_id, now: run_id)
    assert looking._job_of(config(runId="r"), NOW) == "r"


# --- Recommendations ---


def score(value: float | None = None, **changes: Any) -> Score:
    return Score(**{"evaluator": "e", "value": value} | changes)


def traced(*scores: Score, reversed_: Any = ()) -> TracedSession:
    evidence: Any = SimpleNamespace(name="evidence")
    return TracedSession(evidence=evidence, scores=scores, high_is_bad=reversed_)


@pytest.mark.parametrize(
    ("session", "rank"),
    [
        (traced(), math.inf),
        (traced(score()), math.inf),
        (traced(score(0.0)), 0.0),
        (traced(score(0.5), score(), score(1.0)), 0.75),
        (traced(score(0.25), score(0.5, evaluator="f"), reversed_=["e"]), 0.625),
    ],
)
def test_sessions_are_ranked_by_the_mean_of_their_scores(session: TracedSession, rank: float) -> None:
    assert session.rank == rank


MARCH = Period(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("stamp", "period", "is_within"),
    [
        (None, None, True),
        ("2026-02-01T00:00:00Z", None, True),
        (None, MARCH, False),
        ("2026-03-01T00:00:00Z", MARCH, True),
        ("2026-02-28T23:59:59Z", MARCH, False),
        ("2026-03-31T23:59:59Z", MARCH, True),
        ("2026-04-01T00:00:00Z", MARCH, False),
        ("2026-04-01T00:00:00Z", Period(start=MARCH.start, end=None), True),
        ("2026-02-01T00:00:00Z", Period(start=None, end=MARCH.end), True),
    ],
)
def test_scores_of_a_period_are_used(stamp: str | None, period: Period | None, is_within: bool) -> None:
    assert recommendation._is_within(stamp, period) is is_within


def verdict(name: str, value: float, error: str = "", at: str = "2026-03-02T00:00:00Z") -> dict[str, Any]:
    return {
        "evaluator": name,
        "value": value,
        "label": "l",
        "explanation": "x",
        "error": error,
        "timestamp": at,
    }


@pytest.mark.parametrize(
    ("evaluator", "period", "found"),
    [
        ("", None, {"s1": [0.5, 0.25], "s2": []}),
        ("a", None, {"s1": [0.5]}),
        ("c", None, {"s1": []}),
        ("", MARCH, {"s1": [0.5]}),
        ("none", None, {}),
    ],
)
def test_sessions_of_an_evaluation_have_its_scores(
    evaluator: str, period: Period | None, found: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = {
        "s1": [
            verdict("a", 0.5),
            verdict("b", 0.25, at="2026-05-01T00:00:00Z"),
            verdict("c", 1.0, error="broken"),
        ],
        "s2": [],
    }
    monkeypatch.setattr(
        recommendation, "sessions_page", lambda *_, **__: ([{"sessionId": each} for each in verdicts], 2)
    )
    monkeypatch.setattr(recommendation, "verdicts_of", lambda read, run_id, session_id: verdicts[session_id])
    store: Any = SimpleNamespace(read=SimpleNamespace(evidence=lambda session_id: session_id))
    sessions = list(recommendation._of_evaluation(store, "run", {}, evaluator, period))
    assert {str(each.evidence): [one.value for one in each.scores] for each in sessions} == found


def test_sessions_of_log_groups_exist_and_pass_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = {
        f"s{number}": {"service": "svc", "attributesJson": json.dumps({"n": number})}
        for number in range(1, 300)
    }
    asked: list[Any] = []
    monkeypatch.setattr(
        recommendation, "session_ids", lambda read, chosen: asked.append(chosen) or ["gone", *heads]
    )
    monkeypatch.setattr(recommendation, "session_heads", lambda read, ids: asked.append(len(ids)) or heads)
    store: Any = SimpleNamespace(read=None)
    source = {
        "logGroupArns": ["arn:aws:logs:eu:1:log-group:/a/b:*", "arn:aws:logs:eu:1:log-group:c"],
        "serviceNames": ["svc"],
        "startTime": "2026-03-01T00:00:00Z",
        "rule": {"filters": [{"key": "n", "operator": "GreaterThan", "value": {"d": 2}}]},
    }
    found = recommendation._of_log_groups(store, source)
    assert found == [f"s{number}" for number in range(3, 23)]
    selection, candidates = asked
    assert (selection.names, selection.services) == (("/a/b", "c"), ("svc",))
    assert selection.period == Period(start=MARCH.start, end=None)
    assert candidates == 200


async def test_sessions_without_scores_are_evaluated_first() -> None:
    class Judge:
        name = "Builtin.Harmfulness"

        async def judge(self, evidence: Any) -> list[Score]:
            return [score(0.9, evaluator=self.name), score(0.1, evaluator=self.name, error="no")]

    known = traced(score(0.5))
    judge: Any = Judge()
    first, second = await recommendation.with_scores([known, traced()], judge, 1.0)
    # A high value is bad: 1 - 0.9.
    assert second is known and first.rank == pytest.approx(0.1) and len(first.scores) == 1
    first, second = await recommendation.with_scores([traced(), known], judge, 0.0)
    assert first is known and second.rank == pytest.approx(0.9)

    async def fail(evidence: Any) -> list[Score]:
        raise AttemptError("down")

    judge.judge = fail
    with pytest.raises(UsageError, match=r"Builtin\.Harmfulness could not evaluate the sessions: down"):
        await recommendation.with_scores([traced()], judge, 1.0)


@pytest.mark.parametrize("length", [8000, 8001])
def test_a_session_is_described_with_its_scores(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "numbered", lambda evidence: "x" * length)
    scores = [
        score(0.5, label="Good", explanation="because"),
        score(0.25),
        score(label="Bad"),
        score(0.0, label="No", explanation="y" * 2000),
    ]
    head, *lines, transcript = recommendation._described(3, traced(*scores)).split("\n")
    assert head == "Session 3" and lines[:3] == ["e: Good (0.5). because", "e: 0.25", "e: Bad"]
    # Of long texts, so many characters at the beginning and at the end are kept.
    assert lines[3].startswith("e: No (0). yyy") and "y" * 2000 not in "".join(lines)
    assert (transcript == "x" * length) is (length == 8000)


async def test_a_recommendation_has_a_text_for_each_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def ask(
        judge: Any, instructions: str, current: str, sessions: Any, fields: Any, name: str = ""
    ) -> Any:
        asked.append((instructions, current, name))
        (_, answer) = fields
        return {"explanation": "e" * 5000, answer: f"new {name}" + "x" * 30_000}

    monkeypatch.setattr(recommendation, "_ask", ask)
    judge: Any = None
    config_ = {"systemPromptRecommendationConfig": {"systemPrompt": {"text": "old"}}}
    result = await recommendation.recommend(config_, [], judge)
    (prompt,) = result.values()
    assert set(result) == {"systemPromptRecommendationResult"}
    assert len(prompt["recommendedSystemPrompt"]) == 20_000 and len(prompt["explanation"]) == 4096
    assert asked.pop() == (recommendation.SYSTEM_PROMPT, "old", "")
    tools = [{"toolName": name, "toolDescription": {"text": f"old {name}"}} for name in ("a", "b")]
    described = {"toolDescription": {"toolDescriptionText": {"tools": tools}}}
    result = await recommendation.recommend({"toolDescriptionRecommendationConfig": described}, [], judge)
    found = result["toolDescriptionRecommendationResult"]["tools"]
    assert [(each["toolName"], each["recommendedToolDescription"][:5]) for each in found] == [
        ("a", "new a"),
        ("b", "new b"),
    ]
    assert [each[1:] for each in asked] == [("old a", "a"), ("old b", "b")]


@pytest.mark.parametrize(("number", "words"), [(1, "in one session,"), (2, "in 2 sessions,")])
async def test_a_judge_is_asked_until_its_answer_has_all_parts(
    number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommendation, "numbered", lambda evidence: "transcript")
    seen: list[Any] = []
    answer = SimpleNamespace(missing=[], values={"explanation": "e", "recommended_system_prompt": "p"})

    async def until_readable(judge: Any, messages: Any, read: Any, is_readable: Any, usage: Any) -> Any:
        seen.append((messages, is_readable))
        return answer

    monkeypatch.setattr(recommendation, "ask_until_readable", until_readable)
    judge: Any = SimpleNamespace(model="m")
    arguments = (
        judge,
        recommendation.SYSTEM_PROMPT,
        "old",
        [traced()] * number,
        recommendation.PROMPT_FIELDS,
    )
    assert await recommendation._ask(*arguments) == answer.values
    ((system, user), is_readable) = seen[0]
    assert (system["role"], system["content"], user["role"]) == ("system", recommendation.RULES, "user")
    assert words in user["content"] and "old" in user["content"] and "Session 1" in user["content"]
    assert is_readable(answer)
    assert not is_readable(SimpleNamespace(missing=["x"], values={"a": "b"}))
    assert not is_readable(SimpleNamespace(missing=[], values={"a": "b", "c": " "}))
    answer.missing = ["explanation"]
    with pytest.raises(UsageError, match="m gave no recommendation that could be read"):
        await recommendation._ask(*arguments)


def test_traces_come_from_the_source_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    many = [traced(score(number / 100)) for number in range(30, 0, -1)]
    monkeypatch.setattr(recommendation, "turns_of", lambda evidence: evidence is not None)
    monkeypatch.setattr(recommendation, "_of_spans", lambda spans: [*many, TracedSession(evidence=None)])  # type: ignore[arg-type]
    store: Any = SimpleNamespace(
        definitions=SimpleNamespace(config=lambda config_id: {"runId": f"run of {config_id}"})
    )
    found = recommendation.traced_sessions(store, {"sessionSpans": ["x"]}, NOW)
    assert [each.rank for each in found] == [number / 100 for number in range(1, 21)]

    finished = SimpleNamespace(id="b", is_finished=True, run_id="run", document={"d": 1})

    def evaluation(store: Any, name: str, now: Any, **named: Any) -> Any:
        calls.append((name, named))
        return finished

    def of_evaluation(*arguments: Any) -> Any:
        calls.append(arguments[1:])
        return many

    monkeypatch.setattr(recommendation, "evaluation_of", evaluation)
    monkeypatch.setattr(recommendation, "_of_evaluation", of_evaluation)
    traces: Any = {"batchEvaluation": {"batchEvaluationArn": "arn:x/b"}}
    recommendation.traced_sessions(store, traces, NOW, evaluator="e")
    assert calls == [("b", {}), ("run", {"d": 1}, "e")]
    calls.clear()
    finished.is_finished = False
    with pytest.raises(UsageError, match="the batch evaluation b is not finished"):
        recommendation.traced_sessions(store, traces, NOW)
    calls.clear()
    online_: Any = {"onlineEvaluationConfig": {"onlineEvaluationConfigArn": "arn:x/c"}}
    recommendation.traced_sessions(store, online_, NOW)
    assert calls == [
        ("run of c", {"with_deleted": True}),
        ("run of c", {"d": 1}, "", Period(start=None, end=None)),
    ]
    monkeypatch.setattr(recommendation, "_of_spans", lambda spans: [])
    with pytest.raises(UsageError, match="no session with activity of an agent"):
        recommendation.traced_sessions(store, {"sessionSpans": []}, NOW)
