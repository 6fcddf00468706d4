"""What each of several judges of one evaluator cost, how far they agree, and which threshold would do."""

import json

import pytest

from proctor.jobs.evaluation.panels import panels_of

KEY = ("grade", "v1", "")
DEFINITION = {"evaluatorConfig": {"llmAsAJudge": {"escalation": {"below": 0.7, "agreement": 0.8}}}}


def ballot(label, cost, confidence=None, because=(), model="p/m"):
    values = {"model": model, "label": label, "value": None, "costUsd": cost}
    return {**values, "confidence": confidence, "because": list(because)}


def row(number, label, *ballots):
    about = {"evaluator": "grade", "evaluatorDigest": "v1", "dimension": "", "target": "t"}
    return {
        **about,
        "scoredSessionId": f"s{number}",
        "label": label,
        "value": None,
        "ballots": json.dumps(ballots),
    }


def escalated(number, confidence, first, second, *, is_sampled=True):
    """One result of a first judge and a second one, at 0.7."""
    because = [*(["unsure"] if confidence < 0.7 else []), *(["sample"] if is_sampled else [])]
    ballots = [ballot(first, 0.01, confidence, model="p/cheap")]
    if because:
        ballots.append(ballot(second, 0.1, because=because, model="p/dear"))
    return row(number, second if confidence < 0.7 else first, *ballots)


def panel_of(rows, people=None):
    return panels_of(rows, {KEY: people or {}}, {"grade": DEFINITION})[KEY]


def test_each_juror_has_its_cost_and_its_agreement_with_the_jury_and_with_people():
    rows = [
        row(
            number,
            "Yes",
            *[ballot(label, cost) for label, cost in zip(labels, (0.01, 0.02, None), strict=True)],
        )
        for number, labels in enumerate([("Yes", "Yes", "No")] * 6 + [("No", "Yes", "Yes")] * 2)
    ]

    panel = panel_of(rows, {("s0", "t"): "No", ("s7", "t"): "Yes"})

    assert (panel.kind, panel.escalated, panel.suggested) == ("jury", None, None)
    assert [each.cost_usd for each in panel.judges] == [pytest.approx(0.08), pytest.approx(0.16), None]
    assert [each.agreement.value for each in panel.judges] == [0.75, 1.0, 0.25]
    assert [each.people.value for each in panel.judges] == [0.0, 0.5, 1.0]
    assert (panel.people.value, panel.people.runs) == (0.5, 2)


def test_the_lowest_threshold_that_surely_keeps_the_agreement_wanted_is_suggested():
    # Wrong half of the time at 0.3, never above: 0.6 suffices, and 0.9 would ask the second judge more.
    rows = [escalated(number, 0.3, "Yes", "No" if number % 2 else "Yes") for number in range(40)]
    rows += [escalated(number, 0.6, "Yes", "Yes") for number in range(40, 70)]
    rows += [escalated(number, 0.9, "Yes", "Yes") for number in range(70, 100)]
    # Escalated alone: they say what was escalated and paid, and nothing about the threshold.
    rows += [escalated(number, 0.3, "Yes", "No", is_sampled=False) for number in range(100, 110)]

    panel = panel_of(rows, {("s1", "t"): "No", ("s40", "t"): "Yes"})

    assert (panel.sampled, panel.below, panel.suggested) == (100, 0.7, 0.6)
    assert panel.escalated.value == pytest.approx(80 / 110)
    shares = {each.below: each.escalated for each in panel.thresholds}
    assert shares == pytest.approx({0.3: 0.0, 0.6: 0.4, 0.7: 0.7, 0.9: 0.7})
    agreements = {each.below: each.agreement.value for each in panel.thresholds}
    assert agreements == pytest.approx({0.3: 0.8, 0.6: 1.0, 0.7: 1.0, 0.9: 1.0})
    costs = {each.below: each.cost_usd for each in panel.thresholds}
    assert costs == pytest.approx({0.3: 0.01, 0.6: 0.05, 0.7: 0.08, 0.9: 0.08})
    assert [(each.below, each.people.value) for each in panel.thresholds][:2] == [(0.3, 0.5), (0.6, 1.0)]
    first, second = panel.judges
    assert (first.model, first.results, first.cost_usd) == ("p/cheap", 110, pytest.approx(1.1))
    assert (second.model, second.results, second.cost_usd) == ("p/dear", 110, pytest.approx(11.0))
    assert first.agreement.value == pytest.approx(0.8)
    assert "0.6, which escalates 40%" in panel.note


def test_too_small_a_sample_suggests_nothing():
    panel = panel_of([escalated(number, 0.9, "Yes", "Yes") for number in range(29)])

    assert (panel.sampled, panel.suggested) == (29, None)
    assert "needs at least 30" in panel.note
