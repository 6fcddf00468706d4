"""Tables of an evaluation's results, retries of alerts, and checks of tasks, by value."""

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filled import NOW
from proctor.errors import NotFound
from proctor.jobs.benchmark import checking
from proctor.jobs.evaluation import drift, results
from proctor.jobs.evaluation.drift import Alerts
from proctor.stats.evaluation import EvaluatorResult
from proctor.stats.intervals import Estimate


def result(title: str, value: float | None, **changes: Any) -> EvaluatorResult:
    average = changes.pop("average", None) or Estimate(value=value, n=4)
    usual: dict[str, Any] = {
        "evaluator": title,
        "asked_as": f"asked {title}",
        "digest": "d",
        "level": "trace",
    }
    return EvaluatorResult(**usual | {"average": average, "evaluated": 1234} | changes)


def test_the_worst_average_comes_first_and_those_without_one_last(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = result("low", 0.2), result("high", 0.9)
    none, zero = result("none", None), result("zero", 0.0)
    harmful = SimpleNamespace(average=Estimate(value=0.9), high_is_bad=True)
    ranks = [results._worst_first(each) for each in (low, high, none, zero, harmful)]  # type: ignore[arg-type]
    assert ranks == [(False, 0.2), (False, 0.9), (True, 0.0), (False, 0.0), (False, -0.9)]


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(value=None, n=0), results.UNKNOWN),
        (Estimate(value=None, n=1), "labels only"),
        (Estimate(value=0.5, n=4), "0.500"),
        (Estimate(value=0.5, low=0.25, high=0.75, n=4), "0.500 (0.250 to 0.750)"),
    ],
)
def test_an_average_in_words(estimate: Estimate, text: str) -> None:
    assert results._average_text(estimate) == text


@pytest.mark.parametrize(
    ("low", "high", "limits"),
    [(0.0, 1.0, (0.0, 1.0)), (-0.1, 1.0, None), (0.0, 1.1, None), (None, None, (0.0, 1.0))],
)
def test_averages_of_shares_are_drawn_between_0_and_1(
    low: float | None, high: float | None, limits: tuple[float, float] | None
) -> None:
    one = result("a", 0.5, average=Estimate(value=0.5, low=low, high=high, n=4), failed=2000)
    table = results._averages_table([one, result("b", None)])
    assert table.columns[1].limits == limits
    first, second = table.rows
    assert [cell.text for cell in first[2:]] == ["higher", "1,234", "2,000"] and second[4].text == "–"
    assert first[0].figure is not None and first[0].figure.value is None
    assert first[1].figure is not None and first[1].figure.value == 0.5 and second[1].figure is None
    assert first[1].figure.items == {"factor": ["evaluator=asked a"]}


def test_the_worst_results_of_an_evaluator_are_a_table() -> None:
    targets: list[Any] = [
        SimpleNamespace(session="x", session_id="s", value=0.25, label="Bad", explanation="a\nb", error=""),
        SimpleNamespace(session="y", session_id=None, value=None, label="", explanation="", error="broken"),
    ]
    table = results._worst_table(result("a", 0.5), targets)
    assert table.title == "Lowest a"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["x", "0.250", "Bad", "a b"],
        ["y", results.UNKNOWN, results.UNKNOWN, "broken"],
    ]
    assert [row[0].session for row in table.rows] == ["s", ""]
    harmful: Any = SimpleNamespace(title="h", high_is_bad=True)
    assert results._worst_table(harmful, []).title == "Highest h"


