"""Figures of an experiment at their limits: few runs, cheap runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.jobs.scenario.analysis import BatchAnalyzer
from proctor.stats import classical, differences, experiment


def run(success: bool, cost: float | None, level: str = "a", value: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(is_success=success, cost_usd=cost, metrics={"trust": value}, level=level)


def test_the_cost_of_a_success_is_known_for_cheap_runs_too():
    runs = {1: [run(True, 0.2), run(False, 0.2), run(True, None)], 2: [run(True, 0.0)], 3: [run(False, 0.5)]}
    holder = SimpleNamespace(study=SimpleNamespace(descriptions=runs), _of=runs.__getitem__)

    rows = BatchAnalyzer._cost_efficiency(holder)

    facts = [(row["variation_id"], row["total_cost"], row["cost_per_success"]) for row in rows]
    assert facts == [(1, 0.4, 0.4), (3, 0.5, None)]
    assert [row["runs_per_dollar"] for row in rows] == [pytest.approx(2.5), 0]


def test_three_runs_are_enough_for_effects_of_factors(monkeypatch):
    study = SimpleNamespace(runs=[run(True, 0.1, level, float(number)) for number, level in enumerate("aab")])
    monkeypatch.setattr(experiment, "levels_of", lambda _: {"fee": ["a", "b"]})
    monkeypatch.setattr(experiment, "level_of", lambda _, each, factor: each.level)
    holder = SimpleNamespace(study=study, level_contrasts=[])
    holder._coded = lambda *given: BatchAnalyzer._coded(holder, *given)

    assert len(BatchAnalyzer.factor_effects(holder, "trust")) == 1
    study.runs.pop()
    assert BatchAnalyzer.factor_effects(holder, "trust") == []


def contrast(
    factor: str, p: float | None, adjusted: float | None, left_out: str = "", clear: bool = False
) -> SimpleNamespace:
    difference = SimpleNamespace(p=p, p_adjusted=adjusted)
    return SimpleNamespace(
        metric="trust", factor=factor, difference=difference, left_out=left_out, is_clear=clear
    )


def effects(monkeypatch, contrasts, p=0.02, constant=False) -> dict[str, dict[str, Any]]:
    """Of three factors; each interaction has the p value that is given."""
    runs = [run(True, 0.1, level, float(number)) for number, level in enumerate("abab")]
    runs.append(run(False, 0.1, "a", 9.0))
    levels = {name: ["a", "b"] for name in ("fee", "kind", "size")}
    monkeypatch.setattr(experiment, "levels_of", lambda _: levels)
    monkeypatch.setattr(experiment, "level_of", lambda _, each, factor: each.level)
    monkeypatch.setattr(experiment, "never_differs", lambda *_: constant)
    monkeypatch.setattr(classical, "factor_test", lambda *_: classical.Share(p=p, explained=0.25, freedom=1))
    holder = SimpleNamespace(study=SimpleNamespace(runs=runs), level_contrasts=contrasts)
    holder._coded = lambda *given: BatchAnalyzer._coded(holder, *given)
    return {row.pop("factor"): row for row in BatchAnalyzer.factor_effects(holder, "trust")}


def test_the_effect_of_a_factor_is_that_of_its_levels(monkeypatch):
    contrasts = [
        contrast("fee", 0.1, 0.4, clear=True),
        contrast("fee", 0.01, 0.04),
        contrast("fee", 0.001, 0.002, left_out="too few"),
        contrast("kind", 0.9, 1.5),
        contrast("kind", None, None),
    ]
    found = effects(monkeypatch, contrasts)
    assert found["fee"] == {
        "p": pytest.approx(0.03),
        "explained": 0.25,
        "freedom": 1,
        "p_corrected": 0.04,
        "n": 4,
        "test": "its levels",
        "is_significant": True,
        "note": "too few",
    }
    assert (found["kind"]["p"], found["kind"]["p_corrected"]) == (1.0, 1.0)
    assert (found["kind"]["is_significant"], found["kind"]["note"]) == (False, "")
    assert (found["size"]["p"], found["size"]["p_corrected"]) == (None, None)


@pytest.mark.parametrize(
    ("p", "corrected", "significant"),
    [(0.016, 0.048, True), (0.0167, 0.0501, False), (0.4, 1.0, False), (None, None, False)],
)
def test_interactions_are_corrected_for_their_number(monkeypatch, p, corrected, significant):
    found = effects(monkeypatch, [], p=p)
    assert list(found) == ["fee", "kind", "size", "fee × kind", "fee × size", "kind × size"]
    one = found["fee × kind"]
    assert (one["p"], one["test"], one["is_significant"], one["note"]) == (p, "F test", significant, "")
    assert one["p_corrected"] == (None if corrected is None else pytest.approx(corrected))


def test_an_interaction_of_values_that_never_differ_is_not_tested(monkeypatch):
    one = effects(monkeypatch, [], constant=True)["fee × kind"]
    assert (one["p"], one["p_corrected"], one["is_significant"]) == (None, None, False)


def numbered(repeat: int, seed: int | None, value: float = 1.0, success: bool = True) -> SimpleNamespace:
    return SimpleNamespace(repeat=repeat, seed=seed, is_success=success, metrics={"trust": value})


@pytest.mark.parametrize(
    ("first", "second", "is_paired"),
    [
        ([(1, 7), (2, 8)], [(1, 7), (2, 8)], True),
        ([(1, 7), (2, 8)], [(1, 7), (2, 9)], False),
        ([(1, None), (2, None)], [(1, None), (2, None)], False),
        ([(1, 7), (2, 8), (3, 9), (4, 1)], [(1, 7), (2, 8), (3, 3), (4, 4)], True),
        ([(n, n) for n in range(6)], [(0, 0), (1, 1), *((n, 9) for n in range(2, 6))], False),
        ([(n, n) for n in range(6)], [(0, 0), (1, 1), (2, 2), *((n, 9) for n in range(3, 6))], True),
    ],
)
def test_runs_of_equal_seed_are_paired_if_there_are_enough(monkeypatch, first, second, is_paired):
    asked: list[Any] = []
    monkeypatch.setattr(
        differences, "difference", lambda *given, **named: asked.append((given, named)) or "difference"
    )
    monkeypatch.setattr(experiment, "never_differs", lambda *_: False)
    by_number = {
        1: [numbered(*each, value=1.0) for each in first] + [numbered(99, 99, success=False)],
        2: [numbered(*each, value=2.0) for each in second],
    }
    holder = SimpleNamespace(study=SimpleNamespace(scales={"trust": (0, 10)}), _of=by_number.__getitem__)
    assert BatchAnalyzer._pair(holder, 1, 2, "trust") == "difference"
    ((values, named),) = asked
    common = sum(each in second for each in first)
    number = common if is_paired else len(first)
    assert values == ([2.0] * number, [1.0] * number)
    assert named == {"lo": 0, "hi": 10, "paired": is_paired}


def test_values_that_never_differ_have_no_scale(monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(differences, "difference", lambda *_, **named: asked.append(named))
    monkeypatch.setattr(experiment, "never_differs", lambda *_: True)
    runs = [numbered(1, 1), numbered(2, 2)]
    holder = SimpleNamespace(study=SimpleNamespace(scales={"trust": (0, 10)}), _of=lambda _: runs)
    BatchAnalyzer._pair(holder, 1, 2, "trust")
    assert asked == [{"lo": None, "hi": None, "paired": True}]


@pytest.mark.parametrize(("number", "pairs"), [(2, 1), (12, 66), (13, 12)])
def test_more_than_twelve_variations_are_compared_with_the_first(monkeypatch, number, pairs):
    compared: list[tuple[int, int]] = []
    monkeypatch.setattr(
        differences,
        "family",
        lambda all_: SimpleNamespace(members=all_, descriptive={}, left_out={}),
    )
    holder = SimpleNamespace(
        metrics=["trust"],
        study=SimpleNamespace(descriptions={n: f"v{n}" for n in range(1, number + 1)}),
        compare_variations=lambda _: [(n, 0.0) for n in range(number, 0, -1)],
        _pair=lambda a, b, metric: compared.append((a, b)) or (a, b),
    )
    found = BatchAnalyzer._pairs.func(holder)
    assert len(found) == len(compared) == pairs
    assert found[0] == ("trust", (1, 2), (1, 2), "")
    if number > 12:
        assert compared == [(1, n) for n in range(2, 14)]
