-- Money that several processes share: each draws on it before it spends (`draw`), and leaves what it has
-- not spent when it ends (`close`). What was spent before there was such a thing counts as drawn by nobody.

ALTER TABLE "ledger" ADD COLUMN "holder" TEXT NOT NULL DEFAULT '';
INSERT INTO "ledger" ("sessionId", "position", "runId", "timestamp", "kind", "reservedUsd", "spentUsd")
  SELECT 'earlier:' || "runId", 1, "runId", MAX("timestamp"), 'close', SUM("spentUsd"), 0
  FROM "ledger" GROUP BY "runId";
CREATE INDEX "ledger_draws" ON "ledger" ("runId", "holder") WHERE "kind" IN ('draw', 'close');
