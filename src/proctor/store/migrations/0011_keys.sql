-- The keys that texts in this store are sealed with, each wrapped by a master key that is kept elsewhere.
-- "scope" is empty for the store's own, else the run or the evaluator whose texts it seals. One that is
-- retired seals nothing new; "emptiedAt" is when everything it had sealed was sealed anew.

CREATE TABLE "data_keys" (
  "id" TEXT PRIMARY KEY,
  "scope" TEXT NOT NULL DEFAULT '',
  "masterKeyId" TEXT NOT NULL,
  "contextJson" TEXT NOT NULL DEFAULT '{}',
  "wrapped" TEXT NOT NULL,
  "createdAt" TEXT NOT NULL,
  "retiredAt" TEXT,
  "emptiedAt" TEXT
);
CREATE INDEX "data_keys_by_scope" ON "data_keys" ("scope");
