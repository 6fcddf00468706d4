"""Read a scenario's metrics and validation rules, in either dialect.

Knows nothing of how a metric is measured or a check is run.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.plan.scenario_sources import Findings, Steps, as_texts, find_file, read_file
from proctor.plan.source import Source
from proctor.plan.suggest import did_you_mean
from proctor.scenario.definition import Check, Measure, Plain, Validation, names_of

TYPES = {
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
_SYNONYMS = {
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
    """What metrics.yaml says."""

    by_name: dict[str, Plain] = field(default_factory=dict)
    as_csv: bool = False
    """Whether they are also exported as a table."""


def read_metrics(folders: list[Path], findings: Findings) -> Metrics:
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
    found: dict[str, Plain] = {}
    for at, name, entry in entries:
        if not isinstance(entry, dict) or not isinstance(name, str) or not name.strip():
            findings.problems.append(source.problem(at, "a metric is a mapping with a name"))
        elif name in found:
            findings.problems.append(source.problem(at, f"there are two metrics called `{name}`"))
        else:
            findings.came_from(("metrics", name), source, at)
            found[name] = _metric(source, at, name, entry, findings)
    _thresholds(source, found, findings)
    return Metrics(by_name=found, as_csv=_exports_csv(source, findings))


def _exports_csv(source: Source, findings: Findings) -> bool:
    """`export_format: csv` or `both`. A run's own folder is where they go; JSON is always there."""
    for key in source.data:
        if key not in _OF_FILE:
            findings.unknown(source, (key,), _OF_FILE, "metrics.yaml")
    wanted = str(source.data.get("export_format") or "json").lower()
    if wanted not in ("json", "csv", "both"):
        problem = f"`export_format` cannot be `{wanted}`"
        findings.problems.append(source.problem(("export_format",), problem, "There are: json, csv, both."))
    return wanted in ("csv", "both") and source.data.get("auto_export") is not False


def _metric(source: Source, at: Steps, name: str, entry: dict[str, Any], findings: Findings) -> Plain:
    metric: Plain = {}
    parts: list[tuple[Steps, dict[str, Any]]] = [(at, entry)]
    if isinstance(entry.get("extraction"), dict):
        inner = {("method" if key == "type" else key): value for key, value in entry["extraction"].items()}
        parts.append(((*at, "extraction"), inner))
    for place, part in parts:
        for key, value in part.items():
            known = _SYNONYMS.get(key, key)
            if known in ("name", "extraction") or value is None:
                continue
            if known not in names_of(Measure):
                findings.unknown(source, (*place, key), [*names_of(Measure), *_SYNONYMS], "a metric")
                continue
            original = "type" if key == "method" and "extraction" in place else key
            findings.came_from(("metrics", name, known), source, (*place, original))
            metric[known] = as_texts(value) if known in ("keywords", "categories") else value
    if source.data.get("extraction_model") and metric.get("method") in ("llm", "model"):
        metric.setdefault("model", source.data["extraction_model"])
    _known_word(metric, "type", TYPES, name, findings)
    _known_word(metric, "method", METHODS, name, findings)
    if metric.get("type") == "string" and "type" in metric and not metric.get("categories"):
        metric.pop("categories", None)
    _complete(metric, name, findings)
    return metric


def _known_word(metric: Plain, key: str, words: dict[str, str], name: str, findings: Findings) -> None:
    if key not in metric:
        if key == "method":
            metric[key] = "regex" if "pattern" in metric else "keyword" if "keywords" in metric else "manual"
        return
    written = str(metric[key]).lower()
    if written not in words:
        remedy = did_you_mean(written, words) or f"There are: {', '.join(sorted(set(words)))}."
        findings.problem(
            ("metrics", name, key), f"`{key}` of the metric `{name}` cannot be `{written}`", remedy
        )
    metric[key] = words.get(written, "float" if key == "type" else "manual")


def _complete(metric: Plain, name: str, findings: Findings) -> None:
    needed = {"regex": "pattern", "keyword": "keywords"}.get(metric["method"])
    if needed and not metric.get(needed):
        findings.problem(("metrics", name), f"the metric `{name}` has no `{needed}`", f"Add `{needed}`.")


def _thresholds(source: Source, metrics: dict[str, Plain], findings: Findings) -> None:
    """The dialect that keeps them apart: `thresholds: {trust: {warning: 3, critical: 1}}`."""
    written = source.data.get("thresholds")
    for name, limits in (written if isinstance(written, dict) else {}).items():
        if name not in metrics:
            problem = f"there is no metric `{name}`"
            findings.problems.append(source.problem(("thresholds", name), problem, of_key=True))
        elif isinstance(limits, dict):
            for level in ("warning", "critical"):
                if level in limits:
                    metrics[name].setdefault(f"{level}_threshold", limits[level])


def read_validation(folders: list[Path], findings: Findings) -> Plain | None:
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
        else:
            rules[name] = _REPORTS.get(str(value).lower(), value) if name == "report_format" else value
    rules["checks"] = _checks(source, findings)
    return rules


def _checks(source: Source, findings: Findings) -> dict[str, Plain]:
    written = source.data.get("checks")
    if not isinstance(written, dict):
        if written is not None:
            findings.problems.append(source.problem(("checks",), "`checks` should be a mapping"))
        return {}
    found: dict[str, Plain] = {}
    for name, entry in written.items():
        at: Steps = ("checks", name)
        inner = entry if isinstance(entry, dict) else {"enabled": entry}
        if name == "custom" and inner and all(isinstance(part, dict) for part in inner.values()):
            for own, part in inner.items():
                found[own] = _check(source, (*at, own), own, part, findings)
        else:
            found[name] = _check(source, at, name, inner, findings)
    return found


def _check(source: Source, at: Steps, name: str, entry: dict[str, Any], findings: Findings) -> Plain:
    findings.came_from(("validation", "checks", name), source, at)
    made: Plain = {}
    for key, value in entry.items():
        if key in names_of(Check):
            made[key] = value
        elif key != "name":
            findings.unknown(source, (*at, key), names_of(Check), "a check")
    return made
