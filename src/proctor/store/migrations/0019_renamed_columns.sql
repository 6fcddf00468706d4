-- Columns that got the name of what they are. Nothing is rewritten in SQLite, nor in PostgreSQL from version 18 on;
-- before it, a table is rewritten once. The old names can still be read.

ALTER TABLE "sessions" RENAME COLUMN "standIn" TO "isMock";
ALTER TABLE "sessions" ADD COLUMN "standIn" BIGINT GENERATED ALWAYS AS ("isMock") /* stored */;

ALTER TABLE "scores" RENAME COLUMN "judgedSessionId" TO "scoredSessionId";
ALTER TABLE "scores" ADD COLUMN "judgedSessionId" TEXT GENERATED ALWAYS AS ("scoredSessionId") /* stored */;

ALTER TABLE "arrivals" RENAME COLUMN "logGroupSaid" TO "logGroupExplicit";
ALTER TABLE "arrivals" ADD COLUMN "logGroupSaid" BIGINT GENERATED ALWAYS AS ("logGroupExplicit") /* stored */;

ALTER TABLE "calibrations" RENAME COLUMN "things" TO "targets";
ALTER TABLE "calibrations" ADD COLUMN "things" BIGINT GENERATED ALWAYS AS ("targets") /* stored */;
