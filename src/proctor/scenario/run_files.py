"""The files of a run: world states, decisions, talks, checks, metrics, costs, log and state.

Every file is a function of the run, so that it can be rewritten from the store at any time. Texts of actors
and narrator are kept verbatim.
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from proctor.formatting import plural
from proctor.json_values import as_map
from proctor.scenario.definition import EXTRACTION, Scenario, Validation
from proctor.scenario.state import (
    COMPLETED,
    EVALUATORS,
    Issue,
    PrivateTalk,
    ScenarioCall,
    ScenarioRun,
    ScenarioTurn,
    Value,
    calls_of,
    turn_as_plain,
    turn_of,
)
from proctor.validity import served_of

OF_VARIABLES = "rules"
"""Method of the metrics in `metrics.json` that are variables of the world."""
_SUFFIXES = {"markdown": (".md",), "json": (".json",), "both": (".md", ".json")}


def turn_report(rules: Validation, turn: ScenarioTurn) -> dict[str, str]:
    """The check report of one turn, by file name."""
    text = f"# Checks of turn {turn.number}\n\n{turn.checks}\n"
    if rules.reporting.verbosity != "minimal":
        text += "".join(_line(issue, rules) for issue in turn.issues)
    return _report_files(rules, f"validation-{turn.number:03d}", text, _checks_of(turn))


def summary_report(rules: Validation, run: ScenarioRun) -> dict[str, str]:
    """The check report of a run, by file name."""
    issues = [(turn.number, issue) for turn in run.turns for issue in turn.issues]
    head = f"# Checks of {run.label}\n\n{plural(len(run.turns), 'turn')}, {run.checks}\n\n"
    lines = [f"- turn {number}: {_line(issue, rules).removeprefix('- ')}" for number, issue in issues]
    if rules.reporting.verbosity == "minimal":
        lines = []
    document = {
        "run_id": run.label,
        "checks_run": run.checks.run,
        "checks_unread": run.checks.unread,
        "turns": [_checks_of(turn) for turn in run.turns],
    }
    return _report_files(rules, "validation-summary", head + "".join(lines), document)


def _report_files(rules: Validation, name: str, text: str, document: Mapping[str, Any]) -> dict[str, str]:
    as_json = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    contents = {".md": text, ".json": as_json}
    return {name + suffix: contents[suffix] for suffix in _SUFFIXES[rules.report_format]}


def _checks_of(turn: ScenarioTurn) -> dict[str, Any]:
    issues = [asdict(issue) for issue in turn.issues]
    counts = {"checks_run": turn.checks_run, "checks_unread": turn.checks_unread}
    return {"turn": turn.number, **counts, "issues": issues}


def _line(issue: Issue, rules: Validation) -> str:
    who = f" ({issue.actor})" if issue.actor else ""
    text = f"- **{issue.severity}** {issue.check}{who}: {issue.text}\n"
    if issue.explanation and rules.reporting.verbosity == "detailed":
        text += f"  - Explanation: {_document_line(issue.explanation)}\n"
    if issue.suggestion:
        text += f"  - Suggestion: {_document_line(issue.suggestion)}\n"
    return text


LOG = "scenario.log"


def documents(scenario: Scenario, run: ScenarioRun, *, since: int = 0) -> dict[str, str]:
    """The files of a run by name; of the turns only those from `since` on."""
    files: dict[str, str] = {}
    if since == 0:
        files["world-state-000.md"] = _world(scenario, 0, scenario.initial_world_state)
    for turn in run.turns:
        if turn.number >= since:
            files |= _of_turn(scenario, turn)
    if scenario.validation and scenario.validation.generate_summary:
        files |= summary_report(scenario.validation, run)
    files["metrics.json"] = as_json(metrics_document(scenario, run))
    if scenario.metrics_csv:
        files["metrics.csv"] = _metrics_table(run)
    files["costs.json"] = as_json(costs_document(scenario, run))
    files[LOG] = log_of(run)
    return files


def metrics_document(scenario: Scenario, run: ScenarioRun) -> dict[str, Any]:
    """`metrics.json`: each turn's metrics, the last ones, and a summary of each."""
    return {
        "scenario": scenario.name,
        "run_id": run.label,
        "metrics_definitions": {
            name: {
                "description": rule.description,
                "type": rule.type,
                "unit": rule.unit,
                "method": rule.method,
                **({} if rule.range is None else {"range": list(rule.range)}),
                **extraction_of(asdict(rule)),
            }
            for name, rule in scenario.metrics.items()
        }
        | {
            name: {
                "description": variable.description,
                "type": {"number": "float", "choice": "string", "text": "string"}.get(
                    variable.type, variable.type
                ),
                "unit": variable.unit,
                "method": OF_VARIABLES,
                **({} if variable.range is None else {"range": list(variable.range)}),
            }
            for name, variable in scenario.variables.items()
        },
        "metrics_by_turn": {str(turn.number): dict(turn.metrics) for turn in run.turns},
        "final_metrics": run.final_metrics,
        "scores": dict(run.scores),
        "summary_statistics": _statistics(run),
        "thresholds_crossed": _crossed(scenario, run),
    }


