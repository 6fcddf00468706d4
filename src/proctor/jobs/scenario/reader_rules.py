"""Read the events, metrics and validation rules of a scenario, in either dialect."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import Place, PlanError, Problem
from proctor.json_values import as_list
from proctor.plan import source as sources
from proctor.plan.source import PlanSource, bytes_of
from proctor.plan.validate import did_you_mean
from proctor.plan.yaml_loader import read_source
from proctor.scenario.definition import (
    Measure,
    Plain,
    Reporting,
    ScenarioEvent,
    Validation,
    ValidationCheck,
    names_of,
)

Steps = tuple[str | int, ...]


@dataclass(slots=True)
class FolderReader:
    """Collects the origins of values, problems and remarks while a folder is read."""

    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Remarks that do not prevent a run."""
    origins: dict[Steps, tuple[PlanSource, Steps]] = field(default_factory=dict)

    def came_from(self, steps: Steps, source: PlanSource, path: Steps) -> None:
        """Record the origin of the value at `steps` of the plain form."""
        self.origins[steps] = (source, path)

    def problem(self, steps: Steps, problem: str, remedy: str = "") -> None:
        """Add a problem with a value of the plain form, at its place in a file."""
        self.problems.append(self.at(steps, problem, remedy))

    def at(self, steps: Steps, problem: str, remedy: str = "") -> Problem:
        """The problem at the place of the value, or of the nearest enclosing value that a file has."""
        for depth in range(len(steps), -1, -1):
            if steps[:depth] in self.origins:
                source, path = self.origins[steps[:depth]]
                return source.problem((*path, *steps[depth:]), problem, remedy)
        return Problem(at=Place("scenario", 1, 1), problem=problem, remedy=remedy)

    def unknown(self, source: PlanSource, path: Steps, known: Iterable[str], what: str) -> None:
        """Remark on an unknown name, which may be a typing error."""
        name, names = str(path[-1]), list(known)
        place = source.place(path, of_key=True)
        meant = did_you_mean(name, names)
        self.remarks.append(f"{place}: {what} has no `{name}`; it is not used. {meant}".rstrip())


def read_file(path: Path, findings: FolderReader) -> PlanSource | None:
    """A YAML file with a mapping; None when it cannot be read."""
    try:
        source = read_source(bytes_of(path), file=str(path))
    except PlanError as error:
        findings.problems += error.problems
        return None
    findings.problems += source.problems
    if not isinstance(source.data, dict):
        findings.problems.append(source.problem((), "this should be a mapping of names to values"))
        return None
    return source


def find_file(folders: Sequence[Path], *names: str) -> Path | None:
    """The first of these files that one of the folders has."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def as_texts(value: Any) -> Any:
    """A list of texts, from a list, a bulleted text or a mapping; anything else as it is."""
    if isinstance(value, str):
        lines = [line.strip().lstrip("-*•").strip() for line in value.splitlines()]
        return [line for line in lines if line]
    if isinstance(value, dict):
        return [f"{name}: {_as_text(level)}" for name, level in value.items()]
    if isinstance(value, list):
        return [entry for part in value for entry in _list_entries(part)]
    return value


def as_text(value: Any) -> Any:
    """One text, from a text or a list of texts; anything else as it is."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(f"- {part}" for part in value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_as_text(part)}" for name, part in value.items())
    return value


def refuse(findings: FolderReader) -> None:
    """Raise `PlanError` if there are problems."""
    if findings.problems:
        sources.refuse(findings.problems)


def _list_entries(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [f"{name}: {_as_text(level)}" for name, level in part.items()]
    return [part]


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_as_text(part)}" for name, part in value.items())
    return str(value)


TYPES = ("trend", "random", "conditional", "scheduled")
_LISTS = {
    "trends": "trend",
    "random_events": "random",
    "conditional_events": "conditional",
    "scheduled_events": "scheduled",
}
_SYNONYMS = {
    "trigger_turn": "turn",
    "condition": "conditions",
    "interval": "frequency",
    "chance": "probability",
    "probability_per_turn": "probability",
}
_NEEDED = {
    "random": ("probability",),
    "conditional": ("conditions", "world_state_contains"),
    "scheduled": ("turn", "turns"),
}


_OF_EVENT = ("name", "effect", "effects", "start_turn", "end_turn", "schedule")
"""Keys of an event that are read by themselves."""


