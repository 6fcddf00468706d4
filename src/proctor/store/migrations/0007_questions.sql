-- What people who play a part in a run are asked, and what they answer, from whatever process.

CREATE TABLE "questions" (
  "runId" TEXT NOT NULL,
  "id" TEXT NOT NULL,
  "itemId" TEXT NOT NULL,
  "sessionId" TEXT NOT NULL DEFAULT '',
  "position" BIGINT NOT NULL,
  "actor" TEXT NOT NULL,
  "prompt" TEXT NOT NULL,
  "askedAt" TEXT NOT NULL,
  "answer" TEXT,
  "answeredAt" TEXT,
  PRIMARY KEY ("runId", "id")
);
