-- Units of sale of reranking. Servers of the version before go on meanwhile: what they
-- write has neither.
ALTER TABLE receipt ADD COLUMN search_unit BIGINT;
ALTER TABLE receipt ADD COLUMN request BIGINT;
ALTER TABLE usage_hour ADD COLUMN search_unit BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_hour ADD COLUMN request BIGINT NOT NULL DEFAULT 0;
