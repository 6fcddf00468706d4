"""What runs to come are going to take, from those that have been."""

import pytest

from proctor.batch.estimate import PromptShare, predict
from proctor.report.estimate import assumption_note


def part(who, model, tokens, calls=1.0):
    return PromptShare(who=who, model=model, calls=calls, input_tokens=tokens, output_tokens=0)


def a_dollar_a_thousand(_model, tokens_in, _tokens_out):
    return tokens_in / 1000


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
