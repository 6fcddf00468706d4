-- What each of several judges said about a target: a jury, or a first judge and a second one. JSON.

ALTER TABLE "scores" ADD COLUMN "ballots" TEXT NOT NULL DEFAULT '[]';
