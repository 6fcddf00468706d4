-- How the programs of an attempt were confined: bubblewrap, landlock, container or none.

ALTER TABLE "sessions" ADD COLUMN "sandbox" TEXT NOT NULL DEFAULT '';
