-- What the set-up of a session printed, with its first step.

ALTER TABLE "iterations" ADD COLUMN "setupOutput" TEXT NOT NULL DEFAULT '';
ALTER TABLE "iterations" ADD COLUMN "setupOutputBlob" TEXT;
