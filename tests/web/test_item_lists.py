"""Windows, levels, failures, neighbors and matrices of a run's items, without a server."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from app_states import changed_state
from stocked_judgements import compared_run
from stocked_runs import stock

from proctor.errors import NotFound
from proctor.store.item_lists import ItemQuery
from proctor.web import items
from proctor.web.items import item_query
from proctor.web.state import AppState

START = datetime(2026, 3, 1, 13, tzinfo=UTC)


@pytest.fixture
def clock() -> list[datetime]:
    return [START]


@pytest.fixture
def stocked(site: AppState, clock: list[datetime]) -> AppState:
    """A run of twenty items, two of which are queued."""
    stock(site.store, count=20)
    return changed_state(site, now=lambda: clock[0])


def endpoints(site: AppState) -> dict[str, Any]:
    return {route.name: route.endpoint for route in items.router(site).routes}  # type: ignore[attr-defined]


def positions(answer: Any) -> list[int]:
    return [each.position for each in answer.items]


def test_a_window_of_all_items_or_of_those_that_match(stocked: AppState) -> None:
    window = endpoints(stocked)["window"]
    answer = window("stocked", item_query(), offset=3, limit=4)
    assert (positions(answer), answer.offset, answer.total) == ([3, 4, 5, 6], 3, 20)
    assert answer.counts == {
        "queued": 2,
        "running": 0,
        "success": 8,
        "fail": 4,
        "timeout": 3,
        "error": 3,
    }
    failed = window("stock", item_query(status=["fail"]), offset=1, limit=2)
    assert (positions(failed), failed.total, failed.counts) == ([7, 12], 4, answer.counts)
    by_model = item_query(model=["openai/gpt-5"], order="position", descending=True)
    found = window("stocked", by_model, offset=0, limit=3)
    assert (positions(found), found.total) == ([18, 15, 12], 7)
    assert sum(found.counts.values()) == 7
    assert all(each.outcome is None for each in found.items)


def test_values_to_filter_by_are_listed(stocked: AppState) -> None:
    levels = endpoints(stocked)["levels"]

    def found(of: str) -> dict[str, int]:
        return {each.value: each.items for each in levels("stocked", of).levels}

    assert found("model") == {"openai/gpt-5": 7, "anthropic/claude-opus": 7, "qwen3:8b": 6}
    assert found("agent") == {"claude": 20} and found("factor:temper") == {"a": 7, "b": 7, "c": 6}
    assert found("tag") == {} == found("score")
    assert found("reason")["checks_failed"] == 4
    with pytest.raises(
        NotFound, match=r"^there are no levels of x\nThere are: .*, tag, score, factor:NAME\.$"
    ):
        levels("stocked", "x")


def test_failures_are_grouped_with_the_number_of_items(stocked: AppState) -> None:
    failures = endpoints(stocked)["failures"]
    answer = failures("stocked", item_query(), limit=20)
    assert (answer.group_count, answer.items) == (3, 10)
    assert (answer.groups[0].reason, answer.groups[0].items) == ("checks_failed", 4)
    assert {(each.reason, each.items) for each in answer.groups[1:]} == {("timeout", 3), ("setup_failed", 3)}
    first = failures("stocked", item_query(), limit=1)
    assert (len(first.groups), first.group_count, first.items) == (1, 3, 10)
    key = first.groups[0].key
    assert (first.groups[0].reason, first.groups[0].example) == ("checks_failed", "exited with 1")
    window = endpoints(stocked)["window"]
    assert positions(window("stocked", item_query(group=key), offset=0, limit=9)) == [2, 7, 12, 17]
    some = failures("stocked", item_query(model=["openai/gpt-5"]), limit=20)
    assert some.items == sum(each.items for each in some.groups) < 10


def test_neighbors_are_the_sessions_before_and_after(site: AppState) -> None:
    outcomes = {"a": "success", "b": "fail", "c": "success", "d": "success"}
    sessions = compared_run(site.store, "run", outcomes)
    neighbors = endpoints(site)["neighbors"]

    def found(session: str, **members: Any) -> tuple[Any, ...]:
        answer = neighbors("run", item_query(**members), session=session)
        return answer.previous, answer.next, answer.position, answer.total

    assert found(sessions[0]) == (None, sessions[1], 1, 4)
    assert found(sessions[1]) == (sessions[0], sessions[2], 2, 4)
    assert found(sessions[3]) == (sessions[2], None, 4, 4)
    assert found(sessions[2], status=["success"]) == (sessions[0], sessions[3], 2, 3)
    assert found(sessions[1], status=["success"]) == (None, None, None, 3)
    assert found(sessions[1], descending=True) == (sessions[2], sessions[0], 3, 4)
    with pytest.raises(NotFound, match=r"^run run has no session none\nIt may have been deleted"):
        found("none")


def test_a_matrix_has_tasks_and_levels_with_the_answers_of_items(site: AppState) -> None:
    compared_run(site.store, "run", {"a": "success", "b": "fail", "c": "success"}, model="m", score="kind")
    matrix = endpoints(site)["matrix"]
    answer = matrix("run", by="model", characters=5, offset=0, limit=50, wait=60)
    assert (answer.by, answer.levels, answer.total, answer.tasks, answer.offset) == ("model", ["m"], 3, 3, 0)
    assert (answer.is_current, answer.reading, answer.has_more_levels) == (True, None, False)
    assert [row.task for row in answer.rows] == ["a", "b", "c"]
    (cell,) = answer.rows[1].cells
    assert (cell.status, cell.session_id.startswith("run-"), cell.answer) == ("fail", True, "I cou")
    plain = matrix("run", by="model", characters=0, offset=1, limit=1, wait=60)
    assert ([row.task for row in plain.rows], plain.rows[0].cells[0].answer, plain.total) == (["b"], "", 3)
    found = matrix("run", by="model", search="c", characters=0, offset=0, limit=50, wait=60)
    assert ([row.task for row in found.rows], found.total, found.tasks) == (["c"], 1, 3)
    cells = endpoints(site)["cell_items"]
    ids = [row.cells[0].item_id for row in answer.rows]
    shown = cells("run", item=[ids[0], ids[2], ids[0]]).items
    assert sorted(each.id for each in shown) == sorted([ids[0], ids[2]])
    assert all(each.outcome.answer == "Done." for each in shown)
    assert shown[0].outcome.scores["kind"].value == 1.0


RUNNING = ("running", None, (1,))
ENDED = ("completed", "t", (1,))


@pytest.mark.parametrize(
    ("before", "now", "age", "is_volatile", "is_valid"),
    [
        (ENDED, ENDED, 1e6, False, True),
        (ENDED, ENDED, 1e6, True, False),
        (ENDED, ENDED, 0.0, True, True),
        (RUNNING, ("running", None, (2,)), 0.0, False, True),
        (RUNNING, ("running", None, (2,)), 1e6, False, False),
        (RUNNING, ENDED, 0.0, False, False),
        (ENDED, RUNNING, 0.0, False, False),
        (ENDED, ("completed", "t", (2,)), 0.0, False, False),
    ],
)
def test_a_sorted_list_is_kept_as_long_as_it_is_right(
    before: Any, now: Any, age: float, is_volatile: bool, is_valid: bool
) -> None:
    cached: Any = SimpleNamespace(state=before, created_at=START)
    query: Any = SimpleNamespace(is_volatile=is_volatile)
    for sign in (1, -1):
        moment = START + sign * timedelta(seconds=age)
        assert items.Listings._is_valid(cached, query, now, moment) is is_valid
    edge = START + items.LIVE
    assert items.Listings._is_valid(cached, query, now, edge) is (before == now and not is_volatile)


def test_a_sorted_list_is_made_once_for_all_statuses(
    stocked: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ItemQuery] = []
    original = items.item_lists.listing

    def listing(read: Any, run_id: str, query: ItemQuery) -> Any:
        asked.append(query)
        return original(read, run_id, query)

    monkeypatch.setattr(items.item_lists, "listing", listing)
    window = endpoints(stocked)["window"]
    for status in ("fail", "success", "error"):
        window("stocked", item_query(status=[status], model=["qwen3:8b"]), offset=0, limit=5)
    assert len(asked) == 1
    window("stocked", item_query(status=["fail"]), offset=0, limit=5)
    assert len(asked) == 2
    window("stocked", item_query(), offset=0, limit=5)
    assert len(asked) == 2
