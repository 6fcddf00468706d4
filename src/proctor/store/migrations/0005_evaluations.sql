-- Evaluation jobs: what was asked of them, and what became of it besides the rows of their batch. The id
-- is the batch's `runId`.

CREATE TABLE "evaluations" (
  "id" TEXT PRIMARY KEY,
  "arn" TEXT NOT NULL,
  "name" TEXT NOT NULL,
  "createdAt" TEXT NOT NULL,
  "clientToken" TEXT NOT NULL DEFAULT '',
  "requestDigest" TEXT NOT NULL,
  "requestJson" TEXT NOT NULL,
  "metadataJson" TEXT NOT NULL DEFAULT '[]',
  "metadataJsonBlob" TEXT,
  "definitionsJson" TEXT NOT NULL DEFAULT '{}',
  "outputGroup" TEXT NOT NULL DEFAULT '',
  "outputStream" TEXT NOT NULL DEFAULT '',
  "discoveredAt" TEXT,
  "sessionsFound" BIGINT NOT NULL DEFAULT 0,
  "sessionsIgnored" BIGINT NOT NULL DEFAULT 0,
  "failure" TEXT NOT NULL DEFAULT '',
  "deletedAt" TEXT
);
CREATE INDEX "evaluations_by_time" ON "evaluations" ("createdAt", "id");
CREATE UNIQUE INDEX "evaluations_by_token" ON "evaluations" ("clientToken") WHERE "clientToken" <> '';
CREATE INDEX "evaluations_by_output" ON "evaluations" ("outputGroup", "outputStream");
