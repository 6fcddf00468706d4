-- Annotations of sessions by people: notes, stars and tags. "text" is empty for a star.

CREATE TABLE "annotations" (
  "sessionId" TEXT NOT NULL,
  "id" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "text" TEXT NOT NULL DEFAULT '',
  "author" TEXT NOT NULL DEFAULT '',
  "createdAt" TEXT NOT NULL,
  PRIMARY KEY ("sessionId", "id")
) /* without rowid */;
CREATE INDEX "annotations_by_kind" ON "annotations" ("kind", "sessionId");

-- Sessions whose transcripts are in the full-text index. Rows of the index have the number of their session,
-- shifted by 22 bits, and the position of the event. The index of SQLite is made by the first search: not every
-- build of SQLite has FTS5.

CREATE TABLE "search_sessions" (
  "sessionId" TEXT NOT NULL PRIMARY KEY,
  "number" BIGINT NOT NULL UNIQUE
) /* without rowid */;

-- Datasets of test scenarios that callers keep here. Version 0 of the examples is the draft; publishing copies
-- it. "lastVersion" is the highest number ever given, so that no number is used twice.

CREATE TABLE "datasets" (
  "id" TEXT PRIMARY KEY,
  "name" TEXT NOT NULL UNIQUE,
  "schemaType" TEXT NOT NULL,
  "description" TEXT NOT NULL DEFAULT '',
  "kmsKeyArn" TEXT NOT NULL DEFAULT '',
  "lastVersion" BIGINT NOT NULL DEFAULT 0,
  "draftModified" BIGINT NOT NULL DEFAULT 1,
  "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);

CREATE TABLE "dataset_versions" (
  "datasetId" TEXT NOT NULL,
  "version" BIGINT NOT NULL,
  "examples" BIGINT NOT NULL,
  "createdAt" TEXT NOT NULL,
  PRIMARY KEY ("datasetId", "version")
) /* without rowid */;

CREATE TABLE "dataset_examples" (
  "datasetId" TEXT NOT NULL,
  "version" BIGINT NOT NULL,
  "position" BIGINT NOT NULL,
  "exampleId" TEXT NOT NULL,
  "contentJson" TEXT NOT NULL,
  "contentJsonBlob" TEXT,
  PRIMARY KEY ("datasetId", "version", "position")
) /* without rowid */;
CREATE UNIQUE INDEX "dataset_examples_by_id" ON "dataset_examples" ("datasetId", "version", "exampleId");

-- Recommendations of prompts and tool descriptions, which a server computes: "watchedBy" is the one that does.

CREATE TABLE "recommendations" (
  "id" TEXT PRIMARY KEY,
  "name" TEXT NOT NULL,
  "type" TEXT NOT NULL,
  "status" TEXT NOT NULL,
  "description" TEXT NOT NULL DEFAULT '',
  "kmsKeyArn" TEXT NOT NULL DEFAULT '',
  "requestJson" TEXT NOT NULL,
  "requestJsonBlob" TEXT,
  "resultJson" TEXT NOT NULL DEFAULT '',
  "resultJsonBlob" TEXT,
  "watchedBy" TEXT NOT NULL DEFAULT '',
  "watchedAt" TEXT,
  "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);
CREATE INDEX "recommendations_by_time" ON "recommendations" ("createdAt", "id");

-- Drift of online evaluation: one line per configuration, evaluator and dimension. Scores are means by session,
-- in the order in which they were evaluated; points are those of the line; a crossing is a change of the mean
-- and its alert ("none", "pending", "sent" or "failed"; "nextAt": when it is sent next).

CREATE TABLE "drift_scores" (
  "configId" TEXT NOT NULL,
  "evaluator" TEXT NOT NULL,
  "dimension" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "sessionId" TEXT NOT NULL,
  "value" DOUBLE PRECISION NOT NULL,
  "at" TEXT NOT NULL,
  PRIMARY KEY ("configId", "evaluator", "dimension", "position")
) /* without rowid */;
CREATE UNIQUE INDEX "drift_scores_by_session"
  ON "drift_scores" ("configId", "evaluator", "dimension", "sessionId");

CREATE TABLE "drift_points" (
  "configId" TEXT NOT NULL,
  "evaluator" TEXT NOT NULL,
  "dimension" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "at" TEXT NOT NULL,
  "mean" DOUBLE PRECISION NOT NULL,
  "low" DOUBLE PRECISION NOT NULL,
  "high" DOUBLE PRECISION NOT NULL,
  PRIMARY KEY ("configId", "evaluator", "dimension", "position")
) /* without rowid */;

CREATE TABLE "drift_crossings" (
  "configId" TEXT NOT NULL,
  "evaluator" TEXT NOT NULL,
  "dimension" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "at" TEXT NOT NULL,
  "direction" TEXT NOT NULL,
  "beforeMean" DOUBLE PRECISION,
  "beforeLow" DOUBLE PRECISION,
  "beforeHigh" DOUBLE PRECISION,
  "afterMean" DOUBLE PRECISION NOT NULL,
  "afterLow" DOUBLE PRECISION NOT NULL,
  "afterHigh" DOUBLE PRECISION NOT NULL,
  "afterSessions" BIGINT NOT NULL,
  "alert" TEXT NOT NULL DEFAULT 'none',
  "attempts" BIGINT NOT NULL DEFAULT 0,
  "nextAt" TEXT,
  "problem" TEXT NOT NULL DEFAULT '',
  PRIMARY KEY ("configId", "evaluator", "dimension", "position")
) /* without rowid */;
CREATE INDEX "drift_alerts_due" ON "drift_crossings" ("nextAt") WHERE "alert" = 'pending';
