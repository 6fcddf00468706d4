"""Which columns are sealed where a store has a key, and why the others are not.

What people, agents and models said is sealed. What queries filter, group, order and sum by cannot be, and
stays readable to whoever has the disk. A test holds both lists against the migrated database: a new
column that holds text must be in one of them.

Knows nothing of keys.
"""

SEALED: dict[str, tuple[str, ...]] = {
    "batches": ("planText", "defaultsJson", "optionsJson"),
    "batch_items": ("prompt", "factors", "details", "settings", "error"),
    "sessions": ("name", "error", "notes", "attributesJson", "toolsJson"),
    "iterations": ("testOutput", "output"),
    "messages": ("content",),
    "tool_calls": ("argsJson", "result"),
    "model_calls": ("error", "request", "response"),
    "metrics": ("label",),
    "scores": ("label", "explanation", "error", "votes"),
    "labels": ("label", "note"),
    "merge_history": ("squashMessage", "error"),
    "blobs": ("data",),
    "questions": ("prompt", "answer"),
    "evaluations": ("requestJson", "metadataJson", "definitionsJson", "failure"),
    "evaluator_definitions": ("description", "configJson"),
    "online_configs": ("description", "documentJson", "failure"),
    "arrivals": ("data",),
    "log_events": ("message",),
}
"""By table, in the order of its columns."""

ALIKE = frozenset(
    {"batch_items.prompt", "sessions.name", "scores.label", "questions.prompt", "arrivals.data"}
)
"""Sealed so that equal texts under one key look equal: queries group by them or look for one. Whoever has
the disk can tell which of them are equal, and no more."""

LEVELS = frozenset({"batch_items.factors"})
"""Objects of which each text is sealed by itself, alike: queries group by one of them."""
PLAIN_LEVELS = frozenset({"model", "agent", "evaluator", "service", "client", "therapist"})
"""Factors whose levels are names, which stand in other columns too or are looked for."""

