-- The hold of a video outlives its process: its node is 0, which is nobody's,
-- and so is that of the claim of its idempotency key, which stays open until
-- the video has ended or an upstream took it.

-- A video from its submission to its purge. Times are 0 while there is none, as
-- is lease_until while nobody asks after it. noted_at is when the ledger's clock
-- saw it submitted, then accepted: the times beside it are those of the processes'
-- clocks. bound, seed, answer and failure are JSON, empty for none. ended says
-- that the state never changes any more. held says that its hold is, or was, in
-- this ledger, and did not end by itself.
CREATE TABLE task (
	id TEXT COLLATE "C" PRIMARY KEY,
	account TEXT NOT NULL,
	key_id TEXT NOT NULL,
	request_id TEXT NOT NULL,
	model TEXT NOT NULL,
	price TEXT NOT NULL,
	family TEXT NOT NULL,
	bound TEXT NOT NULL,
	tokens BOOLEAN NOT NULL,
	chosen BOOLEAN NOT NULL,
	seed TEXT NOT NULL,
	webhook_url TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	channel TEXT NOT NULL,
	upstream_id TEXT NOT NULL,
	state TEXT NOT NULL,
	version BIGINT NOT NULL,
	accepted_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	purge_at BIGINT NOT NULL,
	polled_at BIGINT NOT NULL,
	answer TEXT NOT NULL,
	failure TEXT NOT NULL,
	noted_at BIGINT NOT NULL,
	held BOOLEAN NOT NULL,
	ended BOOLEAN NOT NULL,
	owner TEXT NOT NULL,
	lease_until BIGINT NOT NULL
);
CREATE INDEX task_of_upstream ON task (account, upstream_id) WHERE upstream_id <> '';
CREATE INDEX task_of_request ON task (request_id);
CREATE INDEX task_of_key ON task (account, key_id) WHERE NOT ended;
CREATE INDEX task_by_fingerprint ON task (fingerprint, noted_at);
CREATE INDEX task_submitting ON task (fingerprint) WHERE state = 'submitting';
CREATE INDEX task_by_lease ON task (lease_until, polled_at) WHERE NOT ended;
CREATE INDEX task_of_owner ON task (owner) WHERE NOT ended;
CREATE INDEX task_by_purge ON task (purge_at) WHERE purge_at > 0;

-- What the owners of videos are told: the outbox. It is written in the
-- transaction that ends the video. state is 'waiting', 'sent' or 'failed';
-- next_at and ended_at are 0 where the other is not.
CREATE TABLE notice (
	id TEXT COLLATE "C" PRIMARY KEY,
	account TEXT NOT NULL,
	task TEXT NOT NULL,
	url TEXT NOT NULL,
	body TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	state TEXT NOT NULL,
	tries BIGINT NOT NULL,
	reason TEXT NOT NULL,
	next_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL,
	owner TEXT NOT NULL,
	lease_until BIGINT NOT NULL
);
CREATE INDEX notice_due ON notice (next_at) WHERE state = 'waiting';
CREATE INDEX notice_by_end ON notice (ended_at) WHERE ended_at > 0;
CREATE INDEX notice_of_account ON notice (account, created_at);

-- What signs an account's notices. The receiver has the same secret, so that a
-- hash of it would not do. expires_at is 0 for the one that is current; the one
-- before it signs too until then.
CREATE TABLE webhook_secret (
	account TEXT NOT NULL,
	secret TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (account, secret)
);
CREATE UNIQUE INDEX webhook_secret_current ON webhook_secret (account) WHERE expires_at = 0;
