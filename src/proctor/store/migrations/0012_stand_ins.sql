-- Who rehearsed in a run is asked whenever somebody looks at it. Real sessions are not in this index, so
-- that it costs a batch of them nothing.
CREATE INDEX "sessions_of_stand_ins" ON "sessions" ("runId", "agent", "model") WHERE "standIn" = 1;
