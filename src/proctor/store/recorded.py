"""A session of the store, ours or another tool's, in the form in which sessions come in and go out.

Knows nothing of foreign formats, or of how the rows were come by.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proctor.imported import Happening, ImportedSession, ImportedStep
from proctor.score import Score
from proctor.session import Message, ModelCall, ToolCall
from proctor.store.batches import moment
from proctor.store.database import Row
from proctor.store.events import message_of, model_call_of, tool_call_of


def session_of_rows(
    session: Mapping[str, Any], rows_of: Callable[[str], list[Row]], judged: Iterable[Row] = ()
) -> ImportedSession:
    """Any session of the store in the form in which sessions are imported and exported.

    `rows_of` gives its rows of a table in the order they happened, long texts included; `judged` are the
    rows of scores that are about it.
    """
    steps: dict[int, list[tuple[int, Happening]]] = {}
    for position, step, happening in _happenings(rows_of):
        steps.setdefault(step, []).append((position, happening))
    ended = {row["step"]: row for row in rows_of("iterations")}
    source = session["source"] or session["job"]
    return ImportedSession(
        external_id=session["externalId"] or session["id"],
        source=source,
        service=session["service"],
        log_group=session["logGroup"],
        name=session["name"],
        agent=session["agent"],
        agent_version=session["agentVersion"],
        model=session["model"],
        is_stand_in=bool(session["standIn"]),
        status=session["status"],
        end_reason=session["endReason"],
        error=session["error"],
        started_at=moment(session["startedAt"]),
        finished_at=moment(session["finishedAt"]),
        steps=[
            _step(number, ended.get(number), steps.get(number, ())) for number in sorted({*steps, *ended})
        ],
        tools=json.loads(session["toolsJson"] or "[]"),
        attributes=json.loads(session["attributesJson"] or "{}"),
        scores=[_score(row) for row in judged],
        notes=json.loads(session["notes"]),
    )


def _step(number: int, row: Row | None, told: Sequence[tuple[int, Happening]]) -> ImportedStep:
    return ImportedStep(
        trace_id=(row["traceId"] if row else "") or f"turn-{number}",
        happenings=[happening for _, happening in sorted(told, key=lambda each: each[0])],
        started_at=moment(row["startTime"]) if row else None,
        finished_at=moment(row["endTime"]) if row else None,
    )


def _happenings(rows_of: Callable[[str], list[Row]]) -> Iterator[tuple[int, int, Happening]]:
    for table, made in _EVENTS.items():
        for row in rows_of(table):
            yield row["position"], row["step"], Happening(event=made(row), at=moment(row["timestamp"]))


def _model_call(row: Row) -> ModelCall:
    call = model_call_of(row)
    return replace(call, call_id=call.call_id or f"call-{row['position']}")


def _score(row: Row) -> Score:
    return Score(
        evaluator=row["evaluator"],
        value=row["value"],
        label=row["label"],
        explanation=row["explanation"],
        level=row["level"],
        target=row["target"],
        evaluator_digest=row["evaluatorDigest"],
        error=row["error"],
        cost_usd=row["costUsd"],
        dimension=row["dimension"],
        error_code=row["errorCode"],
        input_tokens=row["inputTokens"],
        output_tokens=row["outputTokens"],
    )


_EVENTS: dict[str, Callable[[Row], Message | ToolCall | ModelCall]] = {
    "messages": message_of,
    "tool_calls": tool_call_of,
    "model_calls": _model_call,
}
