"""The tables and their columns, in the order in which they are written and exported.

A test compares this list with the migrated database.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NotRequired

# As in `typing`, where pydantic takes it from Python 3.12 on: rows are answers of the HTTP interface as well.
from typing_extensions import TypedDict

from proctor.formatting import clipped
from proctor.item import QUEUED, RUNNING, Item, id_of
from proctor.json_values import MOST, compact_encoder, parse_json, require_map
from proctor.session import Merge, Role

if TYPE_CHECKING:
    from proctor.score import Level

IMPORTED = "imported"
"""Job of imported runs and sessions, and runner of the items of imported runs."""
TABLE = "table"
"""`sessions.source` of the rows of imported tables."""
OF_A_SESSION = ("iterations", "messages", "tool_calls", "model_calls", "metrics", "scores", "merge_history")
"""Tables whose rows belong to one session, by `sessionId`."""
BY_PEOPLE = ("labels", "annotations")
"""Tables of what people write about a session, by `sessionId`; a new import of the session keeps them."""


BEING_WRITTEN = "being written"
"""Begins the end reason of a received session that is written in several transactions, until the last one."""


def is_being_written(session: Mapping[str, object]) -> bool:
    """Whether only a part of a session may be stored yet."""
    return session["status"] == RUNNING and str(session["endReason"]).startswith(BEING_WRITTEN)


# Rows stay dictionaries: reading a value of a `LockedRow` raises if its key is not available.


class BatchRow(TypedDict):
    """One execution of a plan."""

    runId: str
    createdAt: str
    finishedAt: str | None
    job: str
    status: str
    reason: str
    planPath: str
    planText: str
    planDigest: str
    defaultsJson: str
    optionsJson: str
    concurrency: int
    seed: int | None
    budgetUsd: float | None
    owner: str
    heartbeatAt: str | None
    abortRequestedAt: str | None
    proctorVersion: str
    crashes: int
    """How often a process of the run died while it worked; its cost is then a lower bound."""


class ItemRow(TypedDict):
    """One item of a batch and its result. `factors`, `details` and `settings` are JSON texts."""

    runId: str
    id: str
    position: int
    digest: str
    repeat: int
    runner: str
    repo: str
    prompt: str
    agent: str
    model: str
    factors: str
    details: str
    settings: str
    status: str
    reason: str
    error: str
    startedAt: str | None
    finishedAt: str | None
    sessionId: str | None
    iterSha: str | None
    tokensTotal: int
    toolCalls: int
    costUsd: float | None
    merge: str
    """How merging its work ended: `success`, `conflict`, `error`; empty: it was not merged."""


class SessionRow(TypedDict):
    """One attempt, or one imported session."""

    id: str
    runId: str | None
    itemId: str | None
    attempt: int
    job: str
    name: str
    agent: str
    agentVersion: str
    model: str
    isMock: int
    status: str
    endReason: str
    error: str
    repo: str
    branch: str
    baseBranch: str
    baseSha: str
    worktree: str
    thread: str
    source: str
    service: str
    logGroup: str
    startedAt: str | None
    finishedAt: str | None
    workSeconds: float | None
    waitingSeconds: float | None
    promptTokens: int
    cachedTokens: int
    completionTokens: int
    reasoningTokens: int
    totalTokens: int
    costUsd: float | None
    unpricedCalls: int
    modelCalls: int
    toolCalls: int
    interventions: int
    notes: str
    externalId: str
    attributesJson: str
    toolsJson: str
    toolsJsonBlob: NotRequired[str | None]
    sandbox: str
    """How the attempt's programs were confined; empty: it started none."""
    checkoutSeconds: float | None
    """Parts of `workSeconds`; None: it had no such part."""
    setupSeconds: float | None
    agentSeconds: float | None
    checkSeconds: float | None
    answeredModel: str
    """The model that gave most of the answers; empty: the one that was asked for, or unknown."""
    baseline: str
    """Result of the check before the agent: `pass`, `fail`, or empty."""
    continues: str
    """The session whose branch it goes on from, with the comments of a reviewer; empty: none."""
    promptName: str
    """The named prompt that a received session used, with its version: `greet@3`; empty: unknown."""
    servedModels: str
    """JSON: by requested model, how many calls each model answered, as the provider names it."""
    validity: str
    """JSON: counts of what makes it less valid as data, such as refusals; without those that are 0."""


