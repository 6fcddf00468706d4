"""The tables and their columns, in the order in which they are written and exported.

A test holds this list against the migrated database.
"""

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