def costs_document(scenario: Scenario, run: ScenarioRun) -> dict[str, Any]:
    """`costs.json`: cost by actor, by turn, and in total."""
    by_actor: dict[str, Any] = {}
    for short, actor in scenario.actors.items():
        mine = [call for call in run.calls if call.who == short]
        turns = [
            {"turn": number, **_sum([call for call in mine if call.turn == number])}
            for number in sorted({call.turn for call in mine})
        ]
        total = _sum(mine)
        by_actor[actor.name] = {
            "model": actor.llm_model or "human",
            "turns": turns,
            "total_tokens": total["tokens"],
            "total_cost": total["cost"],
        }
    played = [call for call in run.calls if call.who != EVALUATORS]
    numbers = sorted({call.turn for call in played})
    other = {
        name: _sum([call for call in run.calls if call.who == name])
        for name in ("summary", "metrics", "validation", EVALUATORS)
    }
    everything = _sum(list(run.calls))
    return {
        "run_id": run.label,
        "scenario_execution": {"start": run.started_at, "end": run.ended_at or None},
        "costs_by_actor": by_actor,
        "costs_by_turn": {str(n): _sum([call for call in played if call.turn == n]) for n in numbers},
        "world_state_costs": [
            {"turn": n, **_sum([c for c in run.calls if c.turn == n and c.who == "narrator"])}
            for n in numbers
        ],
        **other,
        "unfinished_turns": _sum(list(run.lost_calls)),
        "totals": {"total_tokens": everything["tokens"], "total_cost_usd": everything["cost"]},
        "total_cost": everything["cost"],
        "unpriced_calls": sum(call.cost_usd is None for call in run.calls),
    }


def log_of(run: ScenarioRun) -> str:
    """The log of a run: one line per event, in order."""
    return "\n".join(_lines(run)) + "\n"


def as_json(document: Any) -> str:
    """A document as the text of a JSON file."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _of_turn(scenario: Scenario, turn: ScenarioTurn) -> dict[str, str]:
    number = f"{turn.number:03d}"
    files = {f"world-state-{number}.md": _world(scenario, turn.number, turn.world_state, turn)}
    for short, decision in turn.decisions.items():
        parts = [f"# {scenario.actors[short].name}: turn {turn.number}"]
        for title, text in (
            ("Long-term goals", decision.long_term_goals),
            ("Short-term priorities", decision.short_term_priorities),
            ("Reasoning", decision.reasoning),
            ("Statement", decision.statement),
            ("Action", decision.action),
        ):
            if text:
                parts.append(f"## {title}\n\n{text}")
        files[f"actor-{short}-{number}.md"] = "\n\n".join(parts) + "\n"
    for name, group in _by_name(turn).items():
        files[f"{name}-{number}.md"] = "\n\n".join(_talk(scenario, turn, talk) for talk in group) + "\n"
    rules = scenario.validation
    if turn.checks_run and rules and rules.generate_turn_reports:
        files |= turn_report(rules, turn)
    return files


def _metrics_table(run: ScenarioRun) -> str:
    """`metrics.csv`: a line for each turn and metric; missing values are empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("run_id", "turn", "metric", "value"))
    for turn in run.turns:
        for name, value in turn.metrics.items():
            table.writerow((run.label, turn.number, name, "" if value is None else value))
    return text.getvalue()