@pytest.mark.parametrize(("known", "sections"), [(0, 0), (1, 2), (2, 3)])
def test_the_results_page_has_a_chart_where_there_is_something_to_compare(
    known: int, sections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = [result(f"e{number}", number / 10) for number in range(known, 0, -1)]
    found = SimpleNamespace(summaries=summaries, remarks=["a remark"])
    monkeypatch.setattr(results, "results_of", lambda store, run_id: found)
    target = SimpleNamespace(session="x", session_id="s", value=1.0, label="", explanation="", error="")
    monkeypatch.setattr(
        results, "worst_targets", lambda read, run_id, one: [target] if one.evaluator == "e1" else []
    )
    store: Any = SimpleNamespace(read=None)
    view = results.results_view(store, "r")
    assert list(view.remarks) == ["a remark"]
    # A table, the chart if there are two, and the results of the first.
    assert len(view.sections) == sections
    if known == 2:
        assert [row[0].text for row in view.sections[0].rows] == ["e1", "e2"]


# --- Alerts ---


class Settled:
    """A store of crossings that keeps how alerts were settled."""

    def __init__(self, *crossings: Any) -> None:
        self.waiting, self.settled = list(crossings), list[Any]()
        self.drift, self.definitions = self, self

    def take_alert(self, now: Any, *, until: timedelta) -> Any:
        self.until = until
        return self.waiting.pop(0) if self.waiting else None

    def settle_alert(self, crossing: Any, state: str, **named: Any) -> None:
        self.settled.append((crossing["id"], state, named))

    def config(self, config_id: str) -> Any:
        if config_id == "gone":
            raise NotFound("gone")
        return {"name": config_id}


def alerts(store: Any, *watches: Any) -> Alerts:
    return Alerts(store, watches, {}, Path())


@pytest.mark.parametrize(
    ("attempts", "wait"),
    [
        (1, drift.FIRST_RETRY),
        (2, 2 * drift.FIRST_RETRY),
        (3, 4 * drift.FIRST_RETRY),
        (
            drift.MOST_ATTEMPTS - 1,
            min(drift.FIRST_RETRY * 2 ** (drift.MOST_ATTEMPTS - 2), drift.LONGEST_RETRY),
        ),
    ],
)
def test_the_pause_before_an_alert_is_sent_again_doubles(attempts: int, wait: timedelta) -> None:
    store = Settled()
    crossing: Any = {"id": "c", "attempts": attempts}
    alerts(store)._retry(crossing, "down", NOW)
    assert store.settled == [("c", drift.PENDING, {"next_at": NOW + wait, "problem": "down"})]


@pytest.mark.parametrize("more", [0, 1])
def test_an_alert_is_given_up_after_its_last_attempt(more: int) -> None:
    store = Settled()
    crossing: Any = {"id": "c", "attempts": drift.MOST_ATTEMPTS + more}
    alerts(store)._retry(crossing, "down", NOW)
    assert store.settled == [("c", drift.FAILED, {"problem": "down"})]


def test_accepted_alerts_are_counted_and_others_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Settled(*({"id": name, "attempts": 1} for name in ("good", "bad", "also good")))

    async def deliver(self: Alerts, crossing: Any) -> None:
        if crossing["id"] == "bad":
            raise drift.AlertFailed("down")

    monkeypatch.setattr(Alerts, "_deliver", deliver)
    assert asyncio.run(alerts(store).send(NOW)) == 2
    assert [(name, state) for name, state, _ in store.settled] == [
        ("good", drift.SENT),
        ("bad", drift.PENDING),
        ("also good", drift.SENT),
    ]
    # Another process may send it once three time limits are over.
    assert store.until == timedelta(seconds=3 * drift.ALERT_SECONDS)


@pytest.mark.parametrize(
    ("config", "watch", "problem"),
    [
        ("gone", {}, "the configuration was deleted"),
        ("other", {}, "no webhook or command is configured"),
        ("mine", {}, "no webhook or command is configured"),
    ],
)
def test_an_alert_without_a_receiver_fails(config: str, watch: Any, problem: str) -> None:
    mine = SimpleNamespace(name="mine", webhook="", command="", **watch)
    crossing: Any = {"configId": config, "id": "c"}
    with pytest.raises(drift.AlertFailed, match=problem):
        asyncio.run(alerts(Settled(), mine)._deliver(crossing))


# --- Checks of tasks ---


def task(name: str, *, has_solution: bool = True, prompt: str = "p", repo: str | None = None) -> Any:
    return SimpleNamespace(
        name=name, has_solution=has_solution, prompt=prompt, start_digest="d", repo=repo, ref="r"
    )


OK, BROKEN = ("success", ""), ("fail", "exit 1")


@pytest.mark.parametrize(
    ("has_solution", "oracle", "noop", "checked"),
    [
        (True, [OK, OK], [BROKEN], ("pass", "fail", "")),
        (True, [OK, BROKEN], [BROKEN], ("flaky", "fail", "exit 1")),
        (True, [BROKEN], [OK], ("fail", "pass", "exit 1")),
        (True, [OK], [OK, BROKEN], ("pass", "flaky", "")),
        (False, [], [BROKEN], ("none", "fail", "")),
        (True, [], [], ("fail", "fail", "")),
    ],
)
def test_a_task_is_checked_by_how_its_runs_ended(
    has_solution: bool, oracle: Any, noop: Any, checked: tuple[str, str, str]
) -> None:
    ends = {("t", checking.ORACLE): oracle, ("t", checking.NOOP): noop}
    found = checking._checked(task("t", has_solution=has_solution), ends, {})
    assert (found.oracle, found.noop, found.error) == checked and found.duplicate_of == ""


def test_tasks_with_the_same_prompt_and_files_are_duplicates() -> None:
    seen: dict[str, str] = {}
    tasks = [task("a"), task("b"), task("c", prompt="other"), task("d", repo="x"), task("e")]
    found = [checking._checked(each, {}, seen).duplicate_of for each in tasks]
    assert found == ["", "a", "", "", "a"]


def test_the_ends_of_all_runs_are_read_by_task_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"factors": f'{{"task": "t{number % 2}", "model": "m"}}', "status": "fail", "error": error}
        for number, error in enumerate(["x", None, "y"])
    ]
    offsets: list[int] = []

    def items(run_id: str, *, limit: int, offset: int) -> Any:
        offsets.append(offset)
        return rows[offset : offset + 2]

    ctx: Any = SimpleNamespace(store=SimpleNamespace(read=SimpleNamespace(items=items)))
    assert checking._ends(ctx, "r") == {
        ("t0", "m"): [("fail", "x"), ("fail", "y")],
        ("t1", "m"): [("fail", "")],
    }
    assert offsets == [0, 2, 3]


