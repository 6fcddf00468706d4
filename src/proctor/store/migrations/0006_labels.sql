-- What people say of a session, to hold evaluators against; and what each of several votes of a judge said.

CREATE TABLE "labels" (
  "sessionId" TEXT NOT NULL,
  "evaluator" TEXT NOT NULL,
  "target" TEXT NOT NULL DEFAULT '',
  "dimension" TEXT NOT NULL DEFAULT '',
  "who" TEXT NOT NULL,
  "level" TEXT NOT NULL DEFAULT 'session',
  "at" TEXT NOT NULL,
  "value" DOUBLE PRECISION,
  "label" TEXT NOT NULL DEFAULT '',
  "note" TEXT NOT NULL DEFAULT '',
  "noteBlob" TEXT,
  PRIMARY KEY ("sessionId", "evaluator", "target", "dimension", "who")
) /* without rowid */;
CREATE INDEX "labels_by_evaluator" ON "labels" ("evaluator", "dimension");

ALTER TABLE "scores" ADD COLUMN "votes" TEXT NOT NULL DEFAULT '[]';
