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