PLAIN: dict[str, tuple[str, ...]] = {
    "an id, which other rows refer to and queries look for": (
        *("batches.runId", "batch_items.runId", "batch_items.id", "batch_items.sessionId", "sessions.id"),
        *("sessions.runId", "sessions.itemId", "sessions.thread", "sessions.externalId"),
        *("iterations.sessionId", "iterations.traceId", "messages.sessionId", "tool_calls.sessionId"),
        *("tool_calls.callId", "model_calls.sessionId", "model_calls.callId", "metrics.sessionId"),
        *("scores.sessionId", "scores.target", "scores.judgedSessionId", "labels.sessionId"),
        *("labels.target", "merge_history.sessionId", "ledger.sessionId", "ledger.runId", "ledger.itemId"),
        *("questions.runId", "questions.id", "questions.itemId", "questions.sessionId", "pools.runId"),
        *("evaluations.id", "evaluations.arn", "evaluations.clientToken", "evaluator_definitions.id"),
        *("evaluator_definitions.kmsKeyArn", "online_configs.id", "online_configs.runId"),
        *("online_sessions.configId", "online_sessions.sessionId", "resource_tags.arn"),
        *("client_tokens.operation", "client_tokens.token", "client_tokens.resourceId", "arrivals.traceId"),
        *("arrivals.spanId", "arrivals.part", "arrivals.parentId", "arrivals.sessionKey"),
        *("arrivals.sessionId", "data_keys.id", "data_keys.scope", "data_keys.masterKeyId"),
    ),
    "a moment": (
        *("batches.createdAt", "batches.finishedAt", "batches.heartbeatAt", "batches.abortRequestedAt"),
        *("batch_items.startedAt", "batch_items.finishedAt", "sessions.startedAt", "sessions.finishedAt"),
        *("iterations.startTime", "iterations.endTime", "messages.timestamp", "tool_calls.timestamp"),
        *("model_calls.timestamp", "scores.timestamp", "labels.at", "merge_history.startedAt"),
        *("merge_history.finishedAt", "ledger.timestamp", "questions.askedAt", "questions.answeredAt"),
        *("pools.heldUntil", "pools.cutAt", "pools.heartbeatAt", "evaluations.createdAt"),
        *("evaluations.discoveredAt", "evaluations.deletedAt", "evaluator_definitions.createdAt"),
        *("evaluator_definitions.updatedAt", "online_configs.enabledAt", "online_configs.createdAt"),
        *(
            "online_configs.updatedAt",
            "online_configs.watchedAt",
            "online_sessions.at",
            "client_tokens.at",
            "arrivals.arrivedAt",
        ),
        *("log_streams.createdAt", "data_keys.createdAt", "data_keys.retiredAt"),
        "data_keys.emptiedAt",
    ),
    "one word of a few, ours": (
        *("batches.job", "batches.status", "batches.reason", "batches.proctorVersion", "batch_items.runner"),
        *("batch_items.status", "batch_items.reason", "sessions.job", "sessions.status"),
        *("sessions.endReason", "sessions.source", "iterations.testResult", "messages.role"),
        *("model_calls.status", "model_calls.priceSource", "scores.level", "scores.errorCode"),
        *("scores.ignored", "labels.level", "merge_history.mode", "merge_history.result", "ledger.kind"),
        *("evaluator_definitions.level", "evaluator_definitions.kind", "online_sessions.decision"),
    ),
    "a name that tables are grouped, filtered or sorted by": (
        *("batch_items.agent", "batch_items.model", "sessions.agent"),
        *("sessions.agentVersion", "sessions.model", "sessions.service", "sessions.logGroup"),
        *("iterations.model", "messages.name", "tool_calls.toolName", "model_calls.provider"),
        *("model_calls.model", "model_calls.price", "metrics.name", "scores.evaluator", "scores.dimension"),
        *("labels.evaluator", "labels.dimension", "labels.who", "questions.actor", "pools.name"),
        *("evaluations.name", "evaluations.outputGroup", "evaluations.outputStream"),
        *("evaluator_definitions.name", "online_configs.name", "resource_tags.key", "resource_tags.value"),
        *("arrivals.service", "arrivals.logGroup", "log_streams.logGroup", "log_streams.logStream"),
        *("log_events.logGroup", "log_events.logStream"),
    ),
    "where something is on this machine, which lies open there": (
        *("batches.planPath", "batches.owner", "batch_items.repo", "sessions.repo", "sessions.branch"),
        *("sessions.baseBranch", "sessions.worktree", "merge_history.baseBranch"),
        *("merge_history.conflictFiles", "ledger.holder", "online_configs.watchedBy", "pools.owner"),
    ),
    "a digest: whoever knows the whole text can recognise it, nobody can read it": (
        *("batches.planDigest", "batch_items.digest", "batch_items.iterSha", "sessions.baseSha"),
        *("iterations.commitSha", "scores.evaluatorDigest", "merge_history.beforeSha"),
        *("merge_history.afterSha", "evaluations.requestDigest", "client_tokens.digest"),
    ),
    "keyed: no text can be recognised by it": (
        *("blobs.digest", "sessions.toolsJsonBlob", "iterations.testOutputBlob", "iterations.outputBlob"),
        *("messages.contentBlob", "tool_calls.argsJsonBlob", "tool_calls.resultBlob"),
        *("model_calls.requestBlob", "model_calls.responseBlob", "scores.explanationBlob"),
        *("labels.noteBlob", "evaluations.metadataJsonBlob", "evaluator_definitions.configJsonBlob"),
        "log_events.messageBlob",
    ),
    "what is needed to open the rest": ("data_keys.contextJson", "data_keys.wrapped"),
}
"""Columns that hold text and stay readable, by the reason."""

EMPTY = ("", "{}", "[]")
"""What says nothing is not sealed: queries ask whether there is an error, a label, a note."""


def is_digest(table: str, column: str) -> bool:
    """Whether a column holds the digest of a long text."""
    return column.endswith("Blob") or (table, column) == ("blobs", "digest")