def read_events(folders: list[Path], findings: FolderReader) -> dict[str, Plain]:
    """The events by name; none when there is no file."""
    path = find_file(folders, "exogenous-events.yaml", "exogenous-events.yml")
    source = read_file(path, findings) if path else None
    if source is None:
        return {}
    events: dict[str, Plain] = {}
    for at, kind, entry in _entries(source, findings):
        if not isinstance(entry, dict):
            findings.problems.append(source.problem(at, "an event is a mapping"))
            continue
        name = str(entry.get("name") or f"{kind or entry.get('type', 'event')} {len(events) + 1}")
        if name in events:
            findings.problems.append(source.problem(at, f"there are two events called `{name}`"))
            continue
        findings.came_from(("events", name), source, at)
        events[name] = _event(source, at, name, kind, entry, findings)
    return events


def black_swans(
    source: PlanSource, findings: FolderReader, *, known: Container[str] = ()
) -> dict[str, Plain]:
    """The rare events of scenario.yaml, if enabled. `known` are names in use."""
    written = source.data.get("black_swans")
    if not source.data.get("enable_black_swans") or not isinstance(written, list):
        return {}
    events: dict[str, Plain] = {}
    for index, entry in enumerate(written):
        at: Steps = ("black_swans", index)
        if isinstance(entry, dict):
            name = str(entry.get("name") or f"black swan {index + 1}")
            if name in known or name in events:
                findings.problems.append(source.problem(at, f"there are two events called `{name}`"))
                continue
            findings.came_from(("events", name), source, at)
            events[name] = _event(source, at, name, "random", entry, findings)
        else:
            findings.problems.append(source.problem(at, "an event is a mapping"))
    return events


def conditions_of(written: Any) -> Any:
    """Conditions by metric, from a mapping or from text such as `trust >= 7 and risk < 3`."""
    if not isinstance(written, str):
        return {} if written is None else written
    names: dict[str, str] = {}
    for part in written.replace(" AND ", " and ").split(" and "):
        name = part.strip()
        for mark in (">=", "<=", "==", "!=", ">", "<"):
            if mark in part:
                name, _, value = part.partition(mark)
                _add_comparison(names, name.strip(), f"{mark} {value.strip()}")
                break
        else:
            names[name] = ""
    return names


def _add_comparison(conditions: dict[str, str], metric: str, comparison: str) -> None:
    conditions[metric] = f"{conditions[metric]} and {comparison}" if metric in conditions else comparison


def _entries(source: PlanSource, findings: FolderReader) -> list[tuple[Steps, str, Any]]:
    """Each event with its place and the type that its list gives it."""
    written = source.data.get("exogenous_events", source.data.get("events"))
    key = "exogenous_events" if "exogenous_events" in source.data else "events"
    if isinstance(written, list):
        return [((key, index), "", entry) for index, entry in enumerate(written)]
    part, at = (written, (key,)) if isinstance(written, dict) else (source.data, ())
    effects: list[tuple[Steps, str, Any]] = []
    for name, kind in _LISTS.items():
        entries = part.get(name)
        if isinstance(entries, dict):
            findings.problems.append(source.problem((*at, name), f"`{name}` should be a list"))
        effects += [((*at, name, index), kind, entry) for index, entry in enumerate(entries or ())]
    return effects


def _event(
    source: PlanSource, at: Steps, name: str, kind: str, entry: Plain, findings: FolderReader
) -> Plain:
    event: Plain = {"type": kind} if kind else {}
    for key, value in entry.items():
        known = _SYNONYMS.get(key, key)
        if known in _OF_EVENT or value is None:
            continue
        if known not in names_of(ScenarioEvent):
            findings.unknown(source, (*at, key), [*names_of(ScenarioEvent), *_SYNONYMS], "an event")
            continue
        findings.came_from(("events", name, known), source, (*at, key))
        if known == "conditions" and isinstance(value, list):
            _list_conditions(source, (*at, key), name, event, value, findings)
        else:
            event[known] = conditions_of(value) if known == "conditions" else value
    if "start_turn" in entry or "end_turn" in entry:
        event.setdefault("turn_range", [entry.get("start_turn", 1), entry.get("end_turn", 10_000)])
    event.setdefault("description", name)
    _schedule(source, at, name, event, entry, findings)
    _effects(source, at, name, event, entry, findings)
    _check(event, name, findings)
    if event.get("type") == "trend" or len(as_list(event.get("turns"))) > 1:
        # An event that occurs once is neither a trend nor a series unless the author says so.
        event.setdefault("once", False)
    return event


