-- What callers of the server keep in it: evaluators of their own, configurations that judge sessions as they
-- arrive, tags, and log streams.

-- Instructions, scale and judge of an evaluator are in "configJson".
CREATE TABLE "evaluator_definitions" (
  "id" TEXT PRIMARY KEY,
  "name" TEXT NOT NULL UNIQUE,
  "level" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "description" TEXT NOT NULL DEFAULT '',
  "configJson" TEXT NOT NULL,
  "configJsonBlob" TEXT,
  "kmsKeyArn" TEXT NOT NULL DEFAULT '',
  "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);

-- "runId" is the batch that holds what was judged so far; it grows. Only sessions of which something came
-- after "enabledAt" are new. Of several servers one watches, which is "watchedBy".
CREATE TABLE "online_configs" (
  "id" TEXT PRIMARY KEY,
  "name" TEXT NOT NULL UNIQUE,
  "description" TEXT NOT NULL DEFAULT '',
  "documentJson" TEXT NOT NULL,
  "enabled" BIGINT NOT NULL DEFAULT 0,
  "enabledAt" TEXT,
  "failure" TEXT NOT NULL DEFAULT '',
  "runId" TEXT NOT NULL DEFAULT '',
  "watchedBy" TEXT NOT NULL DEFAULT '',
  "watchedAt" TEXT,
  "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);

-- Each session a configuration has looked at, once, and what it decided.
CREATE TABLE "online_sessions" (
  "configId" TEXT NOT NULL,
  "sessionId" TEXT NOT NULL,
  "decision" TEXT NOT NULL,
  "at" TEXT NOT NULL,
  PRIMARY KEY ("configId", "sessionId")
) /* without rowid */;

CREATE TABLE "resource_tags" (
  "arn" TEXT NOT NULL,
  "key" TEXT NOT NULL,
  "value" TEXT NOT NULL,
  PRIMARY KEY ("arn", "key")
) /* without rowid */;

-- What a request with this token came to, so that sending it again changes nothing.
CREATE TABLE "client_tokens" (
  "operation" TEXT NOT NULL,
  "token" TEXT NOT NULL,
  "digest" TEXT NOT NULL,
  "resourceId" TEXT NOT NULL,
  "at" TEXT NOT NULL,
  PRIMARY KEY ("operation", "token")
) /* without rowid */;

-- A stream without a name is the group itself. Times of events are milliseconds since 1970.
CREATE TABLE "log_streams" (
  "logGroup" TEXT NOT NULL,
  "logStream" TEXT NOT NULL,
  "createdAt" TEXT NOT NULL,
  PRIMARY KEY ("logGroup", "logStream")
) /* without rowid */;

CREATE TABLE "log_events" (
  "logGroup" TEXT NOT NULL,
  "logStream" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "timestamp" BIGINT NOT NULL,
  "ingestedAt" BIGINT NOT NULL,
  "message" TEXT NOT NULL,
  "messageBlob" TEXT,
  PRIMARY KEY ("logGroup", "logStream", "position")
) /* without rowid */;
CREATE INDEX "log_events_by_time" ON "log_events" ("logGroup", "timestamp");
