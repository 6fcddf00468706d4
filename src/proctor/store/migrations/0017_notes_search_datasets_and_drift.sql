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
