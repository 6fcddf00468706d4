-- Sessions that another tool recorded, and judgements of a session that were made in another one.

ALTER TABLE "sessions" ADD COLUMN "externalId" TEXT NOT NULL DEFAULT '';
ALTER TABLE "sessions" ADD COLUMN "attributesJson" TEXT NOT NULL DEFAULT '{}';
ALTER TABLE "sessions" ADD COLUMN "toolsJson" TEXT NOT NULL DEFAULT '[]';
ALTER TABLE "sessions" ADD COLUMN "toolsJsonBlob" TEXT;
CREATE INDEX "sessions_by_origin" ON "sessions" ("logGroup", "service", "externalId");

ALTER TABLE "iterations" ADD COLUMN "traceId" TEXT NOT NULL DEFAULT '';
ALTER TABLE "tool_calls" ADD COLUMN "callId" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "callId" TEXT NOT NULL DEFAULT '';

ALTER TABLE "scores" ADD COLUMN "dimension" TEXT NOT NULL DEFAULT '';
ALTER TABLE "scores" ADD COLUMN "errorCode" TEXT NOT NULL DEFAULT '';
ALTER TABLE "scores" ADD COLUMN "inputTokens" BIGINT NOT NULL DEFAULT 0;
ALTER TABLE "scores" ADD COLUMN "outputTokens" BIGINT NOT NULL DEFAULT 0;
ALTER TABLE "scores" ADD COLUMN "ignored" TEXT NOT NULL DEFAULT '[]';
ALTER TABLE "scores" ADD COLUMN "judgedSessionId" TEXT NOT NULL DEFAULT '';
CREATE INDEX "scores_of_judged" ON "scores" ("judgedSessionId");
