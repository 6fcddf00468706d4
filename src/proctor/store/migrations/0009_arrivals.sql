-- Spans and event records as they arrived, one by one, until all of a session is there to be told.
-- `sessionId` is the session it was last told as; `isNew` is 1 while that is not up to date.

CREATE TABLE "arrivals" (
  "traceId" TEXT NOT NULL,
  "spanId" TEXT NOT NULL,
  "part" TEXT NOT NULL,
  "parentId" TEXT NOT NULL DEFAULT '',
  "sessionKey" TEXT NOT NULL DEFAULT '',
  "service" TEXT NOT NULL DEFAULT '',
  "logGroup" TEXT NOT NULL DEFAULT '',
  "logGroupSaid" BIGINT NOT NULL DEFAULT 0,
  "startedNano" BIGINT NOT NULL DEFAULT 0,
  "arrivedAt" TEXT NOT NULL,
  "sessionId" TEXT NOT NULL DEFAULT '',
  "isNew" BIGINT NOT NULL DEFAULT 1,
  "data" BYTEA NOT NULL,
  PRIMARY KEY ("traceId", "spanId", "part")
);
CREATE INDEX "arrivals_new" ON "arrivals" ("traceId") WHERE "isNew" = 1;
CREATE INDEX "arrivals_by_key" ON "arrivals" ("sessionKey") WHERE "sessionKey" <> '';
CREATE INDEX "arrivals_of_session" ON "arrivals" ("sessionId") WHERE "sessionId" <> '';