def _list_conditions(
    source: PlanSource, at: Steps, name: str, event: Plain, entries: Sequence[object], findings: FolderReader
) -> None:
    """Conditions as a list: comparisons of metrics, and patterns of the world state."""
    conditions: dict[str, str] = {}
    patterns: list[Plain] = []
    for index, entry in enumerate(entries):
        place = (*at, index)
        if isinstance(entry, dict) and entry.get("type") == "world_state_contains":
            findings.came_from(("events", name, "world_state_contains", len(patterns)), source, place)
            patterns.append({key: part for key, part in entry.items() if key != "type"})
            continue
        for metric, comparison in _comparisons(source, place, entry, findings).items():
            findings.came_from(("events", name, "conditions", metric), source, place)
            _add_comparison(conditions, metric, comparison)
    if conditions or not patterns:
        event["conditions"] = conditions
    if patterns:
        event["world_state_contains"] = patterns


def _comparisons(source: PlanSource, at: Steps, entry: object, findings: FolderReader) -> dict[str, str]:
    """The comparisons of one entry: a text, a mapping by metric, or `metric`, `operator` and `value`."""
    known = ("metrics", "world_state_contains")
    if isinstance(entry, str):
        return dict(conditions_of(entry))
    if not isinstance(entry, dict):
        findings.problems.append(source.problem(at, "a condition is a text or a mapping"))
    elif "type" not in entry and "metric" not in entry:
        return {str(metric): str(comparison) for metric, comparison in entry.items()}
    elif entry.get("type", "metrics") not in ("metric", "metrics"):
        remedy = did_you_mean(str(entry["type"]), known) or f"There are: {', '.join(known)}."
        problem = f"there is no condition of type `{entry['type']}`"
        findings.problems.append(source.problem((*at, "type"), problem, remedy))
    elif not isinstance(entry.get("metric"), str) or entry.get("value") is None:
        problem = "a condition of type `metrics` has `metric`, `operator` and `value`"
        findings.problems.append(source.problem(at, problem))
    else:
        mark = str(entry.get("operator", "=="))
        return {entry["metric"]: f"{'==' if mark == '=' else mark} {entry['value']}"}
    return {}


def _schedule(
    source: PlanSource, at: Steps, name: str, event: Plain, entry: Plain, findings: FolderReader
) -> None:
    """`schedule: {turns: [3, 6]}`, or `{turn: 3}`."""
    schedule = entry.get("schedule")
    if schedule is None:
        return
    place = (*at, "schedule")
    if not isinstance(schedule, dict):
        findings.problems.append(source.problem(place, "`schedule` is a mapping: `{turns: [3, 6]}`"))
        return
    for key, value in schedule.items():
        if key in ("turn", "turns"):
            event[key] = [value] if key == "turns" and isinstance(value, int) else value
            findings.came_from(("events", name, key), source, (*place, key))
        else:
            findings.unknown(source, (*place, key), ("turn", "turns"), "`schedule`")


def _effects(
    source: PlanSource, at: Steps, name: str, event: Plain, entry: Plain, findings: FolderReader
) -> None:
    """`effect`, a text, and `effects`: texts, named values, or mappings with the turns they apply to."""
    effects: list[Plain] = []
    if entry.get("effect"):
        effects.append({"text": " ".join(_as_text(entry["effect"]).split())})
    written = entry.get("effects")
    if isinstance(written, list) and any(isinstance(part, dict) for part in written):
        effects += [_effect(part) for part in written]
    elif written:
        parts = [written] if isinstance(written, str) else as_texts(written)
        event["description"] = f"{event['description']} {'; '.join(map(str, parts))}"
    if effects:
        event["effects"] = effects
        findings.came_from(("events", name, "effects"), source, (*at, "effects" if written else "effect"))


def _effect(part: object) -> Plain:
    """One effect of an event, with the turns it is limited to."""
    if not isinstance(part, dict):
        return {"text": _as_text(part)}
    values = dict(part)
    effect: Plain = {}
    span = values.pop("turn_range", None)
    first, last = values.pop("start_turn", None), values.pop("end_turn", None)
    turn = values.pop("turn", None)
    if span is None and turn is not None:
        span = [turn, turn]
    if span is None and (first is not None or last is not None):
        span = [first or 1, last or 10_000]
    if span is not None:
        effect["turn_range"] = span
    texts = [_as_text(values.pop(key)) for key in ("description", "impact", "effect") if values.get(key)]
    texts += [
        f"{key.replace('_', ' ')}: {_as_text(value)}" for key, value in values.items() if value is not None
    ]
    effect["text"] = " ".join(_sentence(text) for text in texts if text.strip())
    return effect


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", ";", ":")) else f"{text}."