def test_tasks_without_a_solution_are_run_without_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Stub:
        name: str
        has_solution: bool
        models: tuple[str, ...] = ("oracle", "noop")

    @dataclass(frozen=True)
    class Stubs:
        tasks: tuple[Stub, ...]
        not_read: tuple[Any, ...] = ("unreadable",)

    planned: list[Any] = []

    async def started() -> Any:
        return SimpleNamespace(run_id="run")

    def start(job: Any, plan: Any, ctx: Any) -> Any:
        planned.append(plan)
        return started()

    monkeypatch.setattr(
        checking, "read_task_set", lambda path, reading: Stubs((Stub("a", True), Stub("b", False)))
    )
    monkeypatch.setattr(
        checking, "BenchmarkJobPlan", lambda tasks, overrides, ctx, path: (tasks, overrides, ctx, path)
    )
    monkeypatch.setattr(checking.lifecycle, "start", start)
    monkeypatch.setattr(checking, "_ends", lambda ctx, run_id: {"of": run_id})
    monkeypatch.setattr(checking, "_checked", lambda task, ends, seen: (task.name, ends))
    overrides: Any = SimpleNamespace(reading=lambda: None)
    ctx: Any = "ctx"
    checks = checking.check_tasks(Path("tasks"), overrides, ctx)
    tasks, given, context, path = planned[0]
    assert [each.models for each in tasks.tasks] == [("oracle", "noop"), (checking.NOOP,)]
    assert (given, context, path) == (overrides, "ctx", Path("tasks"))
    assert checks.tasks == (("a", {"of": "run"}), ("b", {"of": "run"}))  # type: ignore[comparison-overlap]
    assert (checks.not_read, checks.run_id) == (("unreadable",), "run")  # type: ignore[comparison-overlap]
