-- Texts that the items of a run refer to by digest: roles, scenarios.

CREATE TABLE "run_resources" (
  "runId" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "name" TEXT NOT NULL,
  "digest" TEXT NOT NULL,
  "content" TEXT NOT NULL,
  PRIMARY KEY ("runId", "digest")
);
