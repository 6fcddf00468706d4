"""The tables and their columns, in the order in which they are written and exported.

A test holds this list against the migrated database.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from proctor.item import QUEUED, Item, id_of
from proctor.json_values import MOST
from proctor.processes.streams import clipped
from proctor.session import Merge

COLUMNS: dict[str, tuple[str, ...]] = {
    "batches": (
        *(
            "runId",
            "createdAt",
            "finishedAt",
            "job",
            "status",
            "reason",
            "planPath",
            "planText",
            "planDigest",
        ),
        *("defaultsJson", "optionsJson", "concurrency", "seed", "budgetUsd", "owner", "heartbeatAt"),
        *("abortRequestedAt", "proctorVersion"),
    ),
    "batch_items": (
        *("runId", "id", "position", "digest", "repeat", "runner", "repo", "prompt", "agent", "model"),
        *("factors", "details", "settings", "status", "reason", "error", "startedAt", "finishedAt"),
        *("sessionId", "iterSha", "tokensTotal", "toolCalls", "costUsd"),
    ),
    "sessions": (
        *("id", "runId", "itemId", "attempt", "job", "name", "agent", "agentVersion", "model", "standIn"),
        *("status", "endReason", "error", "repo", "branch", "baseBranch", "baseSha", "worktree", "thread"),
        *("source", "service", "logGroup", "startedAt", "finishedAt", "workSeconds", "waitingSeconds"),
        *("promptTokens", "cachedTokens", "completionTokens", "reasoningTokens", "totalTokens", "costUsd"),
        *("unpricedCalls", "modelCalls", "toolCalls", "interventions", "notes"),
        *("externalId", "attributesJson", "toolsJson", "toolsJsonBlob"),
    ),
    "iterations": (
        *("sessionId", "step", "startTime", "endTime", "commitSha", "changedFiles", "linesAdded"),
        *("linesRemoved", "testResult", "testExitCode", "testDurationMs", "testOutput", "testOutputBlob"),
        *("model", "exitCode", "promptTokens", "completionTokens", "totalTokens", "costUsd", "output"),
        *("outputBlob", "traceId"),
    ),
    "messages": ("sessionId", "position", "step", "timestamp", "role", "name", "content", "contentBlob"),
    "tool_calls": (
        *("sessionId", "position", "step", "timestamp", "toolName", "argsJson", "argsJsonBlob", "success"),
        *("durationMs", "result", "resultBlob", "callId"),
    ),
    "model_calls": (
        *("sessionId", "position", "step", "timestamp", "provider", "model", "promptTokens", "cachedTokens"),
        *("completionTokens", "reasoningTokens", "costUsd", "priceSource", "price", "latencyMs", "waitingMs"),
        *("status", "error", "request", "requestBlob", "response", "responseBlob", "callId"),
    ),
    "metrics": ("sessionId", "position", "step", "name", "value", "label"),
    "scores": (
        *("sessionId", "position", "timestamp", "evaluator", "evaluatorDigest", "level", "target", "value"),
        *("label", "explanation", "explanationBlob", "error", "costUsd", "dimension", "errorCode"),
        *("inputTokens", "outputTokens", "ignored", "judgedSessionId", "votes"),
    ),
    "labels": (
        *("sessionId", "evaluator", "target", "dimension", "who", "level", "at", "value", "label", "note"),
        "noteBlob",
    ),
    "merge_history": (
        *("sessionId", "position", "startedAt", "finishedAt", "baseBranch", "mode", "result"),
        *("conflictFiles", "squashMessage", "beforeSha", "afterSha", "error"),
    ),
    "ledger": (
        *("sessionId", "position", "runId", "itemId", "timestamp", "kind", "reservedUsd", "spentUsd"),
        "holder",
    ),
    "blobs": ("digest", "size", "data"),
    "questions": (
        *("runId", "id", "itemId", "sessionId", "position", "actor", "prompt", "askedAt", "answer"),
        "answeredAt",
    ),
    "pools": (
        *("name", "owner", "runId", "limit", "inUse", "waiting", "calls", "limited", "waitedSeconds"),
        *("heldUntil", "cutAt", "heartbeatAt"),
    ),
    "evaluations": (
        *("id", "arn", "name", "createdAt", "clientToken", "requestDigest", "requestJson", "metadataJson"),
        *("metadataJsonBlob", "definitionsJson", "outputGroup", "outputStream", "discoveredAt"),
        *("sessionsFound", "sessionsIgnored", "failure", "deletedAt"),
    ),
    "evaluator_definitions": (
        *("id", "name", "level", "kind", "description", "configJson", "configJsonBlob", "kmsKeyArn"),
        *("createdAt", "updatedAt"),
    ),
    "online_configs": (
        *("id", "name", "description", "documentJson", "enabled", "enabledAt", "failure", "runId"),
        *("watchedBy", "watchedAt", "createdAt", "updatedAt"),
    ),
    "online_sessions": ("configId", "sessionId", "decision", "at"),
    "resource_tags": ("arn", "key", "value"),
    "client_tokens": ("operation", "token", "digest", "resourceId", "at"),
    "arrivals": (
        *("traceId", "spanId", "part", "parentId", "sessionKey", "service", "logGroup", "logGroupSaid"),
        *("startedNano", "arrivedAt", "sessionId", "isNew", "data"),
    ),
    "log_streams": ("logGroup", "logStream", "createdAt"),
    "log_events": (
        *("logGroup", "logStream", "position", "timestamp", "ingestedAt", "message", "messageBlob"),
    ),
    "data_keys": (
        *("id", "scope", "masterKeyId", "contextJson", "wrapped", "createdAt", "retiredAt", "emptiedAt"),
    ),
}


OF_A_SESSION = ("iterations", "messages", "tool_calls", "model_calls", "metrics", "scores", "merge_history")
"""Tables whose rows belong to one session, by `sessionId`."""


# Make what agents say writable: hostile text, numbers that are none.


LONGEST_ERROR = 8192
"""Characters of an error that are kept, half of them from its end: it is shown in every list."""


def clean(text: str) -> str:
    """Text that every database takes: no NUL, no half of a surrogate pair."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def short(text: str) -> str:
    """The head and tail of what is meant to be a line or two, whatever it really is."""
    return text if len(text) <= LONGEST_ERROR else clipped(text, LONGEST_ERROR // 2)


def finite(number: float | None) -> float | None:
    """A number that can be added up, or None: an agent may well print `NaN`."""
    try:
        return number if number is not None and math.isfinite(number) else None
    except OverflowError:
        return None


def amount(usd: float | None) -> float | None:
    """Money that was spent. Less than nothing cannot have been, and would make a budget larger."""
    usd = finite(usd)
    return usd if usd is None or 0 <= usd <= MOST else None


def whole(number: Any) -> int:
    """A count that fits a column, and whose sum over a batch does, whatever an agent claims."""
    try:
        return max(0, min(int(number), MOST))
    except (ValueError, OverflowError):
        return 0


# Items as rows, and rows as items.


def row_of(run_id: str, position: int, item: Item) -> tuple[Any, ...]:
    """A new item's row, in the order of `batch_items`' columns."""
    digest = item.digest
    return (
        *(run_id, id_of(digest, item.repeat), position, digest, item.repeat, item.runner),
        *(clean(str(item.settings.get("repo", ""))), clean(item.prompt), item.agent, item.model),
        *(_json(item.factors), _json(item.details), _json(item.settings), QUEUED, "", "", None, None),
        *(None, None, 0, 0, None),
    )


def how_of(item: Item) -> tuple[str, str, str]:
    """The columns that may change while the item stays the same: settings, factors, repository."""
    return _json(item.settings), _json(item.factors), clean(str(item.settings.get("repo", "")))


def merge_row(session_id: str, position: int, when: str, merge: Merge) -> tuple[Any, ...]:
    """A try to merge, in the order of `merge_history`'s columns."""
    files = json.dumps(list(merge.conflict_files))
    head = (session_id, position, when, when, clean(merge.base_branch), merge.mode, merge.result, files)
    return (*head, clean(merge.message), merge.before_sha, merge.after_sha, clean(merge.error))


def item_of(row: Mapping[str, Any]) -> Item:
    """The item that a row was made from."""
    return Item(
        runner=row["runner"],
        prompt=row["prompt"],
        agent=row["agent"],
        model=row["model"],
        details=_mapping(row["details"]),
        settings=_mapping(row["settings"]),
        factors=_mapping(row["factors"]),
        repeat=row["repeat"],
    )


def _json(value: Mapping[str, Any]) -> str:
    return clean(_ENCODER.encode(dict(value)))


# The items of one plan share most of this, and nobody changes an item.
@lru_cache(maxsize=1024)
def _mapping(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
