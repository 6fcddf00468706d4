"""The files of a run, in the form its scenario wants them."""

import json

import pytest
from stage import Stage

from proctor.scenario.run_files import documents
from proctor.scenario.state import ScenarioRun

CHECKS = {"world_state_coherence": {"severity": "low"}}


async def files_of(**changes):
    """The files of a run of one turn whose check found something."""
    stage = Stage(
        lambda request: "VERDICT: fail\nISSUES:\n- the tide ran backwards" if is_check(request) else None,
        **changes,
    )
    turn = await stage.play()
    return documents(
        stage.scenario,
        ScenarioRun(item_id="1", label="var-001-run-001", seed=1, total_turns=3, turns=(turn,)),
    )


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
    assert "metrics.csv" not in await files_of(metrics=metrics)
