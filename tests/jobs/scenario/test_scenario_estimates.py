"""What earlier runs of a scenario used, for estimates of runs to come."""

import json
from dataclasses import replace

import pytest

from proctor.batch.estimate import FIGURES
from proctor.item import Item
from proctor.jobs.scenario.estimate import earlier_runs, past_usage, shares_of
from proctor.scenario.state import ScenarioCall, ScenarioTurn, turn_as_plain
from proctor.session import Iteration, ModelCall
from stocked import add_batch, at, finish_item

CALL = ScenarioCall(who="port", purpose="decision", model="a", turn=2, input_tokens=100, output_tokens=20)


def test_turns_that_were_paid_for_elsewhere_do_not_count():
    (share,) = shares_of([(), (CALL, CALL), (CALL,)])

    assert (share.calls, share.input_tokens, share.output_tokens) == (1.5, 150, 30)


@pytest.fixture
def played(proctor_store):
    """Two completed runs of a scenario, one that failed, one of another, and one without a session."""
    items = [
        Item(prompt=prompt, details={"n": n, "seed": n}, settings={"label": f"run-{n}"})
        for n, prompt in enumerate(("sea", "sea", "sea", "sky", "fog"))
    ]
    add_batch(proctor_store, "run", items, job="scenario", status="completed")
    add_batch(proctor_store, "coding", items[:1], status="completed")
    writer = proctor_store.writer()
    for number, item in enumerate(items[:4]):
        calls = (replace(CALL, input_tokens=100 * (number + 1), output_tokens=10),)
        turns = [
            ScenarioTurn(number=turn, world_state="", decisions={}, calls=calls * turn) for turn in (1, 2)
        ]
        events = [[ModelCall(model="a"), Iteration(output=json.dumps(turn_as_plain(turn)))] for turn in turns]
        values = {"status": "fail" if number == 2 else "success", "tokensTotal": 1000 * (number + 1)}
        values |= {"finishedAt": at(60 * number)} | ({"costUsd": 0.5} if number == 1 else {})
        finish_item(
            writer,
            item.id,
            f"s{number}",
            *events[0],
            *events[1],
            Iteration(output="no turn"),
            columns=values,
            job="scenario",
        )
    for run_id, item in (("coding", items[0]), ("run", items[4])):
        writer.change("batch_items", (run_id, item.id), {"status": "success"})
    writer.close()
    return proctor_store.read


def test_past_usage_is_of_the_completed_runs_of_a_scenario(played):
    past, replayed, none = (past_usage(played, name) for name in ("sea", "fog", "nothing"))
    assert [past[name]["mean"] for name in FIGURES] == [2.0, 1500.0, 0.5]
    assert (past["runs"], past["cost_usd"]["n"]) == (2, 1)
    assert (replayed["runs"], replayed["calls"]["mean"], replayed["tokens"]["mean"]) == (1, 0.0, 0.0)
    assert (none["runs"], none["calls"]["mean"], none["cost_usd"]["mean"]) == (0, None, None)


def test_earlier_runs_have_the_usage_of_their_turns_the_latest_first(played):
    latest, first = earlier_runs(played, "sea")
    assert [(part.who, part.model, part.calls, part.input_tokens, part.output_tokens) for part in latest] == [
        ("port", "a", 1.5, 300.0, 15.0)
    ]
    assert [part.input_tokens for part in first] == [150.0]
    assert earlier_runs(played, "nothing") == []