class IterationRow(TypedDict):
    """One finished step of a session."""

    sessionId: str
    step: int
    startTime: str | None
    endTime: str | None
    commitSha: str
    changedFiles: int
    linesAdded: int
    linesRemoved: int
    testResult: str
    testExitCode: int | None
    testDurationMs: float | None
    testOutput: str
    testOutputBlob: NotRequired[str | None]
    model: str
    exitCode: int | None
    promptTokens: int
    completionTokens: int
    totalTokens: int
    costUsd: float | None
    output: str
    outputBlob: NotRequired[str | None]
    traceId: str
    setupOutput: str
    """Of the first step; empty: there was no set-up."""
    setupOutputBlob: NotRequired[str | None]


class MessageRow(TypedDict):
    """One message of a transcript."""

    sessionId: str
    position: int
    step: int
    timestamp: str | None
    role: Role
    name: str
    content: str
    contentBlob: NotRequired[str | None]


class ToolCallRow(TypedDict):
    """One tool call of a transcript."""

    sessionId: str
    position: int
    step: int
    timestamp: str | None
    toolName: str
    argsJson: str
    argsJsonBlob: NotRequired[str | None]
    success: int | None
    durationMs: float | None
    result: str
    resultBlob: NotRequired[str | None]
    callId: str


class ModelCallRow(TypedDict):
    """One model call of a transcript."""

    sessionId: str
    position: int
    step: int
    timestamp: str | None
    provider: str
    model: str
    promptTokens: int
    cachedTokens: int
    completionTokens: int
    reasoningTokens: int
    costUsd: float | None
    priceSource: str
    price: str
    latencyMs: float | None
    waitingMs: float
    status: str
    error: str
    request: str
    requestBlob: NotRequired[str | None]
    response: str
    responseBlob: NotRequired[str | None]
    callId: str
    speaker: str
    purpose: str
    servedModel: str
    """The model that answered, as the provider names it; empty: it does not say."""
    fingerprint: str
    """The provider's `system_fingerprint`; empty: it does not say."""
    requestId: str
    """The provider's id of the request or of its answer."""
    finishReason: str
    parametersJson: str
    """The parameters as sent; empty: unknown, or none."""
    notSent: str
    """JSON: what of the request the provider does not support, so that it was not sent."""


class MetricRow(TypedDict):
    """One measured value; `step` 0 is the whole session."""

    sessionId: str
    position: int
    step: int
    name: str
    value: float | None
    label: str | None


class ScoreRow(TypedDict):
    """One score, or the error of an evaluator."""

    sessionId: str
    position: int
    timestamp: str | None
    evaluator: str
    evaluatorDigest: str
    level: "Level"
    target: str
    value: float | None
    label: str
    explanation: str
    explanationBlob: NotRequired[str | None]
    error: str
    costUsd: float | None
    dimension: str
    errorCode: str
    inputTokens: int
    outputTokens: int
    ignored: str
    scoredSessionId: str
    votes: str
    ballots: str
    """JSON: what each of several judges said, and its cost."""


class LabelRow(TypedDict):
    """A person's label of a session."""

    sessionId: str
    evaluator: str
    target: str
    dimension: str
    who: str
    level: "Level"
    at: str
    value: float | None
    label: str
    note: str
    noteBlob: NotRequired[str | None]


class AnnotationRow(TypedDict):
    """A note, a star or a tag of a session."""

    sessionId: str
    id: str
    kind: str
    text: str
    author: str
    createdAt: str


