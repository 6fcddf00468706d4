-- How the programs of an attempt were confined: bubblewrap, landlock, container or none.

ALTER TABLE "sessions" ADD COLUMN "sandbox" TEXT NOT NULL DEFAULT '';

-- Signatures of results: one row each time an item of a run ends, besides one for the run's begin and end
-- ("itemId" is empty). "digest" is of the result as it was written; "mac" is keyed, and covers the digest and
-- the row before, so that no row can be changed, removed or added without the key.

CREATE TABLE "signatures" (
  "runId" TEXT NOT NULL,
  "position" BIGINT NOT NULL,
  "itemId" TEXT NOT NULL DEFAULT '',
  "digest" TEXT NOT NULL,
  "keyId" TEXT NOT NULL,
  "mac" TEXT NOT NULL,
  PRIMARY KEY ("runId", "position")
) /* without rowid */;
