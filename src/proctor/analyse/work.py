"""What the agents did: tools they used, what they changed, checks that ran, merges that were tried.

Sums over every attempt, also those that were repeated.

Knows nothing of money or of how results are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from proctor.analyse.selection import Row, Selection

SLOWEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """All calls of one tool."""

    tool: str
    calls: int
    succeeded: int
    judged: int
    """Calls of which it is known how they ended."""
    average_ms: float | None
    """Over the calls that were measured; None when none was."""

    @property
    def success_rate(self) -> float | None:
        return self.succeeded / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCall:
    """One of the longest tool calls."""

    tool: str
    duration_ms: float
    success: bool | None
    session_id: str
    arguments: str
    """As JSON, the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the iterations of all sessions amount to."""

    iterations: int
    checks: int
    """How many were checked."""
    checks_passed: int
    changed_files: int
    lines_added: int
    lines_removed: int


def tool_usage(selection: Selection) -> tuple[tuple[ToolUsage, ...], tuple[SlowCall, ...]]:
    """How often each tool was used and how that went, the most used first; and the slowest calls."""
    rows = _calls(selection)
    usage = tuple(
        ToolUsage(
            tool=row["tool"],
            calls=row["calls"],
            succeeded=row["succeeded"] or 0,
            judged=row["judged"],
            average_ms=row["ms"] / row["measured"] if row["measured"] else None,
        )
        for row in rows
        if row["session"] is None
    )
    slow = [row for row in rows if row["session"] is not None]
    return (
        tuple(sorted(usage, key=lambda tool: (-tool.calls, tool.tool))),
        tuple(_slow_call(selection, row) for row in sorted(slow, key=_slowest_first)),
    )


def _slowest_first(row: Row) -> tuple[float, str, int]:
    return -row["ms"], row["session"], row["position"]


def _calls(selection: Selection) -> list[Row]:
    """One row for each tool, then one for each of the slowest calls, which also has a session."""
    # Finding the calls costs more than counting them, so both answers come from one search.
    return selection.read.query(
        'WITH "c" AS MATERIALIZED (SELECT "toolName" AS "tool", "success", "durationMs" AS "ms", '
        f'"sessionId" AS "session", "position" FROM "tool_calls" t WHERE {selection.events}), '
        '"slow" AS (SELECT * FROM "c" WHERE "ms" IS NOT NULL '
        f'ORDER BY "ms" DESC, "session", "position" LIMIT {SLOWEST}) '
        'SELECT "tool", COUNT(*) AS "calls", SUM("success") AS "succeeded", COUNT("success") AS "judged", '
        'SUM("ms") AS "ms", COUNT("ms") AS "measured", CAST(NULL AS TEXT) AS "session", '
        'CAST(NULL AS BIGINT) AS "position" FROM "c" GROUP BY "tool" UNION ALL '
        'SELECT "tool", 1, "success", COUNT("success"), "ms", 1, "session", "position" FROM "slow" '
        'GROUP BY "tool", "success", "ms", "session", "position"',
        selection.session_parameters,
    )


def _slow_call(selection: Selection, row: Row) -> SlowCall:
    return SlowCall(
        tool=row["tool"],
        duration_ms=row["ms"],
        success=bool(row["succeeded"]) if row["judged"] else None,
        session_id=row["session"],
        arguments=_arguments(selection, row),
    )


def steps(selection: Selection) -> Steps:
    """Count the iterations, their checks and their changes."""
    (found,) = selection.of_events(
        "iterations",
        'COUNT(*) AS "n", SUM(CASE WHEN t."testResult" = \'\' THEN 0 ELSE 1 END) AS "checks", '
        'SUM(CASE WHEN t."testResult" = \'pass\' THEN 1 ELSE 0 END) AS "passed", '
        'SUM(t."changedFiles") AS "files", SUM(t."linesAdded") AS "added", '
        'SUM(t."linesRemoved") AS "removed"',
    )
    return Steps(
        iterations=found["n"],
        checks=found["checks"] or 0,
        checks_passed=found["passed"] or 0,
        changed_files=found["files"] or 0,
        lines_added=found["added"] or 0,
        lines_removed=found["removed"] or 0,
    )


def merges(selection: Selection) -> Mapping[str, int]:
    """How many tries to merge ended how."""
    found = selection.of_few_events(
        "merge_history",
        't."result" AS "result", COUNT(*) AS "n"',
        'GROUP BY t."result" ORDER BY "n" DESC, "result"',
    )
    return {row["result"]: row["n"] for row in found}


def _arguments(selection: Selection, row: Row) -> str:
    (found,) = selection.read.query(
        'SELECT SUBSTR("argsJson", 1, 200) AS "args", "argsJsonBlob" AS "blob" FROM "tool_calls" '
        'WHERE "sessionId" = ? AND "position" = ?',
        (row["session"], row["position"]),
    )
    return str(selection.read.blob(found["blob"])[:200] if found["blob"] else found["args"])