class SessionFilterRow(TypedDict):
    """A filter of sessions that somebody keeps under a name."""

    name: str
    filterJson: str
    """The members of the filter, by name."""
    author: str
    createdAt: str


class CalibrationRow(TypedDict):
    """A comparison of an evaluator with human labels."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    at: str
    targets: int
    """Labeled targets."""
    documentJson: str
    """Results, scale, and the values of people and judge."""


class MergeRow(TypedDict):
    """One attempt to merge a branch."""

    sessionId: str
    position: int
    startedAt: str | None
    finishedAt: str | None
    baseBranch: str
    mode: str
    result: str
    conflictFiles: str
    squashMessage: str
    beforeSha: str
    afterSha: str
    error: str


class LedgerRow(TypedDict):
    """One ledger entry."""

    sessionId: str
    position: int
    runId: str
    itemId: str
    timestamp: str
    kind: str
    reservedUsd: float
    spentUsd: float
    holder: str


class BlobRow(TypedDict):
    """One long text, compressed."""

    digest: str
    size: int
    data: bytes


class QuestionRow(TypedDict):
    """A question to a person who plays an actor."""

    runId: str
    id: str
    itemId: str
    sessionId: str
    position: int
    actor: str
    prompt: str
    askedAt: str
    answer: str | None
    answeredAt: str | None


class ResourceRow(TypedDict):
    """A text that items of a run refer to by its digest."""

    runId: str
    kind: str
    name: str
    digest: str
    content: str


class PoolRow(TypedDict):
    """Use of one provider's rate limit by one process."""

    name: str
    owner: str
    runId: str
    limit: float
    inUse: int
    waiting: int
    calls: int
    limited: int
    waitedSeconds: float
    heldUntil: str | None
    cutAt: str | None
    heartbeatAt: str


class EvaluationRow(TypedDict):
    """One evaluation."""

    id: str
    arn: str
    name: str
    createdAt: str
    clientToken: str
    requestDigest: str
    requestJson: str
    metadataJson: str
    metadataJsonBlob: NotRequired[str | None]
    definitionsJson: str
    outputGroup: str
    outputStream: str
    discoveredAt: str | None
    sessionsFound: int
    sessionsIgnored: int
    failure: str
    deletedAt: str | None


class EvaluatorDefinitionRow(TypedDict):
    """An evaluator defined over HTTP."""

    id: str
    name: str
    level: str
    kind: str
    description: str
    configJson: str
    configJsonBlob: NotRequired[str | None]
    kmsKeyArn: str
    createdAt: str
    updatedAt: str


class OnlineConfigRow(TypedDict):
    """A configuration that evaluates sessions as they arrive."""

    id: str
    name: str
    description: str
    documentJson: str
    enabled: int
    enabledAt: str | None
    failure: str
    runId: str
    watchedBy: str
    watchedAt: str | None
    createdAt: str
    updatedAt: str


class OnlineSessionRow(TypedDict):
    """The decision of an online configuration about a session."""

    configId: str
    sessionId: str
    decision: str
    at: str


class DriftScoreRow(TypedDict):
    """The mean score of a session, in the order of its line."""

    configId: str
    evaluator: str
    dimension: str
    position: int
    sessionId: str
    value: float
    at: str


class DriftPointRow(TypedDict):
    """A point of a line, with the interval of the mean since the line started."""

    configId: str
    evaluator: str
    dimension: str
    position: int
    at: str
    mean: float
    low: float
    high: float


class DriftCrossingRow(TypedDict):
    """A change of the mean, and its alert."""

    configId: str
    evaluator: str
    dimension: str
    position: int
    at: str
    direction: str
    beforeMean: float | None
    beforeLow: float | None
    beforeHigh: float | None
    afterMean: float
    afterLow: float
    afterHigh: float
    afterSessions: int
    alert: str
    attempts: int
    nextAt: str | None
    problem: str


