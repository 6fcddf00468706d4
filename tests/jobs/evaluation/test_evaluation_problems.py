"""What an evaluation refuses before it starts, and why an alert was not delivered."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filled import NOW
from proctor.errors import ModelError, UsageError
from proctor.jobs.evaluation import drift, ground_truth, prepare, results
from proctor.jobs.evaluation.drift import AlertFailed, Alerts, alert_document
from proctor.jobs.evaluation.job import EvaluationJobPlan
from proctor.jobs.evaluation.request import LogGroupSessions
from proctor.session import CHARACTERS_PER_TOKEN
from proctor.store.drift import LineKey


def refused(call: Any) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


class Directory:
    """Models of which some are missing, some have no key and some no price."""

    def check(self, model: str) -> None:
        if model == "lost/m":
            raise UsageError("there is no lost/m")

    def missing_key(self, model: str) -> str:
        return "A_KEY" if model == "keyed/m" else ""

    def has_price(self, model: str) -> bool:
        return model != "free/m"


def evaluators_of(*evaluators: tuple[str, str, str], budget: float | None = None) -> Any:
    """Evaluators by what they are asked as, with their name and their model."""
    by_name = {asked: SimpleNamespace(name=name, model=model) for asked, name, model in evaluators}

    def find(asked: str, settings: object, models: object) -> Any:
        if asked == "nobody":
            raise UsageError("there is no evaluator nobody")
        return by_name[asked]

    request: Any = SimpleNamespace(evaluators=tuple(by_name), judge_settings={}, budget_usd=budget)
    directory: Any = Directory()
    return prepare.find_evaluators(request, find, directory)


def test_evaluators_have_names_of_their_own() -> None:
    assert list(evaluators_of(("a", "x", ""), ("b", "y", ""))) == ["a", "b"]
    assert refused(lambda: evaluators_of(("a", "x", ""), ("b", "x", ""), ("c", "y", ""))) == (
        "two evaluators are named x\nRename one: results are identified by name."
    )
    assert refused(lambda: evaluators_of(("nobody", "", ""), ("a", "x", ""), ("b", "x", ""))) == (
        "there is no evaluator nobody\n\n"
        "two evaluators are named x\nRename one: results are identified by name."
    )


def test_models_of_judges_exist_and_have_a_key_and_with_a_budget_a_price() -> None:
    def missing(model: str, *, has_budget: bool = False) -> list[str]:
        directory: Any = Directory()
        return prepare._missing(model, directory, has_budget=has_budget)

    assert missing("lost/m", has_budget=True) == ["there is no lost/m"]
    assert missing("keyed/m") == ["keyed/m needs a key, and A_KEY is not set\nSet it: export A_KEY=…"]
    assert missing("free/m") == missing("keyed/n", has_budget=True) == []
    assert missing("free/m", has_budget=True) == [
        "no price is known for free/m, so the budget cannot be enforced\nAdd it under `prices:` in the plan."
    ]


COMPLETE = {"batchEvaluationName": "probe", "evaluators": ["a"], "dataSourceConfig": {"store": {}}}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"batchEvaluationName": ""},
            "the evaluation has no name\nGive --name NAME, or batchEvaluationName in the plan.",
        ),
        (
            {"evaluators": []},
            "no evaluator was named\nGive --evaluator NAME; `proctor evaluators list` lists them.",
        ),
        (
            {"dataSourceConfig": {}},
            "no source of sessions was named\nGive --run, --files, --log-group or another source.",
        ),
    ],
)
def test_an_evaluation_needs_a_name_evaluators_and_sessions(changes: dict[str, Any], problem: str) -> None:
    prepare._check_complete(COMPLETE)
    assert refused(lambda: prepare._check_complete(COMPLETE | changes)) == problem


def test_a_name_that_is_none_is_quoted() -> None:
    text = refused(lambda: prepare._check_complete(COMPLETE | {"batchEvaluationName": "a b!"}))
    assert text.startswith("the name a b! ")


def test_evaluators_whose_sandbox_does_not_work_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(evaluators: Any, remarks: set[str]) -> list[tuple[str, str]]:
        remarks |= {f"{each} is confined" for each in evaluators if each == "good"}
        return [("there is no bubblewrap", "Install it.") for each in evaluators if each == "bad"]

    monkeypatch.setattr(prepare, "check_evaluators", check)
    good: Any = {"g": "good"}
    assert prepare.sandbox_remarks(good) == ("good is confined",)
    bad: Any = {"b": "bad"}
    assert refused(lambda: prepare.sandbox_remarks(bad)) == "`sandbox`: there is no bubblewrap\nInstall it."


@pytest.mark.parametrize(
    ("count", "sessions", "notes"),
    [
        (0, 1, ["1 session imported"]),
        (2, 0, ["skipped f0", "skipped f1", "0 sessions imported"]),
        (5, 2, [*(f"skipped f{number}" for number in range(5)), "2 sessions imported"]),
        (
            1007,
            2,
            [
                *(f"skipped f{number}" for number in range(5)),
                "… and 1,002 more that could not be read",
                "2 sessions imported",
            ],
        ),
    ],
)
def test_an_import_says_what_it_skipped(count: int, sessions: int, notes: list[str]) -> None:
    said: list[str] = []
    imported: Any = SimpleNamespace(
        unreadable=[f"f{number}" for number in range(min(count, 8))],
        unreadable_count=count,
        session_ids=["s"] * sessions,
    )
    ctx: Any = SimpleNamespace(info=said.append)
    prepare._report_import(imported, ctx)
    assert said == notes


def test_cloudwatch_fetches_log_groups() -> None:
    request: Any = SimpleNamespace(sessions=None)
    ctx: Any = SimpleNamespace()
    assert refused(lambda: prepare.import_cloudwatch(request, ctx)) == (
        "--cloudwatch fetches log groups\nName them: --log-group or --log-group-prefix."
    )


def test_the_workload_of_a_request_is_that_of_its_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    estimate = SimpleNamespace(workload={"work": 3}, item_count=4, cost_usd=0.5)
    monkeypatch.setattr(prepare, "estimate", lambda *given: calls.append(given) or estimate)
    pending: Any = SimpleNamespace(document={})
    plan = EvaluationJobPlan(pending)
    ctx: Any = "ctx"
    assert plan.workload(ctx) == {"work": 3}
    shown = plan.estimate(ctx)
    assert (shown.item_count, shown.cost_usd, shown.basis) == (
        4,
        0.5,
        "Based on the length of the sessions.",
    )
    assert calls == [(pending, "ctx")] * 2


def test_concurrency_of_a_request() -> None:
    def concurrency(document: dict[str, Any]) -> int:
        pending: Any = SimpleNamespace(document=document)
        return EvaluationJobPlan(pending).concurrency

    assert [concurrency({"concurrency": value}) for value in (1, 7)] == [1, 7]
    assert concurrency({}) == concurrency({"concurrency": 0}) == 8


# --- Ground truth ---


def test_examples_are_ground_truth_of_their_scenario() -> None:
    examples = [
        {"scenario_id": "a", "assertions": ["It is kind."], "turns": [{"input": "hi"}]},
        {"scenario_id": "b", "expected_trajectory": []},
        {
            "scenario_id": "c",
            "turns": [{"input": {"x": "é"}, "expected_response": "yes"}, {"expected_response": ""}],
        },
        {"scenario_id": "d", "turns": [{"input": "hi"}]},
        {"assertions": ["lost"]},
    ]
    dataset = ground_truth.dataset_of_examples("mine", examples)
    assert (dataset.name, len(dataset.digest)) == ("mine", 16)
    assert dataset.metadata == [
        {"testScenarioId": "a", "groundTruth": {"inline": {"assertions": ["It is kind."]}}},
        {"testScenarioId": "b", "groundTruth": {"inline": {"expectedTrajectory": []}}},
        {
            "testScenarioId": "c",
            "groundTruth": {
                "inline": {"turns": [{"input": '{"x": "é"}', "expectedResponse": "yes"}, {"input": ""}]}
            },
        },
    ]
    assert refused(lambda: ground_truth.dataset_of_examples("mine", examples[3:])) == (
        "the dataset mine has no ground truth\nIts examples need a `scenario_id`, and `assertions`, "
        "`expected_trajectory` or `expected_response` of their turns."
    )


# --- Alerts ---

CROSSING: Any = {
    "configId": "c1",
    "evaluator": "tidy",
    "dimension": "tone",
    "position": 120,
    "direction": "down",
    "at": "2026-03-01T12:00:00.000Z",
    "beforeMean": 0.9,
    "beforeLow": 0.8,
    "beforeHigh": 0.95,
    "afterMean": 0.25,
    "afterLow": 0.125,
    "afterHigh": 0.5,
    "afterSessions": 40,
}


def test_an_alert_has_its_numbers_and_one_sentence() -> None:
    document = alert_document("support", CROSSING)
    digest = document.pop("id")
    assert isinstance(digest, str) and len(digest) == 32
    assert document == {
        "kind": "drift",
        "watch": "support",
        "onlineEvaluationConfigId": "c1",
        "evaluator": "tidy",
        "dimension": "tone",
        "direction": "down",
        "at": "2026-03-01T12:00:00.000Z",
        "sessions": 120,
        "meanBefore": 0.9,
        "lowBefore": 0.8,
        "highBefore": 0.95,
        "meanAfter": 0.25,
        "lowAfter": 0.125,
        "highAfter": 0.5,
        "sessionsAfter": 40,
        "text": "support: tidy (tone) went down to 0.25 (0.125 to 0.5, 40 sessions), "
        "before 0.9 (0.8 to 0.95)",
    }
    bare = alert_document("s", {**CROSSING, "dimension": "", "beforeMean": None, "evaluator": "a<b>&c"})
    assert bare["text"] == "s: a&lt;b&gt;&amp;c went down to 0.25 (0.125 to 0.5, 40 sessions)"
    assert bare["id"] != digest
    assert alert_document("other", {**CROSSING, "afterMean": 0.3})["id"] == digest


def test_a_command_that_fails_or_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*command: str) -> None:
        store: Any = None
        alerts = Alerts(store, [], {"PATH": "/usr/bin:/bin"}, tmp_path)
        asyncio.run(alerts._run(command, alert_document("support", CROSSING)))

    run("/bin/sh", "-c", 'test "$PROCTOR_SESSIONS" = 120 && test "$PROCTOR_MEAN_AFTER" = 0.25')
    with pytest.raises(AlertFailed, match=r"^the command ended with exit code 3$"):
        run("/bin/sh", "-c", "exit 3")
    monkeypatch.setattr(drift, "ALERT_SECONDS", 0.05)
    with pytest.raises(AlertFailed, match=r"^the command did not end within 0\.05 s$"):
        run("/bin/sh", "-c", "exec sleep 30")


async def test_a_webhook_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(drift, "ALERT_SECONDS", 0.1)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AlertFailed, match=r"^the webhook did not answer within 0\.1 s$"):
            await drift._post(f"http://127.0.0.1:{port}/", {"id": "x"})


# --- Items and estimates ---


def session(**changes: Any) -> prepare.DiscoveredSession:
    usual: dict[str, Any] = {"id": "s1", "external_id": "x1", "source": "otlp", "service": "Calc"}
    usual |= {"log_group": "/calc", "model": "m", "content": "c0", "characters": 4000, "traces": 3}
    return prepare.DiscoveredSession(**usual | {"tool_calls": 5, "scenario": "add"} | changes)


def test_a_session_has_a_label_that_is_the_same_everywhere() -> None:
    assert session().label == "x1 of Calc in /calc"
    assert session(service="").label == "x1 in /calc"
    assert session(service="", log_group="").label == "x1"


def evaluator(level: str, model: str = "") -> Any:
    judge = SimpleNamespace(model=model) if model else None
    return SimpleNamespace(name=f"own-{level}", level=level, judge_model=judge)


def test_an_item_of_an_evaluation_names_its_session_evaluator_and_truth() -> None:
    request: Any = SimpleNamespace(
        judge_settings={"votes": 1}, retries=2, timeout_seconds=None, resources=None, sessions=None
    )
    judge = evaluator("trace", "judge/m")
    plain = prepare._item(request, session(scenario="", factors={"task": "t"}), "asked", judge, "d1", {})
    assert (plain.runner, plain.prompt, plain.model) == ("evaluation", "x1 of Calc in /calc", "judge/m")
    assert plain.details == {
        "evaluator": "own-trace",
        "evaluatorDigest": "d1",
        "level": "trace",
        "session": "x1",
        "source": "otlp",
        "content": "c0",
    }
    assert plain.settings == {
        "label": "own-trace",
        "session": "s1",
        "evaluator": "asked",
        "judging": {"votes": 1},
        "retries": 2,
    }
    assert plain.factors == {"task": "t", "evaluator": "own-trace", "service": "Calc", "model": "m"}
    request.timeout_seconds, request.resources = 9.0, {"gpu": 1}
    request.sessions = LogGroupSessions(names=("/calc",), traces={"x1": ("t1", "t2")})
    expected = {"testScenarioId": "subtract", "groundTruth": {"inline": {"assertions": ["a"]}}}
    full = prepare._item(request, session(factors={"model": "own"}), "asked", judge, "d1", expected)
    assert (full.settings["scenario"], full.settings["timeoutSec"], full.settings["resources"]) == (
        "subtract",
        9.0,
        {"gpu": 1},
    )
    assert full.details["traces"] == ["t1", "t2"] and len(str(full.details["reference"])) == 16
    assert (full.factors["scenario"], full.factors["model"]) == ("subtract", "own")
    other = prepare._item(request, session(external_id="x2"), "asked", judge, "d1", {})
    assert "traces" not in other.details and other.settings["scenario"] == "add"


class Prices:
    """A router that knows one price: a dollar a token, and ten a call."""

    def route(self, model: str) -> Any:
        if model == "lost/m":
            raise ModelError("there is no lost/m")

        def for_calls(calls: int, usage: Any) -> float:
            return float(10 * calls + usage.total_tokens)

        return SimpleNamespace(price=SimpleNamespace(for_calls=for_calls) if model == "a/m" else None)


def test_an_estimate_counts_results_calls_and_tokens() -> None:
    members = {
        "s": evaluator("session", "a/m"),
        "t": evaluator("trace", "b/m"),
        "c": evaluator("tool_call", "lost/m"),
        "f": evaluator("trace"),
    }
    request: Any = SimpleNamespace(votes=2)
    models: Any = Prices()
    rows = prepare._estimate_evaluators(
        request, members, [session(), session(traces=1, tool_calls=0)], models
    )
    own = 4000 // CHARACTERS_PER_TOKEN
    tokens = 2 * own + 600 * 2
    assert [(row.evaluator, row.model, row.targets, row.calls) for row in rows] == [
        ("own-session", "a/m", 2, 4),
        ("own-trace", "b/m", 4, 8),
        ("own-tool_call", "lost/m", 5, 10),
        ("own-trace", "", 4, 0),
    ]
    assert rows[0].tokens == tokens * 2 + 200 * 4 and rows[0].cost_usd == 40 + rows[0].tokens
    assert rows[1].tokens == (own * 2 + own + 600 * 4) * 2 + 200 * 8
    assert rows[2].tokens == (own * 3 + own // 2 + 600 * 5) * 2 + 200 * 10
    assert (rows[1].cost_usd, rows[2].cost_usd, rows[3].cost_usd, rows[3].tokens) == (None, None, 0.0, 0)
    assert rows[3].document == {
        "evaluator": "own-trace",
        "level": "trace",
        "model": None,
        "results": 4,
        "calls": 0,
        "tokens": 0,
        "costUsd": 0.0,
    }


def test_the_cost_of_an_evaluation_is_known_if_that_of_each_evaluator_is() -> None:
    def row(cost: float | None, model: str = "m") -> prepare.EvaluatorEstimate:
        return prepare.EvaluatorEstimate(
            evaluator="e", level="trace", model=model, targets=1, calls=1, tokens=1, cost_usd=cost
        )

    one = prepare.EvaluationEstimate(name="n", sessions=3, ignored=1, evaluators=[row(0.5), row(0.25, "o")])
    assert (one.item_count, one.cost_usd, list(one.workload.values())) == (6, 0.75, [3, 3])
    assert {name: value for name, value in one.document.items() if name != "evaluators"} == {
        "dryRun": True,
        "batchEvaluationName": "n",
        "sessions": 3,
        "ignored": 1,
        "itemCount": 6,
        "costUsd": 0.75,
    }
    assert (
        prepare.EvaluationEstimate(name="n", sessions=3, ignored=0, evaluators=[row(0.5), row(None)]).cost_usd
        is None
    )


def test_settings_of_the_folder_complete_a_request() -> None:
    def complete(section: dict[str, Any], document: dict[str, Any]) -> Any:
        ctx: Any = SimpleNamespace(settings_for=lambda folders: SimpleNamespace(evaluation=section))
        pending: Any = SimpleNamespace(folder=Path("/f"), document=document)
        return prepare._with_settings(pending, ctx)

    assert complete({}, {"a": 1}) == {"a": 1}
    section = {"judge": "a/b", "harmful_value": 0.0}
    assert complete(section, {"judge": "c/d"}) == {"judge": "c/d", "harmfulValue": 0.0}


def test_ground_truth_of_files_comes_before_that_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "truth.yaml").write_text("sessionMetadata: [{sessionId: s1, testScenarioId: a}]\n")
    document = {
        **COMPLETE,
        "groundTruth": ["truth.yaml", {"datasetId": "kept"}],
        "evaluationMetadata": {"sessionMetadata": [{"sessionId": "s2"}]},
        "dataSourceConfig": {"files": {"paths": ["x", "/y"], "kind": "auto"}},
    }
    pending = prepare.pending_request(document, folder=tmp_path, plan_path="p", plan_text="t")
    found = pending.document
    assert (pending.folder, pending.plan_path, pending.plan_text) == (tmp_path, "p", "t")
    metadata = found["evaluationMetadata"]["sessionMetadata"]
    assert [entry["sessionId"] for entry in metadata] == ["s1", "s2"]
    assert found["groundTruth"][0] == {"datasetId": "kept"} and len(found["groundTruth"]) == 2
    assert found["dataSourceConfig"] == {"files": {"paths": [f"{tmp_path}/x", "/y"], "kind": "auto"}}
    other = prepare.pending_request(document, folder=tmp_path, files_folder=Path("/other"))
    assert other.document["dataSourceConfig"]["files"]["paths"] == ["/other/x", "/y"]
    assert prepare.pending_request(COMPLETE, folder=tmp_path).document == COMPLETE


@pytest.mark.parametrize(
    ("scale", "documents", "dimension", "expected"),
    [
        ((1.0, 5.0), {}, "", (1.0, 5.0)),
        (None, {}, "", None),
        (None, {"e1": {"evaluatorName": "tidy", "labels": {"a": -1.0, "b": 2.0, "": None}}}, "", (-1.0, 2.0)),
        (None, {"e1": {"evaluatorName": "other", "labels": {"bad": -1.0, "good": 2.0}}}, "", None),
        (None, {"e1": {"evaluatorName": "tidy", "labels": {"bad": 1.0, "good": 1.0}}}, "", None),
        (None, {"e1": {"evaluatorName": "tidy", "tone": {"low": 3.0, "high": 4.0}}}, "tone", (3.0, 4.0)),
    ],
)  # fmt: skip
def test_the_scale_of_an_evaluator_is_that_of_its_labels(
    scale: Any, documents: dict[str, Any], dimension: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "ratings_of", lambda document, dimension: document[dimension or "labels"])
    store: Any = SimpleNamespace(definitions=SimpleNamespace(document=documents.get))
    config: Any = {"document": {"evaluators": [{"evaluatorId": "e1"}, {"evaluatorId": "e2"}]}}
    watch: Any = SimpleNamespace(scale=scale)
    key = LineKey("c1", "tidy", dimension)
    assert drift.scale_of(store, config, key, watch) == expected
    if scale is None:
        assert drift.scale_of(store, config, key, None) == expected


def test_the_scale_of_a_built_in_evaluator_is_its_own() -> None:
    store: Any = SimpleNamespace(definitions=SimpleNamespace(document=lambda name: None))
    config: Any = {"document": {"evaluators": [{"evaluatorId": "Builtin.Helpfulness"}]}}
    assert drift.scale_of(store, config, LineKey("c1", "Builtin.Helpfulness", ""), None) == (0.0, 1.0)
    assert drift.scale_of(store, config, LineKey("c1", "Builtin.Correctness", ""), None) is None


def test_what_counts_as_a_change() -> None:
    usual = drift.drift_settings(None, None)
    assert (usual.lo, usual.hi) == (0.0, 1.0)
    watch: Any = SimpleNamespace(alpha=0.05, margin=0.1, reference=1)
    own = drift.drift_settings(watch, (1.0, 5.0))
    assert (own.lo, own.hi, own.alpha, own.margin, own.reference) == (1.0, 5.0, 0.05, 0.1, 1.0)
    watch.reference = None
    assert drift.drift_settings(watch, None).reference is None


@pytest.mark.parametrize(
    ("attempts", "wait"), [(1, drift.FIRST_RETRY), (2, 2 * drift.FIRST_RETRY), (3, 4 * drift.FIRST_RETRY)]
)
def test_an_alert_is_tried_again_after_twice_the_time(tmp_path: Path, attempts: int, wait: Any) -> None:
    settled: list[Any] = []
    alerts = Alerts.__new__(Alerts)
    alerts._store = SimpleNamespace(  # type: ignore[assignment]
        drift=SimpleNamespace(settle_alert=lambda *given, **named: settled.append((given, named)))
    )
    crossing: Any = {"attempts": attempts}
    alerts._retry(crossing, "why", NOW)
    assert settled == [((crossing, drift.PENDING), {"next_at": NOW + wait, "problem": "why"})]
    last: Any = {"attempts": drift.MOST_ATTEMPTS}
    alerts._retry(last, "why", NOW)
    assert settled[-1] == ((last, drift.FAILED), {"problem": "why"})
    almost: Any = {"attempts": drift.MOST_ATTEMPTS - 1}
    alerts._retry(almost, "why", NOW)
    assert settled[-1][1]["next_at"] <= NOW + drift.LONGEST_RETRY


def line(**changes: Any) -> drift.DriftLine:
    usual: dict[str, Any] = {"config_id": "c1", "name": "n", "evaluator": "tidy", "dimension": ""}
    usual |= {"sessions": 1200, "updated_at": "", "points": (), "crossings": ()}
    return drift.DriftLine(**usual | changes)


def test_the_state_of_a_line_in_words() -> None:
    assert (line().title, line(dimension="tone").title) == ("tidy", "tidy · tone")
    assert line().state == "No change in 1,200 sessions."
    first = {**CROSSING, "beforeMean": None, "direction": "up", "position": 50}
    assert line(crossings=[first]).state == "Went up to 0.25 (detected at session 50)."
    both = line(crossings=[first, {**CROSSING, "position": 1200}])
    assert both.state == "Went down from 0.9 to 0.25 (detected at session 1,200)."


def test_a_line_is_drawn_with_at_most_two_hundred_points(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        drift.charts, "line", lambda title, points, **more: drawn.append((points, more)) or "svg"
    )
    assert drift.drift_chart(line()) == ""
    at = "2026-03-01T12:00:00.000Z"
    points: Any = [
        {"position": n + 1, "at": at, "mean": float(n % 2), "low": 0.0, "high": 1.0} for n in range(401)
    ]
    points[200] |= {"low": 0.75, "high": 0.25}
    crossings: Any = [{**CROSSING, "position": 2}, {**CROSSING, "position": 3}]
    assert drift.drift_chart(line(points=points, crossings=crossings)) == "svg"
    found, more = drawn.pop()
    assert len(found) == 134 and [each.x for each in found[:2]] == [3, 6] and found[-1].x == 401
    assert (found[0].y, found[0].low, found[0].high) == (pytest.approx(1 / 3), 0.0, 1.0)
    assert (found[66].x, found[66].low, found[66].high) == (201, None, None)
    assert list(more["events"]) == [3.0]
    assert drift.drift_chart(line(points=points[:200])) == "svg" and len(drawn.pop()[0]) == 200


# --- Results ---


def test_a_judged_session_is_known_by_the_name_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"target": "t", "value": 0.5, "label": "l", "explanation": "why", "error": ""}
    rows = [
        {"externalId": "x1", "details": '{"session": "d1"}', "judgedSessionId": "s1", **usual},
        {"externalId": None, "details": '{"session": "d2"}', "judgedSessionId": "s2", **usual},
        {"externalId": None, "details": "{}", "judgedSessionId": "s3", **usual},
    ]
    asked: list[Any] = []
    monkeypatch.setattr(
        results, "result_targets", lambda *given, **named: asked.append((given[1:], named)) or rows
    )
    one: Any = SimpleNamespace(evaluator="e", digest="d", dimension="m")
    read: Any = None
    found = results.failed_targets(read, "r", one)
    assert [(each.session, each.session_id) for each in found] == [("x1", "s1"), ("d2", "s2"), ("s3", "s3")]
    assert (found[0].target, found[0].value, found[0].label, found[0].explanation) == ("t", 0.5, "l", "why")
    assert asked == [(("r", "failed", ("e", "d", "m")), {"limit": 10})]


@pytest.mark.parametrize(
    ("high_is_bad", "worst", "best", "expected"),
    [
        (False, [0.1, 0.2, 0.9], 0.9, [0.1, 0.2]),
        (True, [0.9, 0.2, 0.1], 0.1, [0.9, 0.2]),
        (False, [0.5] * 5, 0.5, [0.5] * 3),
    ],
)
def test_the_worst_results_leave_out_the_best_value(
    high_is_bad: bool, worst: list[float], best: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"highest" if high_is_bad else "lowest": worst, "lowest" if high_is_bad else "highest": [best]}
    monkeypatch.setattr(
        results,
        "_targets",
        lambda read, run_id, result, which, limit: [SimpleNamespace(value=value) for value in kinds[which]],
    )
    one: Any = SimpleNamespace(high_is_bad=high_is_bad)
    read: Any = None
    assert [each.value for each in results.worst_targets(read, "r", one)] == expected


def test_unused_ground_truth_is_named_by_its_evaluators() -> None:
    everybody = [("a", ["turns", "assertions"]), ("b", ["turns"])]
    assert list(results._unused_ground_truth(everybody)) == [
        "Unused ground truth: assertions by a; turns by any evaluator"
    ]
    assert list(results._unused_ground_truth([])) == []
    names = ["a", "b", "c", "d", "e", "f"]
    assert results._shortened(names[:4]) == "a, b, c, d"
    assert results._shortened(names) == "a, b, c, d and 2 more"


def test_evaluators_have_arns() -> None:
    job = "arn:aws:bedrock-agentcore:eu:1:batch-evaluate/x"
    own = "arn:aws:bedrock-agentcore:::evaluator/Builtin.Helpfulness"
    assert results.evaluator_arn(job, "Builtin.Helpfulness") == own
    assert results.evaluator_arn(job, "ThirdParty.X") == "arn:aws:bedrock-agentcore:::evaluator/ThirdParty.X"
    assert results.evaluator_arn(job, "mine") == "arn:aws:bedrock-agentcore:eu:1:evaluator/mine"


def average(value: float | None, *, low: float | None = None, n: int = 2, high_is_bad: bool = False) -> Any:
    return SimpleNamespace(
        average=SimpleNamespace(value=value, low=low, high=0.75, n=n), high_is_bad=high_is_bad
    )


def test_averages_in_words_the_worst_first() -> None:
    rows = [average(None), average(0.5), average(0.25), average(0.75, high_is_bad=True)]
    assert [each.average.value for each in sorted(rows, key=results._worst_first)] == [0.75, 0.25, 0.5, None]
    assert results._average_text(average(0.5).average) == "0.500"
    assert results._average_text(average(0.5, low=0.25).average) == "0.500 (0.250 to 0.750)"
    assert results._average_text(average(None).average) == "labels only"
    assert results._average_text(average(None, n=0).average) == "–"