def _by_name(turn: ScenarioTurn) -> dict[str, list[PrivateTalk]]:
    """Talks of a turn by file: several of the same participants share one."""
    named: dict[str, list[PrivateTalk]] = {}
    for talk in turn.talks:
        of_room = talk.kind == "room"
        parts = (talk.kind, talk.purpose) if of_room else (talk.kind, *talk.participants)
        named.setdefault("-".join(parts), []).append(talk)
    return named


def _world(scenario: Scenario, number: int, text: str, turn: ScenarioTurn | None = None) -> str:
    when = "at the beginning" if number == 0 else f"after turn {number}"
    parts = [f"# {scenario.name}: the world {when}", text.strip()]
    if turn and turn.variables:
        values = "\n".join(f"- {name}: {_value(value)}" for name, value in turn.variables.items())
        parts.append(f"## Values\n\n{values}")
    if turn and turn.key_changes:
        parts.append(f"## Key changes\n\n{turn.key_changes}")
    if turn and turn.consequences:
        parts.append(f"## Consequences\n\n{turn.consequences}")
    if turn and turn.events:
        listed = "\n".join(f"- {name}: {scenario.events[name].text_in(number)}" for name in turn.events)
        parts.append(f"## What happened besides\n\n{listed}")
    return "\n\n".join(parts) + "\n"


def _talk(scenario: Scenario, turn: ScenarioTurn, talk: PrivateTalk) -> str:
    names = [scenario.actors[short].name for short in talk.participants]
    parts = [f"# {talk.kind.capitalize()}: {', '.join(names)}, turn {turn.number}"]
    if talk.purpose:
        parts.append(f"Purpose: {talk.purpose}")
    if talk.outcome:
        parts.append(f"Outcome: {talk.outcome}")
    parts += [f"**{scenario.actors[who].name}**: {text}" for who, text in talk.messages]
    parts += [f"*{scenario.actors[who].name}, to itself*: {note}" for who, note in talk.notes.items()]
    return "\n\n".join(parts)


def _statistics(run: ScenarioRun) -> dict[str, Any]:
    statistics: dict[str, Any] = {}
    for name in {name for turn in run.turns for name in turn.metrics}:
        values = [turn.metrics.get(name) for turn in run.turns]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        if numbers:
            statistics[name] = {
                "min": min(numbers),
                "max": max(numbers),
                "mean": fmean(numbers),
                "count": len(numbers),
                "values": numbers,
            }
    return dict(sorted(statistics.items()))


def _crossed(scenario: Scenario, run: ScenarioRun) -> list[dict[str, Any]]:
    crossings: list[dict[str, Any]] = []
    for turn in run.turns:
        for name, value in turn.metrics.items():
            rule = scenario.metrics.get(name.partition(".")[0])
            level = _level(rule.warning_threshold, rule.critical_threshold, value) if rule else ""
            if level:
                crossings.append({"turn": turn.number, "metric": name, "value": value, "level": level})
    return crossings


def _level(warning: float | None, critical: float | None, value: Value) -> str:
    if isinstance(value, str) or value is None:
        return ""
    # The critical threshold lies beyond the warning, on whichever side that is.
    falling = warning is not None and critical is not None and critical < warning
    for level, limit in (("critical", critical), ("warning", warning)):
        if limit is not None and (value <= limit if falling else value >= limit):
            return level
    return ""


def _sum(calls: list[ScenarioCall]) -> dict[str, Any]:
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    return {
        "calls": len(calls),
        "tokens": sum(call.input_tokens + call.output_tokens for call in calls),
        "cost": sum(costs) if costs else (None if calls else 0.0),
    }


