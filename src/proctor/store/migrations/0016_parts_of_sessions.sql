-- Parts of the work time of a coding session, in seconds; NULL: it had no such part. "workSeconds" is the sum,
-- with what lies between them.

ALTER TABLE "sessions" ADD COLUMN "checkoutSeconds" DOUBLE PRECISION;
ALTER TABLE "sessions" ADD COLUMN "setupSeconds" DOUBLE PRECISION;
ALTER TABLE "sessions" ADD COLUMN "agentSeconds" DOUBLE PRECISION;
ALTER TABLE "sessions" ADD COLUMN "checkSeconds" DOUBLE PRECISION;

-- The model that gave most of the answers, if it is not the one that was asked for.

ALTER TABLE "sessions" ADD COLUMN "answeredModel" TEXT NOT NULL DEFAULT '';

-- Whether the check passed before the agent began: pass, fail, or empty if it was not run.

ALTER TABLE "sessions" ADD COLUMN "baseline" TEXT NOT NULL DEFAULT '';

-- How merging the work of a passing item ended: success, conflict, error, or empty if it was not merged.

ALTER TABLE "batch_items" ADD COLUMN "merge" TEXT NOT NULL DEFAULT '';
