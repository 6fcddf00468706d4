"""The files of a run, in the form its scenario wants them."""

import json

import pytest
from stage import PLAIN, Stage

from proctor.scenario.definition import scenario_of
from proctor.scenario.run_files import documents
from proctor.scenario.state import CheckCounts, ScenarioRun, ScenarioTurn

CHECKS = {"world_state_coherence": {"severity": "low"}}


async def files_of(**changes):
    """The files of a run of one turn whose check found something."""
    stage = Stage(
        lambda request: "VERDICT: fail\nISSUES:\n- the tide ran backwards" if is_check(request) else None,
        **changes,
    )
    await stage.play()
    return stage.files


def is_check(request):
    return "VERDICT" in request.messages[-1]["content"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("markdown", ["validation-001.md", "validation-summary.md"]),
        ("json", ["validation-001.json", "validation-summary.json"]),
        (
            "both",
            ["validation-001.json", "validation-001.md", "validation-summary.json", "validation-summary.md"],
        ),
    ],
)
async def test_what_the_checks_found_is_reported_as_the_scenario_says(wanted, names):
    made = await files_of(validation={"checks": CHECKS, "report_format": wanted})

    reports = {name: text for name, text in made.items() if name.startswith("validation")}
    assert sorted(reports) == names
    assert all("the tide ran backwards" in text for text in reports.values())
    for name, text in reports.items():
        if name.endswith(".json"):
            assert json.loads(text)["checks_run"] == 1


async def test_metrics_are_also_a_table_where_that_is_wanted():
    metrics = {"trust": {"type": "integer", "method": "regex", "pattern": r"trust: (\d+)"}}

    made = await files_of(metrics=metrics, metrics_csv=True)

    assert made["metrics.csv"] == "run_id,turn,metric,value\nvar-001-run-001,1,trust,\n"
    stage = Stage(lambda _: "UPDATED STATE: trust: 7", metrics=metrics, metrics_csv=True)
    await stage.play()
    assert stage.files["metrics.csv"].endswith("\nvar-001-run-001,1,trust,7\n")
    assert "metrics.csv" not in await files_of(metrics=metrics)


@pytest.mark.parametrize(
    ("reporting", "has", "has_not"),
    [
        ({"verbosity": "minimal"}, ["1 check, 1 issue"], ["backwards", "Explanation"]),
        ({}, ["the tide ran backwards"], ["Explanation", "Suggestion"]),
        (
            {"verbosity": "detailed", "include_suggestions": True},
            ["backwards", "Explanation: moon", "Suggestion: name the tide"],
            [],
        ),
    ],
)
async def test_the_reports_of_checks_are_as_long_as_the_scenario_says(reporting, has, has_not):
    def answer(request):
        prompt = request.messages[-1]["content"]
        suggestions = "\nSUGGESTIONS: name the tide" if "SUGGESTIONS" in prompt else ""
        answer = f"VERDICT: fail\nISSUES: the tide ran backwards\nEXPLANATION: moon{suggestions}"
        return answer if is_check(request) else None

    stage = Stage(answer, validation={"checks": CHECKS, "reporting": reporting})
    await stage.play()

    for report in (stage.files["validation-001.md"], stage.files["validation-summary.md"]):
        assert all(part in report for part in has)
        assert not any(part in report for part in has_not)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (CheckCounts(run=3), "3 checks, 0 issues"),
        (CheckCounts(run=3, unread=3), "3 checks, no verdict could be read"),
        (
            CheckCounts(run=3, issues=1, unread=1),
            "3 checks: 1 verdict could not be read; 1 issue in the other 2",
        ),
    ],
)
def test_verdicts_that_cannot_be_read_are_never_no_issues(counts, text):
    assert str(counts) == text


@pytest.mark.parametrize(
    ("warning", "critical", "value", "level"),
    [
        (5, 8, 4, ""),
        (5, 8, 5, "warning"),
        (5, 8, 8, "critical"),
        (5, 2, 6, ""),
        (5, 2, 5, "warning"),
        (5, 2, 2, "critical"),
        (5, 5, 6, "critical"),
        (5, 5, 4, ""),
        (5, None, 5, "warning"),
        (None, 5, 5, "critical"),
        (None, None, 5, ""),
        (5, 8, None, ""),
    ],
)
def test_a_value_has_the_level_of_the_threshold_it_has_reached(warning, critical, value, level):
    rule = {"type": "integer", "warning_threshold": warning, "critical_threshold": critical}
    scenario = scenario_of({**PLAIN, "metrics": {"trust": rule}})
    turn = ScenarioTurn(number=1, world_state="w", decisions={}, metrics={"trust": value})
    run = ScenarioRun(item_id="1", label="l", seed=1, total_turns=1, turns=(turn,))

    text = documents(scenario, run)["metrics.json"]

    assert [name for name in ("warning", "critical") if f'"{name}"' in text] == [level][: bool(level)]
