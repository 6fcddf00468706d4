"""The sessions a job is about are found by where they come from and by when something happened in them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from recorded_sessions import NOON, keep, recorded

from proctor.jobs.evaluation.prepare import discover, select_sessions
from proctor.jobs.evaluation.request import FileSessions, LogGroupSessions, Period


@pytest.fixture
def store(either_store):
    return either_store


def names(store, sessions, most=None):
    found = discover(store.read, sessions, most=most)
    return [session.external_id for session in select_sessions(store.read, found.ids)]


def test_by_log_group_or_its_beginning_and_by_service(store):
    keep(
        store,
        recorded("a"),
        recorded("b", log_group="/agents/hotel", minutes=(1,)),
        recorded("c", log_group="/other", minutes=(2,)),
        recorded("d", service="billing", minutes=(3,)),
    )

    assert names(store, LogGroupSessions(names=("/agents/travel",))) == ["d", "a"]
    assert names(store, LogGroupSessions(names=("/agents/travel",), services=("travel",))) == ["a"]
    assert names(store, LogGroupSessions(prefixes=("/agents/",), services=("travel",))) == ["b", "a"]
    assert names(store, LogGroupSessions(prefixes=("/AGENTS/", "/agents_"))) == []


def test_by_session_and_trace_ids_together_and_by_the_ids_of_what_was_just_imported(store):
    ids = keep(store, recorded("a"), recorded("b", minutes=(1,)), recorded("c", minutes=(2,)))

    wanted = LogGroupSessions(names=("/agents/travel",), session_ids=("a",), traces={"b": ("0" * 32,)})

    assert names(store, wanted) == ["b", "a"]
    assert names(store, FileSessions(paths=("x",), session_ids=tuple(ids[:2]))) == ["b", "a"]
    assert names(store, FileSessions(paths=("x",))) == []


def test_a_period_holds_what_was_active_in_it_not_what_began_in_it(store):
    turn = ("Where to?", (), "Oslo.")
    keep(
        store,
        recorded("around", turn, turn, minutes=(0, 60)),
        recorded("across", turn, turn, minutes=(0, 30)),
        recorded("before", turn, minutes=(10,)),
        recorded("at the end", turn, minutes=(40,)),
    )
    half_past, forty = NOON + timedelta(minutes=30), NOON + timedelta(minutes=40)

    def within(start, end):
        return set(names(store, LogGroupSessions(period=Period(start=start, end=end))))

    assert within(half_past, forty) == {"across"}
    assert within(half_past, None) == {"across", "around", "at the end"}
    assert within(None, NOON + timedelta(minutes=10)) == {"around", "across"}
    assert within(NOON + timedelta(minutes=10, seconds=20), half_past) == {"before"}


def test_of_too_many_the_most_recent_are_judged_and_the_others_counted(store):
    keep(store, *(recorded(f"s{number}", minutes=(number,)) for number in range(7)))

    found = discover(store.read, LogGroupSessions(names=("/agents/travel",)), most=3)

    assert [each.external_id for each in select_sessions(store.read, found.ids)] == ["s6", "s5", "s4"]
    assert found.ignored == 4


def test_a_session_that_was_imported_again_with_more_in_it_is_another_content(store):
    turn = ("Where to?", ("search",), "To Oslo.")
    (before,) = select_sessions(store.read, keep(store, recorded("a", turn)))
    (again,) = select_sessions(store.read, keep(store, recorded("a", turn)))
    (more,) = select_sessions(store.read, keep(store, recorded("a", turn, ("And?", (), "x" * 9000))))

    assert before == again
    assert before.id == more.id and before.content != more.content
    assert (more.traces, more.tool_calls) == (2, 1)
    assert more.characters > 9000


def test_a_session_names_its_scenario_and_where_it_comes_from(proctor_store):
    (found,) = select_sessions(
        proctor_store.read, keep(proctor_store, recorded("a", scenario="book-a-flight"))
    )

    assert found.scenario == "book-a-flight"
    assert found.label == "a of travel in /agents/travel"
    assert replace(found, service="").label == "a in /agents/travel"
    assert replace(found, service="", log_group="").label == "a"
