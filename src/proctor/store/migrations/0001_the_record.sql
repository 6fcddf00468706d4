-- The record of every job. Types are PostgreSQL's; SQLite gives each the affinity we want.
-- A finished migration is never edited: what comes later is a new file.

CREATE TABLE "batches" (
  "runId" TEXT PRIMARY KEY,
  "createdAt" TEXT NOT NULL,
  "finishedAt" TEXT,
  "job" TEXT NOT NULL,
  "status" TEXT NOT NULL,
  "reason" TEXT NOT NULL DEFAULT '',
  "planPath" TEXT NOT NULL DEFAULT '',
  "planText" TEXT NOT NULL DEFAULT '',
  "planDigest" TEXT NOT NULL DEFAULT '',
  "defaultsJson" TEXT NOT NULL DEFAULT '{}',
  "optionsJson" TEXT NOT NULL DEFAULT '{}',
  "concurrency" BIGINT NOT NULL DEFAULT 1,
  "seed" BIGINT,
  "budgetUsd" DOUBLE PRECISION,
  "owner" TEXT NOT NULL DEFAULT '',
  "heartbeatAt" TEXT,
  "abortRequestedAt" TEXT,
  "proctorVersion" TEXT NOT NULL DEFAULT ''
);
CREATE INDEX "batches_by_time" ON "batches" ("createdAt");

CREATE TABLE "batch_items" (
  "runId" TEXT NOT NULL,
  "id" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "digest" TEXT NOT NULL,
  "repeat" BIGINT NOT NULL,
  "runner" TEXT NOT NULL,
  "repo" TEXT NOT NULL DEFAULT '',
  "prompt" TEXT NOT NULL DEFAULT '',
  "agent" TEXT NOT NULL DEFAULT '',
  "model" TEXT NOT NULL DEFAULT '',
  "factors" TEXT NOT NULL DEFAULT '{}',
  "details" TEXT NOT NULL DEFAULT '{}',
  "settings" TEXT NOT NULL DEFAULT '{}',
  "status" TEXT NOT NULL,
  "reason" TEXT NOT NULL DEFAULT '',
  "error" TEXT NOT NULL DEFAULT '',
  "startedAt" TEXT,
  "finishedAt" TEXT,
  "sessionId" TEXT,
  "iterSha" TEXT,
  "tokensTotal" BIGINT NOT NULL DEFAULT 0,
  "toolCalls" BIGINT NOT NULL DEFAULT 0,
  "costUsd" DOUBLE PRECISION,
  PRIMARY KEY ("runId", "id")
);
CREATE INDEX "items_by_status" ON "batch_items" ("runId", "status", "position");
CREATE INDEX "items_in_order" ON "batch_items" ("runId", "position");

