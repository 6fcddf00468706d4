-- What came when: online configurations look for sessions of which nothing has come for a while.

CREATE INDEX "arrivals_by_time" ON "arrivals" ("arrivedAt");
