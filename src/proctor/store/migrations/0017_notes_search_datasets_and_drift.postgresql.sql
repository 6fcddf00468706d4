-- The full-text index of transcripts.

CREATE TABLE "search_texts" (
  "rowid" BIGINT NOT NULL PRIMARY KEY,
  "vector" TSVECTOR NOT NULL
);
CREATE INDEX "search_texts_by_word" ON "search_texts" USING GIN ("vector");
