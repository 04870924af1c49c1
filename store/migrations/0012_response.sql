-- Responses that requests may go on from. A row is a response, or an item of the output
-- of one: response is the id of that. body is encrypted by the gateway; an item has none.
-- channel and vendor_key are where a vendor keeps the response, or empty, and tokens those
-- of the conversation that it keeps there.
CREATE TABLE response (
	account TEXT NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	response TEXT COLLATE "C" NOT NULL,
	expires_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL DEFAULT 0,
	previous TEXT NOT NULL DEFAULT '',
	model TEXT NOT NULL DEFAULT '',
	channel TEXT NOT NULL DEFAULT '',
	vendor_key TEXT NOT NULL DEFAULT '',
	tokens BIGINT NOT NULL DEFAULT 0,
	body BYTEA,
	PRIMARY KEY (account, id)
);
CREATE INDEX response_by_expiry ON response (expires_at);
