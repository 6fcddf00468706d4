"""Counts and results of runs in memory: when they are loaded, by whom, and how long they are kept."""

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.item import FINISHED
from proctor.stats import results as statistics
from proctor.testing import eventually
from proctor.web import results as web_results
from proctor.web import state
from proctor.web.results import RunResults, _Computed, _counted_view
from proctor.web.state import ItemCounts, LoadedResults, LoadingStopped, Reading

# Counts of items


def counts(**by_status: int) -> dict[str, int]:
    return {"queued": 0, "running": 0, **dict.fromkeys(FINISHED, 0), **by_status}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The counts of the store by run, and how often each was asked for under `asked`."""
    stored: dict[str, Any] = {"asked": []}

    def status_counts(read: object, run_id: str) -> dict[str, int]:
        stored["asked"].append(run_id)
        return dict(stored[run_id])

    monkeypatch.setattr(state, "status_counts", status_counts)
    return stored


def batch(run_id: str = "r", status: str = "completed", finished_at: str = "t") -> Any:
    return {"runId": run_id, "status": status, "finishedAt": finished_at, "job": "coding"}


@pytest.mark.parametrize(
    ("status", "finished", "asked"),
    [("completed", 20_001, 1), ("completed", 20_000, 2), ("running", 20_001, 2), ("aborted", 20_001, 1)],
)
def test_a_large_run_that_has_ended_is_counted_once(
    status: str, finished: int, asked: int, counted: dict[str, Any]
) -> None:
    context: Any = SimpleNamespace(store=SimpleNamespace(read=None))
    counted["r"] = counts(success=finished - 1, error=1, queued=50_000)
    found = ItemCounts(context)
    assert found.of(batch(status=status)) == found.of(batch(status=status)) == counted["r"]
    assert len(counted["asked"]) == asked
    # Its row has changed.
    found.of(batch(status=status, finished_at="later"))
    assert len(counted["asked"]) == asked + 1


# Results of runs


class Loads:
    """Results, as statistics would load them: a list of the items read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.moment = 0.0
        self.seconds = 1.0
        self.parts: list[int] = [2, 3]
        self.last: dict[str, Any] = {"at": "a", "end": "b"}
        self.gate: threading.Event | None = None
        self.error: Exception | None = None
        monkeypatch.setattr(statistics, "load_results", self.load)
        monkeypatch.setattr(state, "last_change", lambda read: self.last)

    def load(self, read: object, run_ids: tuple[str, ...], now: object, add: Any) -> list[int]:
        self.calls.append(run_ids)
        if self.gate is not None:
            self.gate.wait()
        for items in self.parts:
            add(items)
        if self.error is not None:
            raise self.error
        self.moment += self.seconds
        return list(range(sum(self.parts)))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


def loaded(loads: Loads, *batches: Any) -> LoadedResults:
    rows = {each["runId"]: each for each in batches or (batch(),)}
    context: Any = SimpleNamespace(
        store=SimpleNamespace(read=SimpleNamespace(batch=lambda run_id, now: rows[run_id])),
        now=lambda: "now",
        monotonic=lambda: loads.moment,
    )
    return LoadedResults(context, ItemCounts(context))


def test_results_are_loaded_once_until_something_changes(loads: Loads, counted: dict[str, Any]) -> None:
    counted["r"] = counts(success=5)
    results = loaded(loads)
    first = results.of("r")
    assert first == [0, 1, 2, 3, 4] and results.of("r") is first and loads.calls == [("r",)]
    loads.last = {"at": "later", "end": "b"}
    second = results.of("r")
    assert second is not first
    loads.last = {"at": "later", "end": "later"}
    third = results.of("r")
    assert third is not second
    counted["r"] = counts(success=4, fail=1)
    assert results.of("r") is not third and len(loads.calls) == 4


def test_results_of_several_runs_are_those_of_all_of_them(loads: Loads, counted: dict[str, Any]) -> None:
    counted |= {"a": counts(success=1), "b": counts(success=1)}
    results = loaded(loads, batch("a"), batch("b"))
    results.of("a", "b")
    results.of("b", "a")
    results.of("a", "b")
    assert loads.calls == [("a", "b"), ("b", "a")]


