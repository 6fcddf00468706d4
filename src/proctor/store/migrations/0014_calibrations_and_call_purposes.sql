-- Calibrations of evaluators against human labels, which later evaluations are corrected by.

CREATE TABLE "calibrations" (
  "evaluator" TEXT NOT NULL,
  "evaluatorDigest" TEXT NOT NULL,
  "dimension" TEXT NOT NULL DEFAULT '',
  "at" TEXT NOT NULL,
  "things" BIGINT NOT NULL,
  "documentJson" TEXT NOT NULL,
  PRIMARY KEY ("evaluator", "evaluatorDigest", "dimension", "at")
);

-- Who a model was asked for, and what for: the narrator's world state, an actor's decision.

ALTER TABLE "model_calls" ADD COLUMN "speaker" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "purpose" TEXT NOT NULL DEFAULT '';
