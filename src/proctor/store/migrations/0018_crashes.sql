-- How often a process of the run died while it worked. Calls that were in flight then, and answers that were not
-- yet committed, may have cost money that no row has: the cost of such a run is a lower bound.

ALTER TABLE "batches" ADD COLUMN "crashes" BIGINT NOT NULL DEFAULT 0;
