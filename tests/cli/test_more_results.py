"""Rankings of a benchmark, waiting for an evaluation, files that cannot be read, and folders of branches."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli import bench, evaluate, runs, scenario, simulate
from proctor.cli.main import main
from proctor.cli.report import AnalyzeRequest
from proctor.errors import UsageError


def model(name: str, **changes: Any) -> dict[str, Any]:
    rate = {"value": 0.5, "low": None, "high": None, "n": 4}
    usual: dict[str, Any] = {"model": name, "counts": {"success": 2, "error": 0}, "success_rate": rate}
    usual |= {"success_rate_with_errors": {"value": 0.25}, "completion_time": {"value": 3.0}}
    usual |= {"prompts_sent": {"value": 1.5}, "human_interventions": {"value": None}, "total_tokens": 0}
    return usual | {"cost_usd": None} | changes


def test_the_ranking_of_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    after = {"value": 1.0, "low": None, "high": None, "n": 2}
    models = [
        model("a", total_tokens=1500, cost_usd=0.25, success_rate_after_cutoff=after),
        model("b", counts={"success": 1, "error": 1}),
    ]
    places = [{"model": "a", "rank": 1}, {"model": "b", "rank": 2}]
    tied = [{"model": "a", "rank": 1}, {"model": "b", "rank": 1}]
    names = ("most_successful", "fastest", "best_value", "least_intervention", "most_efficient")
    ranks = dict.fromkeys(names, places) | {"fastest": tied, "best_value": []}
    bench._show({"models": models, "interval_scope": "tasks like these", "ranks": ranks})
    printed = capsys.readouterr()
    heading, first, second, cutoff, *best = printed.out.splitlines()
    assert heading.split()[:3] == ["MODEL", "SUCCESS", "RATE"]
    assert first.split() == ["a", "2/4", "50%", "3", "s", "1.5", "–", "1,500", "$0.25"]
    assert second.split() == ["b", "1/4", "50%", "1", "25%", "3", "s", "1.5", "–", "0", "–"]
    assert cutoff == "a: 100% of 2 runs after the end of its training data"
    assert best == [
        "Most Successful: a",
        "Fastest:         a, b  (tied)",
        "Most Autonomous: a",
        "Most Efficient:  a",
    ]
    assert printed.err == "Rates over tasks, with 95% CIs for tasks like these.\n"


@pytest.mark.parametrize(
    ("states", "moments", "pauses"),
    [
        (["COMPLETED"], [0.0], 0),
        (["PENDING", "PENDING", "IN_PROGRESS"], [0.0, 1.0, 2.0], 2),
        # It is watched, too, if no process has taken it up after half a minute.
        (["PENDING", "PENDING"], [0.0, 29.9, 30.0], 1),
    ],
)
def test_watching_waits_for_the_process_of_a_pending_evaluation(
    states: list[str],
    moments: list[float],
    pauses: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, slept, watched = list[Any](), list[float](), list[Any]()

    def find(store: Any, name: str, now: Any) -> Any:
        assert (store, now) == ("store", "now")
        asked.append(name)
        return SimpleNamespace(id="nightly-x", state=states.pop(0), run_id="run")

    left = iter(moments)
    ctx = SimpleNamespace(store="store", now=lambda: "now", monotonic=lambda: next(left))
    monkeypatch.setattr(evaluate, "terminal_context", lambda options: nullcontext(ctx))
    monkeypatch.setattr(evaluate, "evaluation_of", find)
    monkeypatch.setattr(evaluate, "PENDING", "PENDING")
    monkeypatch.setattr(evaluate, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(
        runs, "watch", lambda context, run_id, as_json: watched.append((run_id, as_json)) or 5
    )
    assert main(["evaluate", "watch", "night", "--json"]) == 5
    assert asked == ["night", *["nightly-x"] * pauses] and slept == [0.1] * pauses
    assert watched == [("run", True)] and not states


def test_an_analysis_names_files_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = AnalyzeRequest(report=False, metric="", as_json=False)
    (tmp_path / "batch_summary.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError):
        simulate.analyze_simulation(tmp_path, request)
    sides = {
        side: {"model": "a/x", "profile": "p", "parameters": {}, "role": side, "options": {}, "digest": "d"}
        for side in ("client", "therapist")
    }
    session = {
        "messages": [{"role": "client", "content": "Hi."}],
        "client": "eeyore",
        "therapist": "MI",
        "run_id": 0,
        "combination": "eeyore_MI",
        "num_turns": 3,
        "status": "success",
        "roles": sides,
        "usage": {},
        "scores": [],
        "states": [],
        "record": {},
    }
    (tmp_path / "eeyore_MI_run0.json").write_text(json.dumps(session))
    capsys.readouterr()
    analysis = simulate.analyze_simulation(tmp_path, request)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"skipped {tmp_path / 'broken.json'}: ") or lines[0].startswith(
        "skipped broken.json: "
    )
    assert lines[-1] == "1 file in the folder could not be read and were skipped."
    assert [path.name for path in analysis.files] == ["variance.json"]


@pytest.mark.parametrize(("words", "output"), [([], None), (["--output", "mine"], "mine")])
def test_a_branch_has_a_folder_of_its_own(
    words: list[str], output: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []
    point = SimpleNamespace(run=SimpleNamespace(label="var-001-run-002"))
    monkeypatch.setattr(scenario, "find_branch_point", lambda store, source: calls.append(source) or point)
    monkeypatch.setattr(
        scenario, "branch_plan", lambda found, target, **named: calls.append((found, target, named)) or "plan"
    )
    monkeypatch.setattr(
        scenario, "_start", lambda plan, ctx, options: calls.append((plan, options.as_json)) or 5
    )
    assert main(["scenario", "branch", "a", "--at-turn", "2", "--seed", "3", "--set", "turns=8", *words]) == 5
    source, (found, target, named), started = calls
    assert (source, found, started) == ("a", point, ("plan", False))
    assert named == {"turn": 2, "changes": {"turns": 8}, "seed": 3}
    if output:
        assert target == tmp_path / output
    else:
        assert target.parent == tmp_path / "runs" and target.name.startswith("var-001-run-002-branch-20")
