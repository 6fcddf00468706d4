-- Resources that a server keeps as documents: A/B tests and configuration bundles, by "kind".

CREATE TABLE "defined_resources" (
  "id" TEXT PRIMARY KEY,
  "kind" TEXT NOT NULL,
  "name" TEXT NOT NULL,
  "description" TEXT NOT NULL DEFAULT '',
  "documentJson" TEXT NOT NULL,
  "documentJsonBlob" TEXT,
  "createdAt" TEXT NOT NULL,
  "updatedAt" TEXT NOT NULL
);
CREATE UNIQUE INDEX "defined_resources_by_name" ON "defined_resources" ("kind", "name");