CREATE TABLE "sessions" (
  "id" TEXT PRIMARY KEY,
  "runId" TEXT,
  "itemId" TEXT,
  "attempt" BIGINT NOT NULL DEFAULT 1,
  "job" TEXT NOT NULL,
  "name" TEXT NOT NULL DEFAULT '',
  "agent" TEXT NOT NULL DEFAULT '',
  "agentVersion" TEXT NOT NULL DEFAULT '',
  "model" TEXT NOT NULL DEFAULT '',
  "standIn" BIGINT NOT NULL DEFAULT 0,
  "status" TEXT NOT NULL,
  "endReason" TEXT NOT NULL DEFAULT '',
  "error" TEXT NOT NULL DEFAULT '',
  "repo" TEXT NOT NULL DEFAULT '',
  "branch" TEXT NOT NULL DEFAULT '',
  "baseBranch" TEXT NOT NULL DEFAULT '',
  "baseSha" TEXT NOT NULL DEFAULT '',
  "worktree" TEXT NOT NULL DEFAULT '',
  "thread" TEXT NOT NULL DEFAULT '',
  "source" TEXT NOT NULL DEFAULT '',
  "service" TEXT NOT NULL DEFAULT '',
  "logGroup" TEXT NOT NULL DEFAULT '',
  "startedAt" TEXT,
  "finishedAt" TEXT,
  "workSeconds" DOUBLE PRECISION,
  "waitingSeconds" DOUBLE PRECISION,
  "promptTokens" BIGINT NOT NULL DEFAULT 0,
  "cachedTokens" BIGINT NOT NULL DEFAULT 0,
  "completionTokens" BIGINT NOT NULL DEFAULT 0,
  "reasoningTokens" BIGINT NOT NULL DEFAULT 0,
  "totalTokens" BIGINT NOT NULL DEFAULT 0,
  "costUsd" DOUBLE PRECISION,
  "unpricedCalls" BIGINT NOT NULL DEFAULT 0,
  "modelCalls" BIGINT NOT NULL DEFAULT 0,
  "toolCalls" BIGINT NOT NULL DEFAULT 0,
  "interventions" BIGINT NOT NULL DEFAULT 0,
  "notes" TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX "sessions_of_item" ON "sessions" ("runId", "itemId");
CREATE INDEX "sessions_by_time" ON "sessions" ("startedAt");

CREATE TABLE "iterations" (
  "sessionId" TEXT NOT NULL,
  "step" BIGINT NOT NULL,
  "startTime" TEXT,
  "endTime" TEXT,
  "commitSha" TEXT NOT NULL DEFAULT '',
  "changedFiles" BIGINT NOT NULL DEFAULT 0,
  "linesAdded" BIGINT NOT NULL DEFAULT 0,
  "linesRemoved" BIGINT NOT NULL DEFAULT 0,
  "testResult" TEXT NOT NULL DEFAULT '',
  "testExitCode" BIGINT,
  "testDurationMs" DOUBLE PRECISION,
  "testOutput" TEXT NOT NULL DEFAULT '',
  "testOutputBlob" TEXT,
  "model" TEXT NOT NULL DEFAULT '',
  "exitCode" BIGINT,
  "promptTokens" BIGINT NOT NULL DEFAULT 0,
  "completionTokens" BIGINT NOT NULL DEFAULT 0,
  "totalTokens" BIGINT NOT NULL DEFAULT 0,
  "costUsd" DOUBLE PRECISION,
  "output" TEXT NOT NULL DEFAULT '',
  "outputBlob" TEXT,
  PRIMARY KEY ("sessionId", "step")
) /* without rowid */;

CREATE TABLE "messages" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "step" BIGINT NOT NULL DEFAULT 1,
  "timestamp" TEXT,
  "role" TEXT NOT NULL,
  "name" TEXT NOT NULL DEFAULT '',
  "content" TEXT NOT NULL DEFAULT '',
  "contentBlob" TEXT,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

CREATE TABLE "tool_calls" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "step" BIGINT NOT NULL DEFAULT 1,
  "timestamp" TEXT,
  "toolName" TEXT NOT NULL,
  "argsJson" TEXT NOT NULL DEFAULT '{}',
  "argsJsonBlob" TEXT,
  "success" BIGINT,
  "durationMs" DOUBLE PRECISION,
  "result" TEXT NOT NULL DEFAULT '',
  "resultBlob" TEXT,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

CREATE TABLE "model_calls" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "step" BIGINT NOT NULL DEFAULT 1,
  "timestamp" TEXT,
  "provider" TEXT NOT NULL DEFAULT '',
  "model" TEXT NOT NULL,
  "promptTokens" BIGINT NOT NULL DEFAULT 0,
  "cachedTokens" BIGINT NOT NULL DEFAULT 0,
  "completionTokens" BIGINT NOT NULL DEFAULT 0,
  "reasoningTokens" BIGINT NOT NULL DEFAULT 0,
  "costUsd" DOUBLE PRECISION,
  "priceSource" TEXT NOT NULL DEFAULT '',
  "price" TEXT NOT NULL DEFAULT '{}',
  "latencyMs" DOUBLE PRECISION,
  "waitingMs" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "status" TEXT NOT NULL DEFAULT 'ok',
  "error" TEXT NOT NULL DEFAULT '',
  "request" TEXT NOT NULL DEFAULT '',
  "requestBlob" TEXT,
  "response" TEXT NOT NULL DEFAULT '',
  "responseBlob" TEXT,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

CREATE TABLE "metrics" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "step" BIGINT NOT NULL DEFAULT 0,
  "name" TEXT NOT NULL,
  "value" DOUBLE PRECISION,
  "label" TEXT,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

CREATE TABLE "scores" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "timestamp" TEXT,
  "evaluator" TEXT NOT NULL,
  "evaluatorDigest" TEXT NOT NULL DEFAULT '',
  "level" TEXT NOT NULL DEFAULT 'session',
  "target" TEXT NOT NULL DEFAULT '',
  "value" DOUBLE PRECISION,
  "label" TEXT NOT NULL DEFAULT '',
  "explanation" TEXT NOT NULL DEFAULT '',
  "explanationBlob" TEXT,
  "error" TEXT NOT NULL DEFAULT '',
  "costUsd" DOUBLE PRECISION,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

CREATE TABLE "merge_history" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "startedAt" TEXT,
  "finishedAt" TEXT,
  "baseBranch" TEXT NOT NULL DEFAULT '',
  "mode" TEXT NOT NULL DEFAULT '',
  "result" TEXT NOT NULL,
  "conflictFiles" TEXT NOT NULL DEFAULT '[]',
  "squashMessage" TEXT NOT NULL DEFAULT '',
  "beforeSha" TEXT NOT NULL DEFAULT '',
  "afterSha" TEXT NOT NULL DEFAULT '',
  "error" TEXT NOT NULL DEFAULT '',
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;

-- Money set aside and spent: what is reserved and what is spent are sums over these rows.
CREATE TABLE "ledger" (
  "sessionId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "runId" TEXT NOT NULL,
  "itemId" TEXT NOT NULL DEFAULT '',
  "timestamp" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "reservedUsd" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "spentUsd" DOUBLE PRECISION NOT NULL DEFAULT 0,
  PRIMARY KEY ("sessionId", "position")
) /* without rowid */;
CREATE INDEX "ledger_of_batch" ON "ledger" ("runId");

-- Long or repeated text, kept once: the key is its SHA-256, the data is compressed with zlib.
CREATE TABLE "blobs" (
  "digest" TEXT PRIMARY KEY,
  "size" BIGINT NOT NULL,
  "data" BYTEA NOT NULL
);
