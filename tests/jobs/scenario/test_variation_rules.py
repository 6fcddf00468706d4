"""Combinations of values: numbers, samples, exclusions; and all that a scenario's files may get wrong."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scenario_folders import EVENTS, METRICS, SCENARIO, write_scenario

from proctor.errors import PlanError
from proctor.jobs.scenario import variations
from proctor.jobs.scenario.experiment import read_experiment
from proctor.jobs.scenario.reader import read_scenario
from proctor.jobs.scenario.variations import VariationDimension

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


def dimension(path: str, *values: Any) -> VariationDimension:
    return VariationDimension(name=path, path=path, values=values, at=("variations", 0, "values"))


DIMENSIONS = [dimension("a", 1, 2, 3), dimension("b", "x", "y")]
ALL = [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y")]


def source(**data: Any) -> Any:
    return SimpleNamespace(data=data, problem=lambda at, problem, remedy="", **_: (at, problem, remedy))


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ([], ALL),
        ([{}], ALL),
        ([{0: [2]}], [each for each in ALL if each[0] != 2]),
        ([{0: [2], 1: ["x"]}], [each for each in ALL if each != (2, "x")]),
        ([{0: [2]}, {1: ["y"]}], [(1, "x"), (3, "x")]),
    ],
)
def test_exclusions_match_all_their_values(excluded: Any, left: list[Any]) -> None:
    assert list(variations._combinations(source(), DIMENSIONS, excluded, [])) == left


def test_samples_have_their_size_are_in_order_and_depend_on_the_seed() -> None:
    def drawn(**data: Any) -> list[Any]:
        return list(variations._combinations(source(**data), DIMENSIONS, [], []))

    assert drawn(sample=6) == drawn(sample=7) == ALL
    five = drawn(sample=5)
    assert len(five) == 5 and five == [each for each in ALL if each in five]
    assert drawn(sample=3) == drawn(sample=3, seed=0) == drawn(sample=3, seed=None)
    assert len({tuple(drawn(sample=3, seed=seed)) for seed in range(10)}) > 1
    # Exclusions that leave less than the sample end it.
    left = variations._combinations(source(sample=3), DIMENSIONS, [{0: [2, 3]}], [])
    assert list(left) == [(1, "x"), (1, "y")]


@pytest.mark.parametrize(("number", "is_refused"), [(100_000, False), (100_001, True)])
def test_a_hundred_thousand_variations_are_the_most(number: int, is_refused: bool) -> None:
    found: list[Any] = []
    many = [dimension("a", *range(number))]
    first = next(variations._combinations(source(), many, [], found), None)
    assert (first is None) is is_refused and len(found) == is_refused
    if is_refused:
        assert found[0][1] == "these come to 100,001 variations"
        assert next(variations._combinations(source(sample=5), many, [], [])) is not None


def test_zipped_values_stand_at_the_same_place() -> None:
    pairs = [dimension("a", 1, 2), dimension("b", "x", "y")]
    assert list(variations._combinations(source(combine="zip"), pairs, [], [])) == [(1, "x"), (2, "y")]
    assert list(variations._combinations(source(combine="zip"), [], [], [])) == [()]
    assert list(variations._combinations(source(), [], [], [])) == [()]


def test_a_variation_names_its_values_and_where_they_stand() -> None:
    model = VariationDimension(
        name="port", path="actors.port.llm_model", values=["a/x", "b/c/y"], at=("variations", 0, "values")
    )
    same = VariationDimension(name="n", path="n", values=[1, True, 1.0], at=("variations", 1, "values"))
    found = variations._variation(4, [model, same], ("b/c/y", True))
    assert (found.number, found.description) == (4, "port=y, n=True")
    assert found.changes == {"actors.port.llm_model": "b/c/y", "n": True}
    assert found.factors == {"port": "b/c/y", "n": "True"}
    assert found.origins == {
        "actors.port.llm_model": ("variations", 0, "values", 1),
        "n": ("variations", 1, "values", 1),
    }
    assert variations._variation(1, [same], (1.0,)).origins["n"][-1] == 2
    assert variations._position([1, 2], 3) == 0
    assert variations._variation(1, [], ()).description == "Base configuration"
    assert len(variations._short("x" * 100)) == 40 and variations._short("a\n b") == "a b"


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
