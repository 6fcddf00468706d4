-- Who a model was asked for, and what for: the narrator's world state, an actor's decision.

ALTER TABLE "model_calls" ADD COLUMN "speaker" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "purpose" TEXT NOT NULL DEFAULT '';