@pytest.mark.parametrize(
    ("status", "age", "recent", "is_kept"),
    [
        ("running", 19.9, True, True),
        ("running", 20.0, True, False),
        ("running", 19.9, False, False),
        ("completed", 1.0, True, False),
    ],
)
def test_results_of_a_running_run_are_current_for_twenty_seconds(
    status: str, age: float, recent: bool, is_kept: bool, loads: Loads, counted: dict[str, Any]
) -> None:
    counted["r"] = counts(success=5)
    results = loaded(loads, batch(status=status))
    first = results.within([batch(status=status)], 0)
    assert first[1] is True
    loads.last = {"at": "later", "end": ""}
    loads.moment += age
    second = results.within([batch(status=status)], 0, recent=recent)
    assert (second[0] is first[0], second[1]) == (is_kept, True)


@pytest.mark.parametrize(("age", "is_kept"), [(29.9, True), (30.1, False)])
def test_loading_takes_a_tenth_of_the_time_at_most(
    age: float, is_kept: bool, loads: Loads, counted: dict[str, Any]
) -> None:
    counted["r"] = counts(success=5)
    loads.seconds = 3.0
    results = loaded(loads, batch(status="running"))
    first, _ = results.within([batch(status="running")], 0)
    loads.last = {"at": "later", "end": ""}
    loads.moment += age
    second, _ = results.within([batch(status="running")], 0)
    assert (second is first) is is_kept