def _lines(run: ScenarioRun) -> Iterator[str]:
    yield f"{run.started_at} {run.label}: {run.variation or 'base configuration'}, seed {run.seed}"
    for turn in run.turns:
        yield f"{turn.started_at} turn {turn.number} of {run.total_turns}"
        yield from map(_call_line, turn.calls)
        yield from (f"  event: {_document_line(name)}" for name in turn.events)
        yield from (
            f"  {talk.kind}: {', '.join(talk.participants)} {talk.outcome}".rstrip() for talk in turn.talks
        )
        yield from (f"  {_document_line(note)}" for note in turn.notes)
        yield from (f"  metric {name}: {_value(value)}" for name, value in turn.metrics.items())
        yield from (
            f"  issue ({issue.severity}) {issue.check}: {_document_line(issue.text)}" for issue in turn.issues
        )
        if turn.checks_unread:
            yield f"  {turn.checks}"
        yield f"{turn.ended_at} turn {turn.number} done"
    for call in run.lost_calls:
        yield _call_line(call) + " (of a turn that was not finished)"
    yield from map(_call_line, run.judge_calls)
    yield from (f"  score {_document_line(name)}: {_value(value)}" for name, value in run.scores.items())
    if run.status != "running":
        why = f": {run.reason} {_document_line(run.error)}".rstrip() if run.reason else ""
        yield f"{run.ended_at} {run.status}{why}"


def _call_line(call: ScenarioCall) -> str:
    cost = "unknown" if call.cost_usd is None else f"${call.cost_usd:.6f}"
    return (
        f"  {call.who}, {call.purpose}: {call.model} {call.input_tokens}+{call.output_tokens} tokens {cost}"
    )


def _value(value: Value) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)


def _document_line(text: str) -> str:
    return " ".join(text.split())[:300]


def actors_of(scenario: Scenario) -> Mapping[str, Mapping[str, str]]:
    """The actors of `scenario-state.json`."""
    return {
        short: {"name": actor.name, "short_name": short, "llm_model": actor.llm_model or "human"}
        for short, actor in scenario.actors.items()
    }


# The folder of one run: written as turns finish, and read when the run is resumed.


STATE = "scenario-state.json"
FIGURES = ("metrics.json", "metrics.csv", "costs.json", LOG)
"""The files of a run whose texts are not saved."""
VERSION = 1
NO_MEASURES: Mapping[str, Mapping[str, Any]] = {}
MOST_BYTES = 512 * 1024 * 1024
_TEXTS = ("talks", "key_changes", "consequences", "summary")


def write_run(
    folder: Path, scenario: Scenario, run: ScenarioRun, *, since: int = 0, whole: bool = True
) -> None:
    """Write a run's files; of its turns only those from `since` on.

    Without `whole`, only figures and the state are written; the state of a completed run has no texts.
    """
    files = documents(scenario, run, since=since)
    if not whole:
        files = {name: text for name, text in files.items() if name in FIGURES}
    slim = not whole and run.status == COMPLETED
    # Last, so that everything the state refers to exists.
    files[STATE] = as_json(state_document(scenario, run, slim=slim))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(folder / name, text)


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", errors="replace")
    temporary.replace(path)


def read_run(folder: Path) -> ScenarioRun | None:
    """The run whose state a folder holds; None when there is no readable state."""
    path = folder / STATE
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        return run_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # A foreign or damaged state cannot be resumed.
        return None


def extraction_of(measure: Mapping[str, Any]) -> dict[str, Any]:
    """How a metric is read from texts, as its definition in `metrics.json` says."""
    return {
        key: [*value] if key == "keywords" else value for key in EXTRACTION if (value := measure.get(key))
    }


def is_intact(
    folder: Path,
    run: ScenarioRun,
    *,
    whole: bool = True,
    measures: Mapping[str, Mapping[str, Any]] = NO_MEASURES,
) -> bool:
    """Whether the files of a run beside its state are there, can be read, and have the metrics as `measures`
    read them."""
    names = [f"world-state-{turn.number:03d}.md" for turn in run.turns] if whole else []
    try:
        documents = [
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("metrics.json", "costs.json")
        ]
        for name, definition in as_map(documents[0], "metrics_definitions").items():
            written = extraction_of(as_map(definition))
            # Earlier versions have not written it.
            if written and name in measures and written != extraction_of(measures[name]):
                return False
        return all((folder / name).stat().st_size for name in (LOG, *names))
    except (OSError, ValueError, RecursionError):
        return False


