"""Figures of an experiment at their limits: few runs, cheap runs."""

from types import SimpleNamespace

import pytest

from proctor.jobs.scenario.analysis import BatchAnalyzer
from proctor.stats import experiment


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
