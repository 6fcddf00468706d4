-- Who answered each call and what it was sent, and what makes a session less valid as data.

ALTER TABLE "model_calls" ADD COLUMN "servedModel" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "fingerprint" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "requestId" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "finishReason" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "parametersJson" TEXT NOT NULL DEFAULT '';
ALTER TABLE "model_calls" ADD COLUMN "notSent" TEXT NOT NULL DEFAULT '[]';
ALTER TABLE "sessions" ADD COLUMN "servedModels" TEXT NOT NULL DEFAULT '{}';
ALTER TABLE "sessions" ADD COLUMN "validity" TEXT NOT NULL DEFAULT '{}';
