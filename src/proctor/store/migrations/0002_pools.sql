-- What each process has found out about how much a provider takes at once. Rows of processes that have
-- gone are removed by those that remain.

CREATE TABLE "pools" (
  "name" TEXT NOT NULL,
  "owner" TEXT NOT NULL,
  "runId" TEXT NOT NULL DEFAULT '',
  "limit" DOUBLE PRECISION NOT NULL,
  "inUse" BIGINT NOT NULL DEFAULT 0,
  "waiting" BIGINT NOT NULL DEFAULT 0,
  "calls" BIGINT NOT NULL DEFAULT 0,
  "limited" BIGINT NOT NULL DEFAULT 0,
  "waitedSeconds" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "heldUntil" TEXT,
  "cutAt" TEXT,
  "heartbeatAt" TEXT NOT NULL,
  PRIMARY KEY ("name", "owner")
);