def _check(event: Plain, name: str, findings: FolderReader) -> None:
    kind = event.get("type")
    if kind not in TYPES:
        remedy = did_you_mean(str(kind), TYPES) or f"There are: {', '.join(TYPES)}."
        findings.problem(("events", name, "type"), f"the event `{name}` has no type `{kind}`", remedy)
        event["type"] = "trend"
        return
    needed = _NEEDED.get(kind)
    if needed and not any(key in event for key in needed):
        problem = f"the {kind} event `{name}` has no `{needed[0]}`"
        findings.problem(("events", name), problem, f"Add `{needed[0]}`.")


METRIC_TYPES = {
    **dict.fromkeys(("int", "integer", "count"), "integer"),
    **dict.fromkeys(("float", "continuous", "number", "numeric", "percentage"), "float"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("str", "string", "text", "categorical", "category"), "string"),
}
METHODS = {
    **dict.fromkeys(("regex", "pattern"), "regex"),
    **dict.fromkeys(("keyword", "keywords"), "keyword"),
    **dict.fromkeys(("llm", "model"), "model"),
    "manual": "manual",
}
_METRIC_SYNONYMS = {
    "data_type": "type",
    "extraction_method": "method",
    "extraction_type": "method",
    "extraction_prompt": "prompt",
    "extraction_model": "model",
}
_OF_FILE = ("metrics", "scenario_name", "extraction_model", "thresholds", "export_format", "auto_export")
_REPORTS = {"md": "markdown", "markdown": "markdown", "json": "json", "both": "both"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Contents of metrics.yaml."""

    by_name: dict[str, Plain] = field(default_factory=dict)
    as_csv: bool = False
    """Whether they are also exported as a table."""


def read_metrics(folders: list[Path], findings: FolderReader) -> Metrics:
    """The metrics; none when there is no file."""
    path = find_file(folders, "metrics.yaml", "metrics.yml")
    source = read_file(path, findings) if path else None
    if source is None:
        return Metrics()
    written = source.data.get("metrics")
    entries: list[tuple[Steps, Any, Any]] = []
    if isinstance(written, dict):
        entries = [(("metrics", name), name, entry) for name, entry in written.items()]
    elif isinstance(written, list):
        entries = [
            (("metrics", index), entry.get("name") if isinstance(entry, dict) else None, entry)
            for index, entry in enumerate(written)
        ]
    elif written is not None:
        findings.problems.append(source.problem(("metrics",), "`metrics` should be a mapping or a list"))
    metrics: dict[str, Plain] = {}
    for at, name, entry in entries:
        if not isinstance(entry, dict) or not isinstance(name, str) or not name.strip():
            findings.problems.append(source.problem(at, "a metric is a mapping with a name"))
        elif name in metrics:
            findings.problems.append(source.problem(at, f"there are two metrics called `{name}`"))
        else:
            findings.came_from(("metrics", name), source, at)
            metrics[name] = _metric(source, at, name, entry, findings)
    _thresholds(source, metrics, findings)
    return Metrics(by_name=metrics, as_csv=_exports_csv(source, findings))


def _exports_csv(source: PlanSource, findings: FolderReader) -> bool:
    """Whether `export_format` is csv or both. They are written to the run's folder; JSON always is."""
    for key in source.data:
        if key not in _OF_FILE:
            findings.unknown(source, (key,), _OF_FILE, "metrics.yaml")
    export_format = str(source.data.get("export_format") or "json").lower()
    if export_format not in ("json", "csv", "both"):
        problem = f"`export_format` cannot be `{export_format}`"
        findings.problems.append(source.problem(("export_format",), problem, "There are: json, csv, both."))
    return export_format in ("csv", "both") and source.data.get("auto_export") is not False


def _metric(source: PlanSource, at: Steps, name: str, entry: Plain, findings: FolderReader) -> Plain:
    metric: Plain = {}
    parts: list[tuple[Steps, dict[str, Any]]] = [(at, entry)]
    if isinstance(entry.get("extraction"), dict):
        inner = {("method" if key == "type" else key): value for key, value in entry["extraction"].items()}
        parts.append(((*at, "extraction"), inner))
    for path, part in parts:
        for key, value in part.items():
            known = _METRIC_SYNONYMS.get(key, key)
            if known in ("name", "extraction") or value is None:
                continue
            if known not in names_of(Measure):
                findings.unknown(source, (*path, key), [*names_of(Measure), *_METRIC_SYNONYMS], "a metric")
                continue
            original = "type" if key == "method" and "extraction" in path else key
            findings.came_from(("metrics", name, known), source, (*path, original))
            metric[known] = as_texts(value) if known in ("keywords", "categories") else value
    if source.data.get("extraction_model") and metric.get("method") in ("llm", "model"):
        metric.setdefault("model", source.data["extraction_model"])
    _known_word(metric, "type", METRIC_TYPES, name, findings)
    _known_word(metric, "method", METHODS, name, findings)
    if metric.get("type") == "string" and "type" in metric and not metric.get("categories"):
        metric.pop("categories", None)
    _complete(metric, name, findings)
    return metric


def _known_word(metric: Plain, key: str, known: dict[str, str], name: str, findings: FolderReader) -> None:
    if key not in metric:
        if key == "method":
            metric[key] = "regex" if "pattern" in metric else "keyword" if "keywords" in metric else "manual"
        return
    written = str(metric[key]).lower()
    if written not in known:
        remedy = did_you_mean(written, known) or f"There are: {', '.join(sorted(set(known)))}."
        findings.problem(
            ("metrics", name, key), f"`{key}` of the metric `{name}` cannot be `{written}`", remedy
        )
    metric[key] = known.get(written, "float" if key == "type" else "manual")


def _complete(metric: Plain, name: str, findings: FolderReader) -> None:
    needed = {"regex": "pattern", "keyword": "keywords"}.get(metric["method"])
    if needed and not metric.get(needed):
        findings.problem(("metrics", name), f"the metric `{name}` has no `{needed}`", f"Add `{needed}`.")


def _thresholds(source: PlanSource, metrics: dict[str, Plain], findings: FolderReader) -> None:
    """The dialect with separate thresholds: `thresholds: {trust: {warning: 3, critical: 1}}`."""
    written = source.data.get("thresholds")
    for name, limits in (written if isinstance(written, dict) else {}).items():
        if name not in metrics:
            problem = f"there is no metric `{name}`"
            findings.problems.append(source.problem(("thresholds", name), problem, of_key=True))
        elif isinstance(limits, dict):
            for level in ("warning", "critical"):
                if level in limits:
                    metrics[name].setdefault(f"{level}_threshold", limits[level])


def read_validation(folders: list[Path], findings: FolderReader) -> Plain | None:
    """The validation rules; None when there is no file."""
    path = find_file(folders, "validation-rules.yaml", "validation-rules.yml")
    source = read_file(path, findings) if path else None
    if source is None:
        return None
    rules: Plain = {}
    findings.came_from(("validation",), source, ())
    for key, value in source.data.items():
        name = "generate_summary" if key == "generate_summary_report" else key
        if name == "checks" or value is None:
            continue
        findings.came_from(("validation", name), source, (key,))
        if name == "include_in_costs":
            if value is False:
                remedy = "Remove it: a limit that left something out would be none."
                findings.problem(("validation", name), "what checks cost is always counted", remedy)
        elif name not in names_of(Validation):
            findings.unknown(source, (key,), names_of(Validation), "validation-rules.yaml")
        elif name == "reporting" and isinstance(value, dict):
            rules[name] = _reporting(source, value, findings)
        elif name == "scenario_specific_rules":
            rules[name] = as_text(value)
        else:
            rules[name] = _REPORTS.get(str(value).lower(), value) if name == "report_format" else value
    rules["checks"] = _checks(source, findings)
    return rules


def _reporting(source: PlanSource, written: Plain, findings: FolderReader) -> Plain:
    for key in written:
        if key not in names_of(Reporting):
            findings.unknown(source, ("reporting", key), names_of(Reporting), "`reporting`")
    return {key: value for key, value in written.items() if key in names_of(Reporting) and value is not None}


def _checks(source: PlanSource, findings: FolderReader) -> dict[str, Plain]:
    written = source.data.get("checks")
    if not isinstance(written, dict):
        if written is not None:
            findings.problems.append(source.problem(("checks",), "`checks` should be a mapping"))
        return {}
    checks: dict[str, Plain] = {}
    for name, entry in written.items():
        at: Steps = ("checks", name)
        inner = entry if isinstance(entry, dict) else {"enabled": entry}
        if name == "custom" and inner and all(isinstance(part, dict) for part in inner.values()):
            for own, part in inner.items():
                checks[own] = _validation_check(source, (*at, own), own, part, findings)
        else:
            checks[name] = _validation_check(source, at, name, inner, findings)
    return checks


def _validation_check(
    source: PlanSource, at: Steps, name: str, entry: Plain, findings: FolderReader
) -> Plain:
    findings.came_from(("validation", "checks", name), source, at)
    values: Plain = {}
    for key, value in entry.items():
        if key in names_of(ValidationCheck):
            values[key] = value
        elif key != "name":
            findings.unknown(source, (*at, key), names_of(ValidationCheck), "a check")
    return values