class ResourceTagRow(TypedDict):
    """One tag of a resource."""

    arn: str
    key: str
    value: str


class DatasetRow(TypedDict):
    """A dataset of test scenarios."""

    id: str
    name: str
    schemaType: str
    description: str
    kmsKeyArn: str
    lastVersion: int
    """The highest version ever published; 0: none."""
    draftModified: int
    createdAt: str
    updatedAt: str


class DatasetVersionRow(TypedDict):
    """A published version of a dataset."""

    datasetId: str
    version: int
    examples: int
    createdAt: str


class DatasetExampleRow(TypedDict):
    """One example of a version of a dataset."""

    datasetId: str
    version: int
    """0: the draft."""
    position: int
    exampleId: str
    contentJson: str
    contentJsonBlob: NotRequired[str | None]


class RecommendationRow(TypedDict):
    """A recommendation of a prompt or of tool descriptions."""

    id: str
    name: str
    type: str
    status: str
    description: str
    kmsKeyArn: str
    requestJson: str
    requestJsonBlob: NotRequired[str | None]
    resultJson: str
    resultJsonBlob: NotRequired[str | None]
    watchedBy: str
    """The server that computes it."""
    watchedAt: str | None
    createdAt: str
    updatedAt: str


class DefinedResourceRow(TypedDict):
    """An A/B test or a configuration bundle of a server."""

    id: str
    kind: str
    name: str
    description: str
    documentJson: str
    documentJsonBlob: NotRequired[str | None]
    createdAt: str
    updatedAt: str


class ClientTokenRow(TypedDict):
    """The idempotency token of one request."""

    operation: str
    token: str
    digest: str
    resourceId: str
    at: str


class ArrivalRow(TypedDict):
    """One received span."""

    traceId: str
    spanId: str
    part: str
    parentId: str
    sessionKey: str
    service: str
    logGroup: str
    logGroupExplicit: int
    startedNano: int
    arrivedAt: str
    sessionId: str
    isNew: int
    data: bytes


class LogStreamRow(TypedDict):
    """One log stream."""

    logGroup: str
    logStream: str
    createdAt: str


class LogEventRow(TypedDict):
    """One event of a log stream."""

    logGroup: str
    logStream: str
    position: int
    timestamp: int
    ingestedAt: int
    message: str
    messageBlob: NotRequired[str | None]


class DataKeyRow(TypedDict):
    """One data key, wrapped by a master key."""

    id: str
    scope: str
    masterKeyId: str
    contextJson: str
    wrapped: str
    createdAt: str
    retiredAt: str | None
    emptiedAt: str | None


class SignatureRow(TypedDict):
    """The signature of a result, or of the begin or end of a run."""

    runId: str
    position: int
    itemId: str
    digest: str
    keyId: str
    mac: str


ROWS: dict[str, type] = {
    "batches": BatchRow,
    "batch_items": ItemRow,
    "sessions": SessionRow,
    "iterations": IterationRow,
    "messages": MessageRow,
    "tool_calls": ToolCallRow,
    "model_calls": ModelCallRow,
    "metrics": MetricRow,
    "scores": ScoreRow,
    "labels": LabelRow,
    "calibrations": CalibrationRow,
    "merge_history": MergeRow,
    "ledger": LedgerRow,
    "blobs": BlobRow,
    "questions": QuestionRow,
    "run_resources": ResourceRow,
    "pools": PoolRow,
    "evaluations": EvaluationRow,
    "evaluator_definitions": EvaluatorDefinitionRow,
    "online_configs": OnlineConfigRow,
    "online_sessions": OnlineSessionRow,
    "drift_scores": DriftScoreRow,
    "drift_points": DriftPointRow,
    "drift_crossings": DriftCrossingRow,
    "datasets": DatasetRow,
    "dataset_versions": DatasetVersionRow,
    "dataset_examples": DatasetExampleRow,
    "recommendations": RecommendationRow,
    "defined_resources": DefinedResourceRow,
    "resource_tags": ResourceTagRow,
    "client_tokens": ClientTokenRow,
    "arrivals": ArrivalRow,
    "log_streams": LogStreamRow,
    "log_events": LogEventRow,
    "data_keys": DataKeyRow,
    "signatures": SignatureRow,
    "annotations": AnnotationRow,
    "session_filters": SessionFilterRow,
}
"""The shape of the rows of each table. A `…Blob` column is the digest of a long text; it is absent once
the text is in its place."""
COLUMNS: dict[str, tuple[str, ...]] = {table: tuple(row.__annotations__) for table, row in ROWS.items()}
OLD_NAMES: dict[str, dict[str, str]] = {
    "sessions": {"isMock": "standIn"},
    "scores": {"scoredSessionId": "judgedSessionId"},
    "arrivals": {"logGroupExplicit": "logGroupSaid"},
    "calibrations": {"targets": "things"},
}
"""Deprecated names of columns, by table and new name. They can be read, also in `SELECT *`, not written."""