def state_document(scenario: Scenario, run: ScenarioRun, *, slim: bool = False) -> dict[str, Any]:
    """`scenario-state.json`."""
    names = {short: actor.name for short, actor in scenario.actors.items()}
    states = {"0": scenario.initial_world_state} | {str(t.number): t.world_state for t in run.turns}
    last = run.turns[-1].number if run.turns else 0
    return {
        "scenario_name": scenario.name,
        "run_id": run.label,
        "status": run.status,
        "halt_reason": run.reason or None,
        "error": run.error or None,
        "current_turn": last,
        "total_turns": run.total_turns,
        "completed_turns": [turn.number for turn in run.turns],
        "world_state": {
            "current_state": states[str(last)],
            "current_turn": last,
            "turn_duration": scenario.turn_duration,
            "states": {} if slim else states,
            "actor_decisions": {}
            if slim
            else {
                str(turn.number): {
                    names[short]: asdict(decision) for short, decision in turn.decisions.items()
                }
                for turn in run.turns
            },
        },
        "actors": actors_of(scenario),
        "metrics_tracker_state": {
            "metrics_by_turn": {str(turn.number): dict(turn.metrics) for turn in run.turns},
            "final_metrics": run.final_metrics,
        },
        "cost_tracker_state": {"total_cost": run.cost_usd, "calls": len(run.calls)},
        "execution_metadata": {
            "format": VERSION,
            "item_id": run.item_id,
            "seed": run.seed,
            "variation_id": run.variation_id,
            "variation": run.variation,
            "started_at": run.started_at,
            "ended_at": run.ended_at or None,
            "is_whole": not slim,
        },
        "turns": [_without_texts(turn, slim=slim) for turn in run.turns],
        "lost_calls": [asdict(call) for call in run.lost_calls],
        "judge_calls": [asdict(call) for call in run.judge_calls],
        "scores": dict(run.scores),
        "validity": run.invalid,
        "served_models": run.served,
    }


def run_of(state: Mapping[str, Any]) -> ScenarioRun:
    """The run of a `scenario-state.json`. Raises `KeyError`, `TypeError` or `ValueError` if it is not one."""
    about, world = state["execution_metadata"], state["world_state"]
    if about["format"] != VERSION:
        raise ValueError(f"the format {about['format']} is not known")
    shorts = {actor["name"]: short for short, actor in state["actors"].items()}
    return ScenarioRun(
        item_id=about["item_id"],
        label=state["run_id"],
        seed=about["seed"],
        total_turns=state["total_turns"],
        turns=tuple(_with_texts(plain, world, shorts) for plain in state["turns"]),
        lost_calls=calls_of(state["lost_calls"]),
        judge_calls=calls_of(state.get("judge_calls", ())),
        scores=dict(state.get("scores") or {}),
        served=served_of(state),
        status=state["status"],
        reason=state["halt_reason"] or "",
        error=state["error"] or "",
        variation_id=about["variation_id"],
        variation=about["variation"],
        started_at=about["started_at"],
        ended_at=about["ended_at"] or "",
    )


def _without_texts(turn: ScenarioTurn, *, slim: bool) -> dict[str, Any]:
    """A turn without the long texts, which the state has elsewhere, where other programs read them."""
    left_out = {"world_state", "decisions", *(_TEXTS if slim else ())}
    return {name: value for name, value in turn_as_plain(turn).items() if name not in left_out}


def _with_texts(
    plain: Mapping[str, Any], world: Mapping[str, Any], shorts: Mapping[str, str]
) -> ScenarioTurn:
    number = str(plain["number"])
    decisions = {
        shorts[name]: decision for name, decision in world["actor_decisions"].get(number, {}).items()
    }
    return turn_of({**plain, "world_state": world["states"].get(number, ""), "decisions": decisions})
