-- Sessions that continue an earlier one with the comments of a reviewer, on top of its branch.

ALTER TABLE "sessions" ADD COLUMN "continues" TEXT NOT NULL DEFAULT '';
CREATE INDEX "sessions_continues" ON "sessions" ("continues") WHERE "continues" <> '';
