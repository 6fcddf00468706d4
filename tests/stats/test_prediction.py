"""What runs to come are going to take, from those that have been."""

import json

import pytest

from proctor.item import Item
from proctor.report.estimate import assumption_note
from proctor.scenario.state import ScenarioCall
from proctor.session import Iteration, ModelCall
from proctor.stats.estimate import PromptShare, earlier_runs, experience, parts_of, predict
from stocked import add_batch, at, finish_item


def part(who, model, tokens, calls=1.0):
    return PromptShare(who=who, model=model, calls=calls, input_tokens=tokens, output_tokens=0)


def a_dollar_a_thousand(_model, tokens_in, _tokens_out):
    return tokens_in / 1000


def test_turns_that_were_paid_for_elsewhere_do_not_count():
    call = ScenarioCall(who="port", purpose="decision", model="a", turn=2, input_tokens=100, output_tokens=20)

    (found,) = parts_of([(), (call, call), (call,)])

    assert (found.calls, found.input_tokens, found.output_tokens) == (1.5, 150, 30)


def test_runs_to_come_are_counted_up_turn_by_turn_from_earlier_ones():
    earlier = [[part("port", "a", tokens)] for tokens in (900, 1000, 1100)]

    found = predict(earlier, [part("port", "a", 5)], turns=4, runs=10, price=a_dollar_a_thousand)

    assert found.runs == 3 and found.assumptions == ()
    assert found.one["calls"].value == 4
    assert found.one["tokens"].value == pytest.approx(4000)
    assert found.everything["cost_usd"].value == pytest.approx(40)
    one, everything = found.one["cost_usd"], found.everything["cost_usd"]
    assert one.low < 4 < one.high
    assert (everything.high - everything.low) / 10 < one.high - one.low, "chance evens out over ten runs"


def test_who_has_another_model_is_taken_to_write_as_much_and_priced_as_it_is():
    earlier = [[part("port", "a", 1000)], [part("port", "a", 1000)]]

    found = predict(
        earlier, [part("port", "b", 5)], turns=1, runs=1, price=lambda model, *_: 7 if model == "b" else 1
    )

    assert found.one["cost_usd"].value == 7
    (note,) = map(assumption_note, found.assumptions)
    assert note == "port never had b: counted as if it wrote as much as a"


def test_who_was_never_there_is_a_guess_and_said_to_be_one():
    earlier = [[part("port", "a", 1000)], [part("port", "a", 1200)]]

    found = predict(
        earlier, [part("port", "a", 5), part("ferry", "a", 300)], turns=1, runs=1, price=a_dollar_a_thousand
    )

    assert found.one["tokens"].value == pytest.approx(1400)
    assert found.one["tokens"].low < 1400 < found.one["tokens"].high
    (note,) = map(assumption_note, found.assumptions)
    assert note == "ferry took no part in earlier runs: a guess"


def test_a_role_is_priced_by_its_average_call():
    share = PromptShare(who="port", model="a", calls=4.0, input_tokens=40.0, output_tokens=8.0)
    silent = PromptShare(who="ferry", model="b", calls=0.0, input_tokens=0.0, output_tokens=0.0)

    def price(model, tokens_in, tokens_out):
        return tokens_in**2 + 100 * tokens_out**2 if model == "a" else None

    found = predict([[share, silent]] * 2, [share, silent], turns=1, runs=1, price=price)

    assert found.one["cost_usd"].value == pytest.approx(4 * (10**2 + 100 * 2**2))


def test_one_earlier_run_gives_no_interval_and_an_unknown_price_no_cost():
    found = predict([[part("port", "a", 10)]], [part("port", "a", 5)], turns=1, runs=1, price=lambda *_: None)

    assert (found.one["tokens"].value, found.one["tokens"].low) == (10, None)
    assert found.one["cost_usd"].value is None


def test_without_earlier_runs_nothing_is_predicted():
    assert predict([], [part("port", "a", 5)], turns=1, runs=1, price=a_dollar_a_thousand) is None


@pytest.fixture
def played(proctor_store):
    """Two completed runs of a scenario, one that failed, one of another, and one without a session."""
    items = [
        Item(prompt=prompt, details={"n": n}) for n, prompt in enumerate(("sea", "sea", "sea", "sky", "fog"))
    ]
    add_batch(proctor_store, "run", items, job="scenario", status="completed")
    add_batch(proctor_store, "coding", items[:1], status="completed")
    writer = proctor_store.writer()
    call = {"who": "port", "purpose": "decision", "model": "a", "turn": 1}
    for number, item in enumerate(items[:4]):
        tokens = {"input_tokens": 100 * (number + 1), "output_tokens": 10}
        turns = [{"number": turn, "calls": [call | tokens] * turn} for turn in (1, 2)]
        events = [[ModelCall(model="a"), Iteration(output=json.dumps(turn))] for turn in turns]
        values = {"status": "fail" if number == 2 else "success", "tokensTotal": 1000 * (number + 1)}
        values |= {"finishedAt": at(60 * number)} | ({"costUsd": 0.5} if number == 1 else {})
        finish_item(
            *(writer, item.id, f"s{number}", *events[0], *events[1], Iteration(output="no turn")),
            columns=values,
            job="scenario",
        )
    for run_id, item in (("coding", items[0]), ("run", items[4])):
        writer.change("batch_items", (run_id, item.id), {"status": "success"})
    writer.close()
    return proctor_store.read


def test_past_usage_is_of_the_completed_runs_of_a_scenario(played):
    past = experience(played, "sea")
    assert (past.runs, past.calls.value, past.tokens.value) == (2, 2.0, 1500.0)
    assert (past.cost_usd.value, past.cost_usd.runs) == (0.5, 1)
    replayed = experience(played, "fog")
    assert (replayed.runs, replayed.calls.value, replayed.tokens.value) == (1, 0.0, 0.0)
    none = experience(played, "nothing")
    assert (none.runs, none.calls.value, none.cost_usd.value) == (0, None, None)


def test_earlier_runs_have_the_usage_of_their_turns_the_latest_first(played):
    latest, first = earlier_runs(played, "sea")
    assert [(part.who, part.model, part.calls, part.input_tokens, part.output_tokens) for part in latest] == [
        ("port", "a", 1.5, 300.0, 15.0)
    ]
    assert [part.input_tokens for part in first] == [150.0]
    assert earlier_runs(played, "nothing") == []
