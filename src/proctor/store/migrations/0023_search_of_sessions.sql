-- The named prompt that a received session used, with its version, as its attributes say.

ALTER TABLE "sessions" ADD COLUMN "promptName" TEXT NOT NULL DEFAULT '';

-- The search of sessions. The first index has all that sessions are filtered by and counted by, so that a search
-- of a million reads none of their rows.

CREATE INDEX "sessions_by_facets" ON "sessions"
  ("job", "service", "agent", "agentVersion", "promptName", "model", "answeredModel", "status", "startedAt", "workSeconds", "costUsd", "totalTokens", "id");
CREATE INDEX "tool_calls_by_name" ON "tool_calls" ("toolName", "sessionId");
CREATE INDEX "scores_by_value" ON "scores" ("evaluator", "dimension", "value", "scoredSessionId", "sessionId");

-- Filters of sessions that people keep under a name.

CREATE TABLE "session_filters" (
  "name" TEXT PRIMARY KEY,
  "filterJson" TEXT NOT NULL,
  "author" TEXT NOT NULL DEFAULT '',
  "createdAt" TEXT NOT NULL
);
