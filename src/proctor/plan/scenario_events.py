"""Read what happens in a scenario besides what its actors do, in either dialect.

Knows nothing of when anything happens in a run.
"""

from collections.abc import Container
from pathlib import Path
from typing import Any

from proctor.plan.scenario_sources import Findings, Steps, find_file, read_file
from proctor.plan.source import Source
from proctor.plan.suggest import did_you_mean
from proctor.scenario.definition import Event, Plain, names_of

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
}
_NEEDED = {"random": "probability", "conditional": "conditions", "scheduled": "turn"}


def read_events(folders: list[Path], findings: Findings) -> dict[str, Plain]:
    """The events by name; none when there is no file."""
    path = find_file(folders, "exogenous-events.yaml", "exogenous-events.yml")
    source = read_file(path, findings) if path else None
    if source is None:
        return {}
    found: dict[str, Plain] = {}
    for at, kind, entry in _entries(source, findings):
        if not isinstance(entry, dict):
            findings.problems.append(source.problem(at, "an event is a mapping"))
            continue
        name = str(entry.get("name") or f"{kind or entry.get('type', 'event')} {len(found) + 1}")
        if name in found:
            findings.problems.append(source.problem(at, f"there are two events called `{name}`"))
            continue
        findings.came_from(("events", name), source, at)
        found[name] = _event(source, at, name, kind, entry, findings)
    return found


def black_swans(source: Source, findings: Findings, *, known: Container[str] = ()) -> dict[str, Plain]:
    """The rare events of scenario.yaml, where they are switched on. `known` are names that are taken."""
    written = source.data.get("black_swans")
    if not source.data.get("enable_black_swans") or not isinstance(written, list):
        return {}
    found: dict[str, Plain] = {}
    for index, entry in enumerate(written):
        at: Steps = ("black_swans", index)
        if isinstance(entry, dict):
            name = str(entry.get("name") or f"black swan {index + 1}")
            if name in known or name in found:
                findings.problems.append(source.problem(at, f"there are two events called `{name}`"))
                continue
            findings.came_from(("events", name), source, at)
            found[name] = _event(source, at, name, "random", entry, findings)
        else:
            findings.problems.append(source.problem(at, "an event is a mapping"))
    return found


def conditions_of(written: Any) -> Any:
    """Conditions by metric, from a mapping or from text such as `trust >= 7 and risk < 3`."""
    if not isinstance(written, str):
        return {} if written is None else written
    found: dict[str, str] = {}
    for part in written.replace(" AND ", " and ").split(" and "):
        name = part.strip()
        for mark in (">=", "<=", "==", "!=", ">", "<"):
            if mark in part:
                name, _, value = part.partition(mark)
                found[name.strip()] = f"{mark} {value.strip()}"
                break
        else:
            found[name] = ""
    return found


def _entries(source: Source, findings: Findings) -> list[tuple[Steps, str, Any]]:
    """Each event with its place and the type that its list gives it."""
    written = source.data.get("exogenous_events", source.data.get("events"))
    key = "exogenous_events" if "exogenous_events" in source.data else "events"
    if isinstance(written, list):
        return [((key, index), "", entry) for index, entry in enumerate(written)]
    part, at = (written, (key,)) if isinstance(written, dict) else (source.data, ())
    found: list[tuple[Steps, str, Any]] = []
    for name, kind in _LISTS.items():
        entries = part.get(name)
        if isinstance(entries, dict):
            findings.problems.append(source.problem((*at, name), f"`{name}` should be a list"))
        found += [((*at, name, index), kind, entry) for index, entry in enumerate(entries or ())]
    return found


def _event(
    source: Source, at: Steps, name: str, kind: str, entry: dict[str, Any], findings: Findings
) -> Plain:
    event: Plain = {"type": kind} if kind else {}
    for key, value in entry.items():
        known = _SYNONYMS.get(key, key)
        if known in ("name", "effects", "start_turn", "end_turn") or value is None:
            continue
        if known not in names_of(Event):
            findings.unknown(source, (*at, key), [*names_of(Event), *_SYNONYMS], "an event")
            continue
        event[known] = conditions_of(value) if known == "conditions" else value
        findings.came_from(("events", name, known), source, (*at, key))
    if "start_turn" in entry or "end_turn" in entry:
        event.setdefault("turn_range", [entry.get("start_turn", 1), entry.get("end_turn", 10_000)])
    if entry.get("effects"):
        event["description"] = f"{event.get('description', name)} {_effects(entry['effects'])}"
    event.setdefault("description", name)
    _check(event, name, findings)
    if event.get("type") == "trend":
        # What happens once is no trend; whoever means that says so.
        event.setdefault("once", False)
    return event


def _check(event: Plain, name: str, findings: Findings) -> None:
    kind = event.get("type")
    if kind not in TYPES:
        remedy = did_you_mean(str(kind), TYPES) or f"There are: {', '.join(TYPES)}."
        findings.problem(("events", name, "type"), f"the event `{name}` has no type `{kind}`", remedy)
        event["type"] = "trend"
        return
    needed = _NEEDED.get(kind)
    if needed and needed not in event:
        findings.problem(("events", name), f"the {kind} event `{name}` has no `{needed}`", f"Add `{needed}`.")


def _effects(effects: Any) -> str:
    if isinstance(effects, list):
        return "; ".join(map(str, effects))
    if isinstance(effects, dict):
        return "; ".join(f"{name}: {value}" for name, value in effects.items())
    return str(effects)
