"""Each example scenario runs as it is, on scripted models, and its experiment shows something."""

import re
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in (EXAMPLES / "experiments").glob("*.yaml"))
SHOWS = {
    "harbour-fee": "With port = scripted/models/patient, cooperation_level is",
    # What is said in a room changes votes, and what rules compute.
    "town-hall": "With mayor = scripted/models/frank, bridge_open is",
}
"""Examples whose analysis states an effect."""
RUNS = {"flood-crisis": 8, "harbour-fee": 20, "school-committee": 8, "town-hall": 16}
"""Those that state an effect have all of their runs; of the others two of a variation are enough."""


def test_each_example_scenario_has_its_experiment():
    assert {path.name for path in (EXAMPLES / "scenarios").iterdir()} == set(NAMES) == set(RUNS)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_is_analyzed(proctor, name):
    for part in ("scenarios", "experiments"):
        shutil.copytree(EXAMPLES / part, proctor.folder / "examples" / part)
    assert proctor.json("scenario", "validate", f"examples/scenarios/{name}")["remarks"] == []

    config = proctor.folder / "examples" / "experiments" / f"{name}.yaml"
    if name not in SHOWS:
        config.write_text(re.sub(r"runs_per_variation: \d+", "runs_per_variation: 2", config.read_text()))

    told = proctor.json("experiment", str(config))
    analyzed = proctor.json("analyze", f"experiments/{name}", "--report")

    assert told["successCount"] == told["itemCount"] == RUNS[name]
    assert analyzed["metrics_analysis"] and analyzed["patterns"]["stand_ins"]
    effects = " ".join(effect["statement"] for effect in analyzed["patterns"]["metric_effects"])
    assert SHOWS.get(name, "") in effects
    analysis = proctor.folder / "experiments" / name / "analysis"
    assert "Mock data" in (analysis / "analysis-report.md").read_text()


def names_in_the_files():
    from proctor.jobs.scenario.experiment import ExperimentConfig
    from proctor.jobs.scenario.reader import FEATURES
    from proctor.plan.validate import names_of as keys_of
    from proctor.scenario.definition import Actor, Measure, Scenario, Validation, names_of
    from proctor.scenario.prompts import built_in

    ours = {"notes", "metrics_csv", "method", "metrics", "events", "validation", "prompts"}
    ours |= {"about", "stop_when"}
    parts = [names_of(part) for part in (Actor, Measure, Scenario, Validation)]
    features = [FEATURES, *FEATURES.values()]
    named = {name for part in (*parts, *features) for name in part}
    return sorted({*keys_of(ExperimentConfig), *named, *built_in()} - ours)


def test_each_key_of_a_config_and_a_scenario_is_in_the_manual():
    manual = (EXAMPLES.parent / "docs" / "scenarios.md").read_text()
    names = names_in_the_files()

    assert names
    assert [name for name in names if f"`{name}`" not in manual and f"`{name}:" not in manual] == []
