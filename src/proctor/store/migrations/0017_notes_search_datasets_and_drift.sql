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