def test_results_of_a_large_run_are_loaded_beside_the_request(
    loads: Loads, counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LARGE", 4)
    counted["r"] = counts(success=3, fail=2, queued=100)
    results, loads.gate = loaded(loads), threading.Event()
    assert results.within([batch()], 0) == (None, False)
    reading = eventually(lambda: results.reading("r"))
    assert (reading.read, reading.total, str(reading)) == (0, 5, "0 of 5 items read")
    # The same thread loads them for everybody.
    assert results.within([batch()], 0) == (None, False)
    loads.gate.set()
    found, is_current = eventually(lambda: _if_current(results.within([batch()], 60)))
    assert found == [0, 1, 2, 3, 4] and is_current and loads.calls == [("r",)]
    assert results.reading("r") is None
    loads.last, loads.gate = {"at": "later", "end": ""}, threading.Event()
    # The last ones, while newer ones are loaded.
    assert results.within([batch()], 0) == (found, False)
    loads.gate.set()
    eventually(lambda: not results._threads)


def _if_current(found: Any) -> Any:
    return found if found[1] else None


def test_a_run_of_twenty_thousand_items_is_loaded_by_the_request(
    loads: Loads, counted: dict[str, Any]
) -> None:
    counted["r"] = counts(success=20_000)
    assert loaded(loads).within([batch()], 0)[1] is True


def test_an_error_of_the_loading_thread_is_that_of_the_request(
    loads: Loads, counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LARGE", 0)
    counted["r"] = counts(success=5)
    loads.error = ValueError("broken")
    results = loaded(loads)
    with pytest.raises(ValueError, match="broken"):
        results.within([batch()], 60)
    assert results.reading("r") is None
    loads.error = None
    assert results.within([batch()], 60)[1] is True


def test_a_server_that_ends_stops_loading(loads: Loads, counted: dict[str, Any]) -> None:
    counted["r"] = counts(success=5)
    results = loaded(loads)
    results.close()
    with pytest.raises(LoadingStopped):
        results.of("r")
    assert results.reading("r") is None and results._loading == {}
    results.open()
    assert len(results.of("r")) == 5


def test_a_server_that_ends_waits_for_its_threads(
    loads: Loads, counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LARGE", 0)
    counted["r"] = counts(success=5)
    loads.gate = threading.Event()
    results = loaded(loads)
    results.within([batch()], 0)
    (thread,) = results._threads
    assert thread.daemon
    loads.gate.set()
    results.close()
    assert not thread.is_alive() and not results._threads


def test_runs_are_loaded_one_request_at_a_time(loads: Loads, counted: dict[str, Any]) -> None:
    counted["r"] = counts(success=5)
    results, loads.gate = loaded(loads), threading.Event()
    threads = [threading.Thread(target=results.of, args=("r",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: results._loading.get(("r",), (None, 0))[1] == 3)
    loads.gate.set()
    for thread in threads:
        thread.join()
    assert loads.calls == [("r",)] and results._loading == {}


def test_how_far_reading_has_come_in_words() -> None:
    assert str(Reading(12_345, 1_000_000)) == "12,345 of 1,000,000 items read"


# Results as pages show them


def test_success_rates_by_counts_alone() -> None:
    levels = {
        "b": {"success": 1, "fail": 1},
        "a": {"success": 1, "timeout": 1, "error": 5},
        "none": {"error": 2},
        "": {"success": 3},
        "c": {"success": 1, "fail": 2, "timeout": 1},
    }
    (table,) = _counted_view(levels, "model").sections
    assert (table.title, table.caption) == ("By model", "Confidence intervals are being computed.")
    assert [(each.title, each.is_numeric) for each in table.columns] == [
        ("Model", False),
        ("Success rate", True),
        ("Items", True),
    ]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["(none)", "100%", "3"],
        ["a", "50%", "2"],
        ["b", "50%", "2"],
        ["c", "25%", "4"],
        ["none", "–", "0"],
    ]
    figures = [row[0].figure for row in table.rows]
    assert [(each.label, each.text, each.items) for each in figures[:2]] == [
        ("", "", None),
        ("a", "a", {"model": ["a"]}),
    ]
    assert _counted_view({}, "model").sections == []
    many = {f"m{number:02}": {"success": 1} for number in range(41)}
    (table,) = _counted_view(many, "model").sections
    assert len(table.rows) == 40


class Computations:
    """A `RunResults` whose computations are counted and held until they are let go."""

    def __init__(self, status: str = "completed") -> None:
        self.batch = batch(status=status)
        self.calls: list[Any] = []
        read = SimpleNamespace(batch=lambda run_id, now: self.batch)
        site: Any = SimpleNamespace(
            store=SimpleNamespace(read=read),
            now=lambda: "now",
            item_counts=SimpleNamespace(of=lambda batch: self.counts),
            results=SimpleNamespace(reading=lambda run_id: Reading(1, 2)),
        )
        self.counts = counts(success=1)
        self.results = RunResults(site)
        self.error: Exception | None = None
        self.results._compute = self.compute  # type: ignore[method-assign]
        self.results._counted = lambda batch: empty(0)  # type: ignore[method-assign]

    def compute(self, batch_: Any, state_: Any) -> None:
        self.calls.append(state_)
        try:
            if self.error is not None:
                raise self.error
            now = time.monotonic()
            self.results._computed.put("r", _Computed(empty(1), state_, now, 0.0))
        finally:
            self.results._pending.pop("r", None)


def empty(finished: int) -> Any:
    return web_results.ResultsAnswer(
        sections=[], remarks=[], finished_count=finished, is_current=finished > 0
    )


@pytest.fixture(autouse=True)
def no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_results, "last_change", lambda read: {"at": "", "end": ""})


def test_results_are_computed_once_for_each_state_of_a_run() -> None:
    made = Computations()
    for _ in range(2):
        answer = made.results.of("r", 60)
        assert (answer.finished_count, answer.is_current, answer.reading) == (1, True, None)
    made.counts = counts(success=2)
    assert made.results.of("r", 60).is_current and len(made.calls) == 2
    made.results.close()
    assert not any(thread.is_alive() for thread in made.results._threads)


def test_results_of_a_running_run_are_computed_again_after_a_while() -> None:
    made = Computations(status="running")
    assert made.results.of("r", 60).is_current
    made.counts = counts(success=2)
    # They are recent enough.
    assert made.results.of("r", 60).is_current and len(made.calls) == 1
    last = made.results._computed.get("r")
    assert last is not None
    for seconds, age, count in ((0.0, 1e6, 2), (100.0, 101.0, 2), (100.0, 1e6, 3)):
        made.counts = counts(success=made.counts["success"] + 1)
        old = _Computed(empty(1), last.state, time.monotonic() - age, seconds)
        made.results._computed.put("r", old)
        made.results.of("r", 60)
        assert len(made.calls) == count
    made.results.close()


def test_what_is_counted_is_shown_until_there_are_results() -> None:
    made = Computations()
    pending: Any = Future()
    made.results._pending["r"] = pending
    answer = made.results.of("r", 0)
    assert (answer.finished_count, answer.is_current) == (0, False)
    assert answer.reading is not None and (answer.reading.read, answer.reading.total) == (1, 2)
    pending.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        made.results.of("r", 0)
    assert made.calls == []


def test_an_error_of_a_computation_is_that_of_the_request() -> None:
    made = Computations()
    made.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        made.results.of("r", 60)
    made.error = None
    assert made.results.of("r", 60).is_current
    made.results.close()


def test_a_server_that_ends_computes_nothing_more() -> None:
    made = Computations()
    made.results.of("r", 60)
    held: Any = Future()
    made.results._is_closed = True
    made.results._queue.put((made.batch, None, held))  # type: ignore[arg-type]
    made.results.close()
    assert held.cancelled() and len(made.calls) == 1
    assert not any(thread.is_alive() for thread in made.results._threads)


# What a view of results says besides


@pytest.mark.parametrize(
    ("status", "sections", "rule", "remark"),
    [
        ("running", [1], None, web_results.LIVE_REMARK),
        ("running", [], None, None),
        ("running", [1], "rule", web_results.LIVE_REMARK),
        ("running", [], "rule", web_results.EARLY_REMARK),
        ("completed", [1], "rule", web_results.EARLY_REMARK),
        ("completed", [1], None, None),
    ],
)
def test_results_say_that_a_run_goes_on_or_could_stop_early(
    status: str, sections: list[Any], rule: Any, remark: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = web_results.ResultsView(sections=sections, remarks=["own"])
    views = {("r", "context"): view}
    job = SimpleNamespace(results_view=lambda run_id, context: views[run_id, context])
    monkeypatch.setattr(web_results, "job_of_run", lambda name: job)
    made = Computations()
    made.results._site.store.read.resource = lambda run_id, name: rule  # type: ignore[method-assign]
    made.results._site.context = "context"  # type: ignore[misc,assignment]
    found = made.results._view(batch(status=status))
    assert list(found.remarks) == ([remark] if remark else []) + ["own"] and found.sections == sections


@pytest.mark.parametrize(
    ("status", "own", "is_random", "is_running"),
    [("running", SimpleNamespace(ranks="model"), True, True), ("completed", None, False, False)],
)
def test_a_sentence_says_who_leads(
    status: str, own: Any, is_random: bool, is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.report import result_sections
    from proctor.stats import stopping

    made: list[Any] = []
    monitored: list[Any] = []

    class Follower:
        def __init__(self, rule: Any, read: object, run_id: str) -> None:
            made.append(rule)

        def monitor(self, total: int, finished: int) -> Any:
            monitored.append((total, finished))
            return SimpleNamespace(standing=lambda: standing[0])

    standing: list[Any] = ["leader"]
    monkeypatch.setattr(stopping, "StopFollower", Follower)
    monkeypatch.setattr(stopping, "stored_rule", lambda read, run_id: own)
    monkeypatch.setattr(
        result_sections,
        "decision_sentence",
        lambda standing, *, is_running, is_random: (standing, is_running, is_random),
    )
    rules: list[Any] = ["job's rule"]
    job = SimpleNamespace(decision_rule=lambda varied: rules[0])
    monkeypatch.setattr(web_results, "job_of_run", lambda name: job)
    numbers = counts(success=2, fail=1, queued=4)
    site: Any = SimpleNamespace(
        store=SimpleNamespace(read=None), item_counts=SimpleNamespace(of=lambda batch: numbers)
    )
    decisions = web_results._Decisions(site)
    monkeypatch.setattr(decisions, "_varied", lambda run_id: ["model"])
    for _ in range(2):
        assert decisions.sentences(batch(status=status)) == [("leader", is_running, is_random)]
    assert made == [own or "job's rule"] and monitored == [(7, 3)] * 2
    standing[0] = None
    assert decisions.sentences(batch(status=status)) == []
    numbers |= {"success": 0, "fail": 0}
    assert decisions.sentences(batch(status=status)) == []
    numbers["success"], rules[0] = 1, None
    assert (decisions.sentences(batch(status=status)) == []) and len(monitored) == (3 if own is None else 4)
