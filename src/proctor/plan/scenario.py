"""Read a scenario folder, in either dialect, into the one form that is played.

    scenario.yaml  actors/*.yaml  metrics.yaml  validation-rules.yaml  exogenous-events.yaml  prompts/*.j2

The folder may have all this below `definition/`. Everything wrong in any of the files is found together,
each at its line; what is merely odd is told as a remark.

Knows nothing of experiments, models or runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proctor.errors import Problem, UsageError
from proctor.plan.scenario_actors import read_actors
from proctor.plan.scenario_events import black_swans, conditions_of, read_events
from proctor.plan.scenario_measures import Metrics, read_metrics, read_validation
from proctor.plan.scenario_sources import Findings, Steps, as_text, find_file, read_file, refuse
from proctor.plan.source import Source, Spot
from proctor.plan.validate import shown, wanted_of
from proctor.scenario.definition import Plain, Scenario, names_of, scenario_of
from proctor.scenario.prompts import SUFFIX, built_in, fault_of

ALIASES = {
    "num_turns": "turns",
    "context_window": "context_window_size",
    "summarisation_model": "summarization_model",
}
_OF_OTHER_FILES = (
    *("actors", "metrics", "metrics_csv", "events", "validation", "prompts", "about", "stop_when"),
)
_OWN = [name for name in names_of(Scenario) if name not in _OF_OTHER_FILES]
_ABOUT = (
    *("background_information", "success_criteria", "schema_version", "created_date", "author", "tags"),
    *("enable_black_swans", "black_swans", "features", "scenario_length", "actors", "version", "notes"),
)
FEATURES: Mapping[str, tuple[str, ...]] = {
    "communications": ("enabled", "max_per_turn"),
    "exogenous_events": ("enabled",),
    "metrics_extraction": ("enabled",),
    "quality_assurance": ("enabled",),
    "context_management": ("enabled", "max_context_tokens", "summarization_model"),
}
_AT_START = Spot(1, 1)
LONGEST_BY_CONDITION = 50
"""Turns after which a scenario ends whose condition is never met, when it names no other number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A scenario folder whose every file is right."""

    folder: Path
    plain: Plain
    scenario: Scenario
    remarks: tuple[str, ...] = ()
    findings: Findings = field(repr=False)

    def problem(self, path: str, problem: str, remedy: str = "") -> Problem:
        """Something wrong with the value at a path, found by those who know more than the files."""
        return self.findings.at(tuple(path.split(".")), problem, remedy)


def read_scenario(folder: Path) -> Loaded:
    """Read and check a scenario folder. Raises `PlanError` with everything that is wrong."""
    folders = scenario_folders(folder)
    main = find_file(folders, "scenario.yaml", "scenario.yml")
    if main is None:
        raise UsageError(f"{folder} is no scenario: it has no scenario.yaml\nGive the path of its folder.")
    if main.parent != folder:
        folders.reverse()
    findings = Findings()
    source = read_file(main, findings)
    if source is None:
        refuse(findings)
        raise UsageError(f"{main} cannot be read")
    plain = _of_main(source, findings)
    plain["actors"] = read_actors(folders, source, findings)
    features = source.data.get("features") or {}
    metrics = read_metrics(folders, findings) if _is_on(features, "metrics_extraction") else Metrics()
    plain["metrics"] = metrics.by_name
    if metrics.as_csv:
        plain["metrics_csv"] = True
    events = read_events(folders, findings) if _is_on(features, "exogenous_events") else {}
    plain["events"] = {**events, **black_swans(source, findings, known=events)}
    if _is_on(features, "quality_assurance"):
        plain["validation"] = read_validation(folders, findings)
    plain["prompts"] = _prompts(folders, findings)
    _check_names(plain, findings)
    made = checked(plain, findings)
    refuse(findings)
    assert made is not None
    return Loaded(
        folder=folder, plain=plain, scenario=made, remarks=tuple(findings.remarks), findings=findings
    )


def scenario_folders(folder: Path) -> list[Path]:
    """Where the files of a scenario may stand."""
    return [folder, folder / "definition"]


def checked(plain: Plain, findings: Findings) -> Scenario | None:
    """The scenario, or None and what is wrong with its values among the findings."""
    try:
        return scenario_of(plain)
    except ValidationError as error:
        for path, problem, remedy in faults_of(error):
            findings.problem(path, problem, remedy)
        return None


def faults_of(error: ValidationError) -> list[tuple[Steps, str, str]]:
    """What is wrong with a plain scenario: each path, the problem in words, and the remedy."""
    found: list[tuple[Steps, str, str]] = []
    for detail in error.errors(include_url=False):
        path = tuple(step for step in detail["loc"] if not str(step).startswith("function-"))
        name = ".".join(map(str, path)) or "the scenario"
        if detail["type"] == "missing":
            around = ".".join(map(str, path[:-1])) or "the scenario"
            found.append((path[:-1], f"{around} has no `{path[-1]}`", f"Add `{path[-1]}`."))
        elif detail["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            found.append((path, f"there is no `{name}`", ""))
        else:
            wanted, remedy = wanted_of(detail)
            said = "" if detail["type"] == "value_error" else f", not {shown(detail['input'])}"
            found.append((path, f"`{name}` {wanted}{said}", remedy))
    return found


def _of_main(source: Source, findings: Findings) -> Plain:
    """What scenario.yaml itself says."""
    findings.came_from((), source, ())
    plain: Plain = {}
    about: dict[str, Any] = {}
    for key, value in source.data.items():
        name = ALIASES.get(key, key)
        if name in _OWN and value is not None:
            if name in plain:
                findings.problems.append(
                    source.problem((key,), f"`{key}` says again what `{name}` says", of_key=True)
                )
            plain[name] = as_text(value) if name in ("system_prompt", "description") else value
            findings.came_from((name,), source, (key,))
        elif name not in _OWN:
            about[key] = value
            if key not in _ABOUT:
                findings.unknown(source, (key,), [*_OWN, *_ABOUT, *ALIASES], "a scenario")
    _length(source, plain, findings)
    _features(source, plain, findings)
    left = ("features", "scenario_length", "actors", "black_swans", "enable_black_swans")
    plain["about"] = {name: value for name, value in about.items() if name not in left}
    return plain


def _length(source: Source, plain: Plain, findings: Findings) -> None:
    """`scenario_length`: a number of turns, or a condition and at most so many."""
    length = source.data.get("scenario_length")
    if isinstance(length, int) and not isinstance(length, bool):
        length = {"type": "fixed", "turns": length}
    if not isinstance(length, dict):
        if length is not None:
            findings.problems.append(source.problem(("scenario_length",), "`scenario_length` is a mapping"))
        return
    turns = length.get("turns", length.get("max_turns"))
    if turns is not None and "turns" not in plain:
        plain["turns"] = turns
        findings.came_from(("turns",), source, ("scenario_length", "turns"))
    if length.get("type") == "condition" or "condition" in length:
        plain.setdefault("turns", LONGEST_BY_CONDITION)
        plain["stop_when"] = conditions_of(length.get("condition"))
        findings.came_from(("stop_when",), source, ("scenario_length", "condition"))


def _features(source: Source, plain: Plain, findings: Findings) -> None:
    features = source.data.get("features")
    if not isinstance(features, dict):
        return
    talks, window = features.get("communications"), features.get("context_management")
    if isinstance(talks, bool):
        plain.setdefault("enable_bilateral_communication", talks)
    if isinstance(talks, dict):
        plain.setdefault("enable_bilateral_communication", bool(talks.get("enabled", True)))
        if "max_per_turn" in talks:
            plain.setdefault("max_communications_per_turn", talks["max_per_turn"])
            findings.came_from(
                ("max_communications_per_turn",), source, ("features", "communications", "max_per_turn")
            )
    if isinstance(window, dict):
        for name in ("summarization_model", "max_context_tokens"):
            if window.get(name) is not None:
                plain.setdefault(name, window[name])
                findings.came_from((name,), source, ("features", "context_management", name))
        if window.get("enabled") is False:
            # Nothing is managed: every turn is told in full, whatever that takes.
            plain["context_window_size"] = plain.get("turns", LONGEST_BY_CONDITION)
            plain.pop("max_context_tokens", None)
    _check_features(source, features, findings)


def _check_features(source: Source, features: Mapping[str, Any], findings: Findings) -> None:
    for name, feature in features.items():
        if name not in FEATURES:
            findings.unknown(source, ("features", name), FEATURES, "`features`")
        elif isinstance(feature, dict):
            for key in feature:
                if key not in FEATURES[name]:
                    findings.unknown(source, ("features", name, key), FEATURES[name], f"the feature `{name}`")
        elif not isinstance(feature, bool):
            problem = f"`{name}` is a mapping, or true or false"
            findings.problems.append(source.problem(("features", name), problem))


def _is_on(features: Any, name: str) -> bool:
    feature = features.get(name) if isinstance(features, dict) else None
    return feature is not False and not (isinstance(feature, dict) and feature.get("enabled") is False)


def _prompts(folders: list[Path], findings: Findings) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted((folder / "prompts").glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            text = path.read_text(encoding="utf-8", errors="replace")
            source = Source(str(path), text, None, _AT_START)
            if name not in built_in():
                findings.remarks.append(f"{path}: there is no prompt `{name}`; it is not used")
                continue
            fault = fault_of(text)
            if fault:
                findings.problems.append(source.problem_at(fault[0], 1, f"no template: {fault[1]}"))
            found.setdefault(name, text)
    return found


def _check_names(plain: Plain, findings: Findings) -> None:
    """Conditions name metrics that there are."""
    known: Mapping[str, Any] = plain["metrics"]
    if not known and findings.problems:
        # The metrics could not be read: that is said already, and nothing else about them is known.
        return
    named: list[tuple[Steps, Any]] = [(("stop_when",), plain.get("stop_when") or {})]
    named += [
        (("events", name, "conditions"), event.get("conditions") or {})
        for name, event in plain["events"].items()
    ]
    for steps, conditions in named:
        if not isinstance(conditions, Mapping):
            continue
        for metric in conditions:
            if metric.partition(".")[0] not in known:
                remedy = f"There are: {', '.join(known)}." if known else "metrics.yaml defines metrics."
                findings.problem((*steps, metric), f"there is no metric `{metric}`", remedy)
