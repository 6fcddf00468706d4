"""Combinations of values: numbers, samples, exclusions; and all that a scenario's files may get wrong."""

from pathlib import Path
from typing import Any

import pytest
from scenario_folders import EVENTS, METRICS, SCENARIO, write_scenario

from proctor.errors import PlanError
from proctor.jobs.scenario import variations
from proctor.jobs.scenario.experiment import read_experiment
from proctor.jobs.scenario.reader import read_scenario

HEAD = "experiment_name: Fees\nbase_scenario: harbour\n"
TURNS = "{type: scenario_parameter, parameter: turns, values: [3, 6]}"
PORT = "{type: actor_model, actor: port, values: [scripted/echo, scripted/ok, scripted/x]}"


def read(folder: Path, text: str) -> Any:
    write_scenario(folder / "harbour")
    return read_experiment(HEAD + text, path=folder / "config.yaml", working_folder=folder)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(PlanError) as refused:
        read(folder, text)
    return [each.problem for each in refused.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"variations: [{TURNS}]\nexclude: [{{turns: [3, 6]}}]\n",
            "everything is excluded",
        ),
        (f"variations: [{TURNS}, {TURNS}]\n", "`turns` is varied twice"),
        (
            f"variations: [{TURNS}, {{type: scenario_parameter, parameter: num_turns, values: [9]}}]\n",
            "`turns` is varied twice",
        ),
        (
            "variations: [{type: scenario_parameter, values: [1]}]\n",
            "a variation of type `scenario_parameter` needs a `parameter`",
        ),
        (
            "variations: [{type: actor_parameter, actor: port, values: [1]}]\n",
            "a variation of type `actor_parameter` needs a `parameter`",
        ),
        ("variations: [{type: actor_model, values: [a/b]}]\n", "which `actor`?"),
        (
            f"variations: [{TURNS}, {PORT}]\ncombine: zip\n",
            "to be zipped, all need as many values: turns 2, port 3",
        ),
    ],
)
def test_variations_that_cannot_be_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    assert problem in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("num_turns", "turns"),
        ("turns", "turns"),
        ("actors.port.model", "actors.port.llm_model"),
        ("actors.port.llm_model", "actors.port.llm_model"),
        ("actors.port", "actors.port"),
        ("other.port.model", "other.port.model"),
    ],
)
def test_paths_have_the_names_of_the_plain_form(written: str, path: str) -> None:
    assert variations.real_path(written) == path


# --- Files of a scenario ---


def refused(folder: Path, files: dict[str, str | None]) -> list[str]:
    write_scenario(folder, files)
    with pytest.raises(PlanError) as error:
        read_scenario(folder)
    return [each.problem for each in error.value.problems]


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("exogenous-events.yaml", "exogenous_events: [5]\n", "an event is a mapping"),
        ("metrics.yaml", "metrics: 5\n", "`metrics` should be a mapping or a list"),
        ("metrics.yaml", "metrics: [5]\n", "a metric is a mapping with a name"),
        (
            "metrics.yaml",
            "metrics:\n- {name: a, type: int, extraction_method: manual}\n"
            "- {name: a, type: int, extraction_method: manual}\n",
            "there are two metrics called `a`",
        ),
        ("metrics.yaml", METRICS + "thresholds: {mood: {warning: 3}}\n", "there is no metric `mood`"),
        ("scenario.yaml", SCENARIO.replace("[port, ferry]", "[port, port]"), "`port` is listed twice"),
        ("scenario.yaml", SCENARIO.replace("[port, ferry]", "5"), "`actors` should be a list of short names"),
        ("validation-rules.yaml", "checks: 5\n", "`checks` should be a mapping"),
        (
            "metrics.yaml",
            "metrics: {a: {type: int, extraction_method: regex}}\n",
            "the metric `a` has no `pattern`",
        ),
        (
            "metrics.yaml",
            "metrics: {a: {type: int, extraction_method: keyword}}\n",
            "the metric `a` has no `keywords`",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(file: str, text: str, problem: str, tmp_path: Path) -> None:
    assert problem in refused(tmp_path / "s", {file: text})


def test_thresholds_may_stand_beside_the_metrics(tmp_path: Path) -> None:
    text = METRICS + "thresholds: {cooperation_level: {warning: 3, critical: 1}}\n"
    write_scenario(tmp_path / "s", {"metrics.yaml": text})
    metric = read_scenario(tmp_path / "s").scenario.metrics["cooperation_level"]
    assert (metric.warning_threshold, metric.critical_threshold) == (3, 1)
    # Those of the metric itself come first.
    own = text.replace("    type: int\n", "    type: int\n    warning_threshold: 5\n")
    write_scenario(tmp_path / "s", {"metrics.yaml": own})
    metric = read_scenario(tmp_path / "s").scenario.metrics["cooperation_level"]
    assert (metric.warning_threshold, metric.critical_threshold) == (5, 1)


@pytest.mark.parametrize("events", [EVENTS, None])
def test_a_scenario_needs_no_events(events: str | None, tmp_path: Path) -> None:
    write_scenario(tmp_path / "s", {"exogenous-events.yaml": events})
    assert len(read_scenario(tmp_path / "s").scenario.events) == (4 if events else 0)


VALIDATION = """\
validation_model: scripted/ok
generate_summary_report: false
report_format: MD
scenario_specific_rules: [one, two]
reporting: {verbosity: detailed, nonsense: 1, include_suggestions: null}
checks:
  role: {enabled: true, name: Role}
  tone: false
  custom:
    own: {enabled: true, description: mine}
"""


def test_checks_of_the_answers_are_read(tmp_path: Path) -> None:
    write_scenario(tmp_path / "s", {"validation-rules.yaml": VALIDATION})
    loaded = read_scenario(tmp_path / "s")
    validation = loaded.scenario.validation
    assert validation is not None and set(validation.checks) == {"role", "tone", "own"}
    assert [validation.checks[name].enabled for name in ("role", "tone", "own")] == [True, False, True]
    assert (validation.generate_summary, validation.report_format) == (False, "markdown")
    assert validation.reporting.verbosity == "detailed"
    assert any("nonsense" in remark for remark in loaded.remarks)
    assert "one" in validation.scenario_specific_rules and "two" in validation.scenario_specific_rules
