"""`proctor evaluate`: the request that flags make, what is executed, and what is printed."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.batch import lifecycle
from proctor.cli import evaluate
from proctor.cli.evaluate import Flags
from proctor.cli.main import main
from proctor.cli.run import CostAndTime, OutputOptions
from proctor.context import EngineOptions
from proctor.errors import UsageError
from proctor.stats.evaluation import Insight

PERIOD = {"startTime": "2026-01-01", "endTime": "2026-01-02"}


@pytest.mark.parametrize(
    ("flags", "planned", "source"),
    [
        (Flags(), {}, {}),
        (Flags(), {"store": {"runIds": ["r"]}}, {}),
        (Flags(runs=["r"], roles=["x"]), {}, {"store": {"runIds": ["r"], "roles": ["x"]}}),
        (Flags(jobs=["j"], models=["m"]), {}, {"store": {"jobs": ["j"], "models": ["m"]}}),
        (Flags(runs=["r"]), {"files": {"paths": ["f"]}}, {"store": {"runIds": ["r"]}}),
        (Flags(session_ids=["s"]), {}, {"store": {"sessionIds": ["s"]}}),
        (Flags(start="2026-01-01"), {}, {"store": {"timeRange": {"startTime": "2026-01-01"}}}),
        (Flags(end="2026-01-02"), {}, {"store": {"timeRange": {"endTime": "2026-01-02"}}}),
        (Flags(files=["f"]), {}, {"files": {"paths": ["f"], "kind": "auto"}}),
        (Flags(files=["f"], kind="otlp"), {}, {"files": {"paths": ["f"], "kind": "otlp"}}),
        (Flags(), {"files": {"paths": ["f"]}}, {}),
        (Flags(log_groups=["g"]), {}, {"cloudWatchLogs": {"logGroupNames": ["g"]}}),
        (Flags(services=["s"]), {}, {"cloudWatchLogs": {"serviceNames": ["s"]}}),
        (
            Flags(log_group_prefixes=["p"], session_ids=["s"], start="2026-01-01", end="2026-01-02"),
            {},
            {
                "cloudWatchLogs": {
                    "logGroupNamePrefixes": ["p"],
                    "filterConfig": {"sessionIds": ["s"], "timeRange": PERIOD},
                }
            },
        ),
        # Filters alone narrow the source of the plan.
        (
            Flags(session_ids=["s"]),
            {"store": {"runIds": ["r"]}},
            {"store": {"runIds": ["r"], "sessionIds": ["s"]}},
        ),
        (
            Flags(end="2026-01-02"),
            {"store": {"timeRange": {"startTime": "2026-01-01", "endTime": "2027"}}},
            {"store": {"timeRange": PERIOD}},
        ),
        (
            Flags(session_ids=["s"]),
            {
                "cloudWatchLogs": {
                    "logGroupNames": ["g"],
                    "filterConfig": {"sessionTraceIds": ["t"], "timeRange": PERIOD},
                }
            },
            {
                "cloudWatchLogs": {
                    "logGroupNames": ["g"],
                    "filterConfig": {"timeRange": PERIOD, "sessionIds": ["s"]},
                }
            },
        ),
        (
            Flags(start="2026-01-01"),
            {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": "a"}},
            {
                "onlineEvaluationConfigSource": {
                    "onlineEvaluationConfigArn": "a",
                    "timeRange": {"startTime": "2026-01-01"},
                }
            },
        ),
    ],
)
def test_the_source_of_sessions_on_the_command_line(flags: Flags, planned: Any, source: Any) -> None:
    assert evaluate._source(flags, planned) == source


@pytest.mark.parametrize(
    ("flags", "planned", "problem"),
    [
        (Flags(runs=["r"], files=["f"]), {}, "not from runs of this store and files"),
        (Flags(services=["s"], models=["m"]), {}, "not from log groups and runs of this store"),
        (Flags(kind="otlp"), {}, "--kind is the import format of files"),
        (Flags(kind="otlp", runs=["r"]), {}, "--kind is the import format of files"),
        (Flags(files=["f"], session_ids=["s"]), {}, "files are evaluated whole"),
        (Flags(files=["f"], end="2026"), {}, "files are evaluated whole"),
        (Flags(start="2026"), {"files": {"paths": ["f"]}}, "files are evaluated whole"),
        (
            Flags(session_ids=["s"]),
            {"onlineEvaluationConfigSource": {}},
            "--session-id does not apply to an online configuration",
        ),
    ],
)
def test_sources_that_do_not_go_together_are_refused(flags: Flags, planned: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        evaluate._source(flags, planned)


def test_flags_take_precedence_over_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        evaluate, "pending_request", lambda document, **named: asked.append((document, named)) or "pending"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    plan = Path("plans/nightly.yaml")
    plan.write_text(
        "batchEvaluationName: nightly\nevaluators: [Builtin.Refusal]\nvotes: 3\njudge: scripted/ok\n"
        "dataSourceConfig: {store: {runIds: [r]}}\n"
    )
    store: Any = object()
    flags = Flags(top={"votes": 5, "judge": None}, evaluators=["Builtin.Correctness"], session_ids=["s"])
    assert evaluate.read_request(plan, flags, store) == "pending"
    document, named = asked.pop()
    assert document == {
        "batchEvaluationName": "nightly",
        "evaluators": ["Builtin.Correctness"],
        "votes": 5,
        "judge": "scripted/ok",
        "dataSourceConfig": {"store": {"runIds": ["r"], "sessionIds": ["s"]}},
    }
    folder = tmp_path.resolve() / "plans"
    assert named == {
        "folder": folder,
        "plan_path": str(folder / "nightly.yaml"),
        "plan_text": plan.read_text(),
        "ground_truth": (),
        "files_folder": folder,
        "store": store,
    }
    # Files of the command line are below the current folder, those of a plan beside it.
    plan.write_text("batchEvaluationName: nightly\n")
    evaluate.read_request(plan, Flags(files=["f"], ground_truth=[Path("t")]), store)
    document, named = asked.pop()
    assert (named["folder"], named["files_folder"], named["ground_truth"]) == (folder, tmp_path, [Path("t")])
    evaluate.read_request(None, Flags(), store)
    document, named = asked.pop()
    assert document == {} and (named["plan_path"], named["plan_text"]) == ("", "")
    assert named["folder"] == named["files_folder"] == tmp_path


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Replaces what executes evaluations; the arguments of the last call of each function."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    state = SimpleNamespace(
        id="nightly-x", is_new=True, is_finished=False, state="IN_PROGRESS", run_id="nightly-x"
    )
    values = {
        "evaluation_of": state,
        "read_request": SimpleNamespace(folder=tmp_path / "plans"),
        "_extension": SimpleNamespace(folder=tmp_path / "extended"),
        "extend_evaluation": state,
        "prepare": SimpleNamespace(request="request"),
        "import_cloudwatch": None,
        "open_prepared": state,
        "run_command": 7,
        "_print_state": 6,
    }
    calls: dict[str, Any] = {"state": state}

    def replace(name: str, value: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            calls[name] = (*arguments, named)
            return value

        return called

    for name, value in values.items():
        monkeypatch.setattr(evaluate, name, replace(name, value))
    monkeypatch.setattr(lifecycle, "resume", replace("resume", "resumed"))
    return calls


def test_an_evaluation_is_opened_and_executed(replaced: dict[str, Any]) -> None:
    words = ["evaluate", "start", "plan.yaml", "--workers", "2", "--ray-address", "there", "--json"]
    assert main([*words, "--run", "r", "--votes", "3"]) == 7
    plan, flags, _, _ = replaced["read_request"]
    assert (plan, list(flags.runs), flags.top["votes"], flags.top["judge"]) == (
        Path("plan.yaml"),
        ["r"],
        3,
        None,
    )
    prepared, ctx, named = replaced["open_prepared"]
    assert (prepared.request, named) == ("request", {"is_detached": False})
    assert ctx.engine == EngineOptions("local", "there")
    job, run_id, context, named = replaced["resume"]
    assert (job, run_id, context, named["workers"]) == (evaluate.JOB, "nightly-x", ctx, 2)
    output = OutputOptions(as_json=True)
    assert replaced["run_command"] == (ctx, "resumed", output, {"present": evaluate.present})
    assert named["observer"]._output == output
    assert "import_cloudwatch" not in replaced and "extend_evaluation" not in replaced

    assert main(["evaluate", "start", "--log-group", "g", "--cloudwatch"]) == 7
    assert replaced["import_cloudwatch"][:2] == ("request", replaced["open_prepared"][1])


def test_an_evaluation_with_the_token_of_another_is_only_shown(
    replaced: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    replaced["state"].is_new = False
    assert main(["evaluate", "start", "--json"]) == 6
    assert replaced["_print_state"] == (replaced["state"], True, {})
    assert capsys.readouterr().err == "nightly-x was started with this token before\n"
    assert "resume" not in replaced


def test_an_evaluation_is_extended_or_executed_again(
    replaced: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "start", "--resume", "night", "--evaluator", "e"]) == 7
    state = replaced["state"]
    assert replaced["evaluation_of"][1] == "night"
    assert replaced["_extension"][:2] == (state, None) and list(replaced["_extension"][2].evaluators) == ["e"]
    earlier, pending, _, _ = replaced["extend_evaluation"]
    assert earlier is state and pending.folder.name == "extended"
    assert "open_prepared" not in replaced and "read_request" not in replaced
    for words in (["--resume", "x"], ["--cloudwatch"]):
        assert main(["evaluate", "start", "--dry-run", *words]) == 2
        assert "--dry-run cannot be combined" in capsys.readouterr().err

    words = ["evaluate", "run", "night", "--workers", "3", "--ray-address", "there", "--json"]
    assert main(words) == 7
    ctx = replaced["run_command"][0]
    assert ctx.engine == EngineOptions("local", "there") and replaced["resume"][3]["workers"] == 3
    assert replaced["run_command"][2] == OutputOptions(as_json=True)
    state.is_finished = True
    for name, code in (("COMPLETED", 0), ("FAILED", 1)):
        state.state = name
        assert main(words) == code
        assert capsys.readouterr().err == f"nightly-x is {name}; `proctor resume` resumes it\n"


def test_a_detached_evaluation_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[Any] = []

    def launcher(**named: Any) -> Any:
        launched.append(named)
        return SimpleNamespace(launch=lambda *arguments: launched.append(arguments))

    monkeypatch.setattr(evaluate, "Launcher", launcher)
    monkeypatch.setattr(evaluate, "_print_state", lambda *arguments: launched.append(arguments) or 6)
    ctx: Any = SimpleNamespace(
        settings=SimpleNamespace(store_url="store-url", user_environment={"A": "b", "PROCTOR_HOME": "other"}),
        home=tmp_path / "home",
        store=SimpleNamespace(data_keys=SimpleNamespace(is_encrypted=True)),
        engine=EngineOptions("ray", "there"),
    )
    evaluation: Any = SimpleNamespace(id="nightly-x")
    output = OutputOptions(as_json=True)
    assert evaluate._execute_or_detach(ctx, evaluation, tmp_path / "f", output, 4, detach=True) == 6
    made, (request, name), shown = launched
    assert made == {
        "environment": {"A": "b", "PROCTOR_STORE": "store-url", "PROCTOR_HOME": str(tmp_path / "home")},
        "folder": tmp_path / "f",
        "logs": tmp_path / "home" / "evaluations",
        "is_encrypted": True,
    }
    assert (request.job, request.run_id, request.workers, name) == ("evaluation", "nightly-x", 4, "nightly-x")
    assert (request.engine, request.only_unfinished) == (EngineOptions("ray", "there"), True)
    assert shown == (evaluation, True)
    assert capsys.readouterr().err == "Status:  proctor evaluate get nightly-x\n"


# --- What is printed ---


def result(**changes: Any) -> Any:
    usual: dict[str, Any] = {"title": "e", "level": "TRACE", "evaluated": 1234, "failed": 0, "cost_usd": None}
    usual |= {"labels": {"a": 4, "b": 3, "c": 2, "d": 1}, "correction": ""}
    usual |= {"average": SimpleNamespace(value=0.5, low=0.25, high=0.75)}
    return SimpleNamespace(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ("e", "TRACE", "0.500", "0.250 to 0.750", "1,234", "", "a 4, b 3, c 2", "")),
        (
            {"average": SimpleNamespace(value=None, low=None, high=None), "failed": 2000, "cost_usd": 0.0},
            ("e", "TRACE", "–", "", "1,234", "2,000", "a 4, b 3, c 2", "$0.00"),
        ),
    ],
)
def test_the_result_of_an_evaluator_is_a_row(changes: dict[str, Any], cells: tuple[str, ...]) -> None:
    assert evaluate._cells(result(**changes)) == cells


def test_a_correction_stands_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    results: Any = SimpleNamespace(summaries=[result(correction="0.4 corrected"), result(title="f")])
    evaluate.print_results(results)
    assert capsys.readouterr().out.splitlines()[3:] == ["e: 0.4 corrected"]
    evaluate.print_insights([])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, ("x", "COMPLETED", "2026-03-01 12:00", "7", "", "a, b", "")),
        (
            {"is_locked": True, "failed": 2, "cost_usd": 0.0},
            ("x", "COMPLETED", "2026-03-01 12:00", "7", "2", "(encrypted)", "$0.00"),
        ),
    ],
)
def test_an_evaluation_is_a_row_of_the_list(changes: dict[str, Any], row: tuple[str, ...]) -> None:
    both: dict[str, Any] = {"is_locked": False, "failed": 0, "cost_usd": None} | changes
    evaluation: Any = SimpleNamespace(
        id="x",
        state="COMPLETED",
        created_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        is_locked=both["is_locked"],
        evaluators=["a", "b"],
    )
    results: Any = SimpleNamespace(total=7, failed=both["failed"], cost_usd=both["cost_usd"])
    assert evaluate._listed(evaluation, results) == row


def test_an_estimate_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    evaluators = [
        SimpleNamespace(evaluator="e", calls=2, model="m", targets=1, tokens=1500, cost_usd=0.25),
        SimpleNamespace(evaluator="f", calls=0, model="", targets=3, tokens=0, cost_usd=None),
    ]
    estimate: Any = SimpleNamespace(
        evaluators=evaluators, remarks=["r"], ignored=0, item_count=1, sessions=2, document={"a": 1}
    )
    forecast = CostAndTime(["about 3 s"], {"b": 2})
    assert evaluate._print_estimate(estimate, forecast, as_json=False) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "e: 1 result, 2 calls of m, about 1,500 tokens, $0.25",
        "f: 3 results, no model calls",
    ]
    assert printed.err.splitlines() == [
        "note: r",
        "about 3 s",
        "2 sessions, 1 item. Dry run: nothing was started.",
    ]
    estimate.ignored = 1000
    evaluate._print_estimate(estimate, forecast, as_json=False)
    assert "2 sessions (1,000 older ones ignored), 1 item." in capsys.readouterr().err


def line(points: int, crossings: list[dict[str, Any]]) -> Any:
    at = "2026-03-01T12:00:00Z"
    return SimpleNamespace(
        name="support",
        title="politeness",
        state="stable",
        points=[
            {"position": 1000 + number, "at": at, "mean": 0.5, "low": 0.25, "high": 1.0}
            for number in range(points)
        ],
        crossings=[{"at": at, "alert": "none", "problem": "", **each} for each in crossings],
    )


def test_scores_over_time_are_printed_with_the_latest_ten_points(
    replaced: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from proctor.jobs.evaluation import drift

    crossings = [
        {"direction": "down", "position": 1200},
        {"direction": "up", "position": 3, "alert": "failed", "problem": "no\nserver"},
    ]
    asked: list[Any] = []
    lines = [line(12, crossings), line(0, [{"direction": "down", "position": n} for n in range(12)])]
    monkeypatch.setattr(drift, "drift_lines", lambda store, name: asked.append(name) or lines)
    assert main(["evaluate", "drift", "support"]) == 0
    assert asked == ["support"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "support  politeness  stable" and printed[1].split()[0] == "SESSIONS"
    assert [row.split()[0] for row in printed[2:12]] == [f"1,{number:03}" for number in range(2, 12)]
    assert printed[2].split()[-4:] == ["0.500", "0.250", "to", "1.000"]
    assert printed[12:15] == [
        "  down at session 1,200, 2026-03-01T12:00:00Z",
        "  up at session 3, 2026-03-01T12:00:00Z, alert failed (no server)",
        "support  politeness  stable",
    ]
    assert [row.split()[3] for row in printed[15:]] == [f"{number}," for number in range(2, 12)]


def test_findings_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    insight: Any = SimpleNamespace(insight="failures", found="late", sessions=["s1", "s2"], example="ex")
    evaluate.print_insights([insight])
    assert [row.split() for row in capsys.readouterr().out.splitlines()] == [
        [],
        ["INSIGHT", "FINDING", "COUNT", "SESSIONS", "EXAMPLE"],
        ["failures", "late", "2", "s1,", "s2", "ex"],
    ]
    assert evaluate._insight_members([]) == {}
    found = Insight(insight="failures", found="late", sessions=("s1",), example="ex")
    assert evaluate._insight_members([found]) == {
        "insightsFound": [{"insight": "failures", "found": "late", "example": "ex", "sessions": ("s1",)}]
    }