# Sanitizing values from agents.


LONGEST_ERROR = 8192
"""Characters of an error that are stored, half of them from its end."""


def clean(text: str) -> str:
    """Text without NUL and lone surrogates, which databases reject."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def short(text: str) -> str:
    """Head and tail of a text that should be short."""
    return text if len(text) <= LONGEST_ERROR else clipped(text, LONGEST_ERROR // 2)


def finite(number: float | None) -> float | None:
    """The number, or None if it is not finite."""
    try:
        return number if number is not None and math.isfinite(number) else None
    except OverflowError:
        return None


def amount(usd: float | None) -> float | None:
    """A cost, or None if it is invalid: a negative cost would increase the budget."""
    return usd if usd is not None and 0 <= usd <= MOST else None


def whole(number: float | str) -> int:
    """A count within the limits of a column and of sums over a batch."""
    if type(number) is int and 0 <= number <= MOST:
        return number
    try:
        return max(0, min(int(number), MOST))
    except (ValueError, OverflowError):
        return 0


# Conversion of items.


NEW_ITEM = (
    *("runId", "id", "position", "digest", "repeat", "runner", "repo", "prompt", "agent", "model"),
    *("factors", "details", "settings", "status"),
)
"""The columns of a new item. The others begin with the defaults that migrations give them."""


def row_of(run_id: str, position: int, item: Item) -> tuple[object, ...]:
    """The values of `NEW_ITEM` for an item."""
    digest = item.digest
    return (
        run_id,
        id_of(digest, item.repeat),
        position,
        digest,
        item.repeat,
        item.runner,
        clean(str(item.settings.get("repo", ""))),
        clean(item.prompt),
        item.agent,
        item.model,
        _json(item.factors),
        _json(item.details),
        _settings_json(item.settings),
        QUEUED,
    )


def changeable_columns(item: Item) -> tuple[str, str, str]:
    """The columns that may change while the item stays the same: settings, factors, repository."""
    return _json(item.settings), _json(item.factors), clean(str(item.settings.get("repo", "")))


def merge_row(session_id: str, position: int, when: str, merge: Merge) -> tuple[object, ...]:
    """The row of an attempt to merge, in the order of the columns of `merge_history`."""
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


def _json(value: Mapping[str, object]) -> str:
    return clean(_encode(dict(value)))


_latest_settings: tuple[Mapping[str, object], str] = ({}, "{}")


def _settings_json(settings: Mapping[str, object]) -> str:
    """As `_json`. The items of a plan share their settings: the last text is used again."""
    global _latest_settings
    latest = _latest_settings
    if latest[0] is not settings:
        _latest_settings = latest = (settings, _json(settings))
    return latest[1]


# Items of one plan share most of this, and are immutable.
@lru_cache(maxsize=1024)
def _mapping(text: str) -> Mapping[str, Any]:
    return require_map(parse_json(text))


_encode = compact_encoder()
