"""What the checks of a run found, as the files people or programs read.

Knows nothing of how checks are made, or of disks.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from proctor.scenario.definition import Validation
from proctor.scenario.state import Issue, Run, Turn

_SUFFIXES = {"markdown": (".md",), "json": (".json",), "both": (".md", ".json")}


def turn_report(rules: Validation, turn: Turn) -> dict[str, str]:
    """The report of one turn, by file."""
    unread = _unread(turn.checks_unread)
    head = f"# Checks of turn {turn.number}\n\n{turn.checks_run} run, {len(turn.issues)} issues{unread}\n"
    text = head + "".join(map(_line, turn.issues))
    return _written(rules, f"validation-{turn.number:03d}", text, _checks_of(turn))


def summary_report(rules: Validation, run: Run) -> dict[str, str]:
    """The report of a whole run, by file."""
    issues = [(turn.number, issue) for turn in run.turns for issue in turn.issues]
    checks = sum(turn.checks_run for turn in run.turns)
    unread = sum(turn.checks_unread for turn in run.turns)
    head = f"# Checks of {run.label}\n\n{checks} checks in {len(run.turns)} turns, {len(issues)} issues"
    head += f"{_unread(unread)}\n\n"
    lines = [f"- turn {number}: {_line(issue).removeprefix('- ')}" for number, issue in issues]
    document = {
        "run_id": run.label,
        "checks_run": checks,
        "checks_unread": unread,
        "turns": [_checks_of(turn) for turn in run.turns],
    }
    return _written(rules, "validation-summary", head + "".join(lines), document)


def _written(rules: Validation, name: str, text: str, document: Mapping[str, Any]) -> dict[str, str]:
    as_json = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    contents = {".md": text, ".json": as_json}
    return {name + suffix: contents[suffix] for suffix in _SUFFIXES[rules.report_format]}


def _checks_of(turn: Turn) -> dict[str, Any]:
    issues = [asdict(issue) for issue in turn.issues]
    counts = {"checks_run": turn.checks_run, "checks_unread": turn.checks_unread}
    return {"turn": turn.number, **counts, "issues": issues}


def _unread(number: int) -> str:
    return f"; of {number} the verdict could not be read" if number else ""


def _line(issue: Issue) -> str:
    who = f" ({issue.actor})" if issue.actor else ""
    return f"- **{issue.severity}** {issue.check}{who}: {issue.text}\n"
