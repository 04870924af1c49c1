-- Every price row that a hold ever pinned. A version is the hash of the
-- content, so a row never changes.
CREATE TABLE price (
	version TEXT PRIMARY KEY,
	content TEXT NOT NULL,
	first_seen BIGINT NOT NULL
);
