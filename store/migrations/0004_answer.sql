-- Idempotency keys: those that a running request holds open, and those that
-- are kept with the answer. state is 'open', 'kept' or 'large', which is an
-- answer that was too large to keep. The node is the process of the request.
CREATE TABLE answer (
	account TEXT NOT NULL,
	operation TEXT NOT NULL,
	key BYTEA NOT NULL,
	content BYTEA NOT NULL,
	request TEXT NOT NULL,
	node BIGINT NOT NULL,
	state TEXT NOT NULL,
	header TEXT NOT NULL,
	body BYTEA,
	receipt TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (account, operation, key)
);
CREATE INDEX answer_by_expiry ON answer (expires_at);
CREATE INDEX answer_open ON answer (node) WHERE state = 'open';
CREATE INDEX answer_of_request ON answer (request) WHERE state = 'open';
