-- API keys, without the keys: of a secret only its SHA-256 is here, in
-- hexadecimal digits. Models are a JSON list of public ids, empty for all;
-- limits are 0 and expires_at is 0 where there is none. A key of the source
-- 'file' belongs to a config file, and switched says that it was turned off or
-- on at run time, which outlives a reload.
CREATE TABLE key (
	id TEXT PRIMARY KEY,
	account TEXT NOT NULL,
	name TEXT NOT NULL,
	hash TEXT NOT NULL UNIQUE,
	models TEXT NOT NULL,
	rpm BIGINT NOT NULL,
	tpm BIGINT NOT NULL,
	max_concurrent BIGINT NOT NULL,
	max_concurrent_videos BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	disabled BOOLEAN NOT NULL,
	source TEXT NOT NULL,
	switched BOOLEAN NOT NULL
);
