-- Every price row that was ever loaded or pinned by a hold. A version is the hash of the
-- content, so a row never changes.
CREATE TABLE price (
	version TEXT PRIMARY KEY,
	content TEXT NOT NULL,
	first_seen BIGINT NOT NULL
);
