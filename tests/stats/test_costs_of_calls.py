"""What earlier calls would cost now."""

import pytest

from proctor.models.prices import Price, Rates
from proctor.stats.calibration import LabelValue, _coded, _judged_targets
from proctor.stats.estimate import PromptShare, _cost, _figure
from proctor.store.aggregates import CallSums
from proctor.store.annotations import LabeledScore

CHEAP = Price(source="plan", rates=Rates(input=1.0, cached=0.5, cache_write=0.0, output=10.0))
RISING = Price(
    source="plan",
    rates=CHEAP.rates,
    dearer=((100, Rates(input=2.0, cached=1.0, cache_write=0.0, output=20.0)),),
)


def calls(model: str = "m", **more: object) -> CallSums:
    row: CallSums = {
        "sessionId": "s",
        "provider": "p",
        "model": model,
        "priceSource": "plan",
        "calls": 2,
        "promptTokens": 200,
        "cachedTokens": 100,
        "completionTokens": 20,
        "cost": None,
    }
    return row | more  # type: ignore[return-value]


def cost(*rows: CallSums, **prices: Price) -> tuple[float | None, list[str]]:
    unknown: list[str] = []
    known = {name.replace("_", "/"): price for name, price in prices.items()}
    return _cost(rows, known.get, unknown), unknown


def test_calls_cost_what_the_average_call_costs_now() -> None:
    usd = (100 * 1.0 + 100 * 0.5 + 20 * 10.0) / 1e6
    assert cost(calls(), p_m=CHEAP) == (pytest.approx(usd), [])
    assert cost(calls(), calls(), p_m=CHEAP) == (pytest.approx(2 * usd), [])
    assert cost(calls(), p_m=RISING) == (pytest.approx(usd), []), "no call has more than 100 tokens"
    assert cost(calls(calls=1), p_m=RISING) == (pytest.approx(2 * usd), [])
    assert cost(calls("q/m"), q_m=CHEAP) == (pytest.approx(usd), []), "the name has its provider"
    assert cost(calls(provider=""), m=CHEAP) == (pytest.approx(usd), [])
    assert cost(calls(promptTokens=10, cachedTokens=0, completionTokens=10), p_m=CHEAP)[0] == pytest.approx(
        110e-6
    )


def test_what_an_agent_was_charged_counts_where_tokens_or_prices_are_unknown() -> None:
    charged = calls(priceSource="agent", cost=0.5)
    empty = {"promptTokens": 0, "cachedTokens": 0, "completionTokens": 0}
    assert cost(charged) == (0.5, [])
    assert cost(calls(priceSource="agent", cost=0.5, **empty), p_m=CHEAP) == (0.5, [])
    assert cost(calls(**empty), p_m=CHEAP) == (0.0, []), "a failed call costs nothing"
    assert cost(calls(cost=0.5), charged) == (None, ["p/m"])
    assert cost(calls(priceSource="agent")) == (None, ["p/m"])


def test_the_usage_of_a_role_is_priced_by_its_average_call() -> None:
    part = PromptShare(who="ann", model="m", calls=4.0, input_tokens=40.0, output_tokens=8.0)

    def price(model: str, read: float, written: float) -> float | None:
        return {"m": read + 100 * written}.get(model)

    assert _figure("calls", part, "m", price) == 4.0
    assert _figure("tokens", part, "m", price) == 48.0
    assert _figure("cost", part, "m", price) == 4 * (10.0 + 100 * 2.0)
    assert _figure("cost", part, "n", price) is None
    silent = PromptShare(who="ann", model="m", calls=0.0, input_tokens=0.0, output_tokens=0.0)
    assert _figure("cost", silent, "n", price) == 0.0


def score(about: str, position: int, timestamp: str | None, label: str, who: str = "ann") -> LabeledScore:
    return {
        "evaluator": "tone",
        "dimension": "",
        "about": about,
        "target": "t",
        "who": who,
        "humanLabel": "good",
        "humanValue": None,
        "level": "session",
        "evaluatorDigest": "d",
        "label": label,
        "value": None,
        "timestamp": timestamp,
        "sessionId": "j",
        "position": position,
    }


def test_the_latest_score_of_a_target_comes_first() -> None:
    rows = [
        score("s", 1, None, "oldest"),
        score("s", 2, "2026-01-02", "newest"),
        score("s", 3, "2026-01-01", "older"),
        score("s", 9, "2026-01-02", "newest of all", who="bob"),
        score("other", 1, "2026-01-01", "bad"),
    ]
    first, second = _judged_targets(rows)
    assert [each.label for each in first.machine] == ["newest of all", "newest", "older", "oldest"]
    assert (first.session, first.target, sorted(first.human)) == ("s", "t", ["ann", "bob"])
    assert [each.label for each in second.machine] == ["bad"]


def test_labels_in_an_order_of_three_are_places() -> None:
    places = {"bad": 0, "fair": 1, "good": 2}
    assert [_coded(LabelValue(label=label), places) for label in ("good", "bad", "odd")] == [2, 0, -1]
    assert _coded(LabelValue(label="good"), {"bad": 0, "good": 1}) == "good"
