-- What grows with receipts, accounts and keys is found by an index, and sums of
-- usage are kept, so that a question about a year does not read its receipts.

-- The sums of an account's receipts by the hour of UTC in which they were
-- settled, written in the transaction that adds the receipts. On Postgres a
-- trigger does it: while servers are replaced one by one, those of the version
-- before add receipts too. SQLite has one server, and no trigger for a whole
-- statement: the program adds one row for each group of a batch. A sum that does
-- not fit stops at the largest number.
CREATE TABLE usage_hour (
	account TEXT NOT NULL,
	hour BIGINT NOT NULL,
	key_id TEXT NOT NULL,
	model TEXT NOT NULL,
	operation TEXT NOT NULL,
	counted BOOLEAN NOT NULL,
	requests BIGINT NOT NULL,
	estimated BIGINT NOT NULL,
	anomaly BIGINT NOT NULL,
	charge BIGINT NOT NULL,
	overrun BIGINT NOT NULL,
	input BIGINT NOT NULL,
	cached_input BIGINT NOT NULL,
	cache_write BIGINT NOT NULL,
	output BIGINT NOT NULL,
	reasoning BIGINT NOT NULL,
	image_input BIGINT NOT NULL,
	image_output BIGINT NOT NULL,
	image BIGINT NOT NULL,
	second BIGINT NOT NULL,
	character BIGINT NOT NULL,
	PRIMARY KEY (account, hour, key_id, model, operation, counted)
);
CREATE INDEX usage_hour_by_time ON usage_hour (hour);
-- Each batch changes the rows of the current hour, as it does those of accounts;
-- rows of past hours stay, so that less room is left for new versions.
--postgres ALTER TABLE usage_hour SET (fillfactor = 50);

-- One row for each group of a statement's receipts. They are in one order, in
-- which all processes lock them.
--postgres CREATE FUNCTION add_usage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
--postgres 	INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly,
--postgres 		charge, overrun, input, cached_input, cache_write, output, reasoning, image_input, image_output, image,
--postgres 		second, character)
--postgres 	SELECT account, settled_at - ((settled_at % 3600000000000) + 3600000000000) % 3600000000000, key_id, model,
--postgres 		operation, counted, COUNT(*), MAX(estimated), MAX(anomaly), LEAST(SUM(charge), 9223372036854775807),
--postgres 		LEAST(SUM(overrun), 9223372036854775807), LEAST(SUM(input), 9223372036854775807), LEAST(SUM(cached_input),
--postgres 		9223372036854775807), LEAST(SUM(cache_write), 9223372036854775807), LEAST(SUM(output), 9223372036854775807),
--postgres 		LEAST(SUM(reasoning), 9223372036854775807), LEAST(SUM(image_input), 9223372036854775807),
--postgres 		LEAST(SUM(image_output), 9223372036854775807), LEAST(SUM(image), 9223372036854775807), LEAST(SUM(second),
--postgres 		9223372036854775807), LEAST(SUM(character), 9223372036854775807)
--postgres 	FROM fresh GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
--postgres 	ON CONFLICT (account, hour, key_id, model, operation, counted) DO UPDATE SET
--postgres 		requests = usage_hour.requests + EXCLUDED.requests,
--postgres 		estimated = GREATEST(usage_hour.estimated, EXCLUDED.estimated), anomaly = GREATEST(usage_hour.anomaly, EXCLUDED.anomaly),
--postgres 		charge = usage_hour.charge + LEAST(EXCLUDED.charge, 9223372036854775807 - usage_hour.charge),
--postgres 		overrun = usage_hour.overrun + LEAST(EXCLUDED.overrun, 9223372036854775807 - usage_hour.overrun),
--postgres 		input = usage_hour.input + LEAST(EXCLUDED.input, 9223372036854775807 - usage_hour.input),
--postgres 		cached_input = usage_hour.cached_input + LEAST(EXCLUDED.cached_input, 9223372036854775807 - usage_hour.cached_input),
--postgres 		cache_write = usage_hour.cache_write + LEAST(EXCLUDED.cache_write, 9223372036854775807 - usage_hour.cache_write),
--postgres 		output = usage_hour.output + LEAST(EXCLUDED.output, 9223372036854775807 - usage_hour.output),
--postgres 		reasoning = usage_hour.reasoning + LEAST(EXCLUDED.reasoning, 9223372036854775807 - usage_hour.reasoning),
--postgres 		image_input = usage_hour.image_input + LEAST(EXCLUDED.image_input, 9223372036854775807 - usage_hour.image_input),
--postgres 		image_output = usage_hour.image_output + LEAST(EXCLUDED.image_output, 9223372036854775807 - usage_hour.image_output),
--postgres 		image = usage_hour.image + LEAST(EXCLUDED.image, 9223372036854775807 - usage_hour.image),
--postgres 		second = usage_hour.second + LEAST(EXCLUDED.second, 9223372036854775807 - usage_hour.second),
--postgres 		character = usage_hour.character + LEAST(EXCLUDED.character, 9223372036854775807 - usage_hour.character); RETURN NULL; END $$;
--postgres LOCK TABLE receipt IN SHARE ROW EXCLUSIVE MODE;
--postgres INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly,
--postgres 	charge, overrun, input, cached_input, cache_write, output, reasoning, image_input, image_output, image,
--postgres 	second, character)
--postgres 	SELECT account, settled_at - ((settled_at % 3600000000000) + 3600000000000) % 3600000000000, key_id, model,
--postgres 		operation, counted, COUNT(*), MAX(estimated), MAX(anomaly), LEAST(SUM(charge), 9223372036854775807),
--postgres 		LEAST(SUM(overrun), 9223372036854775807), LEAST(SUM(input), 9223372036854775807), LEAST(SUM(cached_input),
--postgres 		9223372036854775807), LEAST(SUM(cache_write), 9223372036854775807), LEAST(SUM(output), 9223372036854775807),
--postgres 		LEAST(SUM(reasoning), 9223372036854775807), LEAST(SUM(image_input), 9223372036854775807),
--postgres 		LEAST(SUM(image_output), 9223372036854775807), LEAST(SUM(image), 9223372036854775807), LEAST(SUM(second),
--postgres 		9223372036854775807), LEAST(SUM(character), 9223372036854775807)
--postgres 	FROM receipt GROUP BY 1, 2, 3, 4, 5, 6;
--postgres CREATE TRIGGER usage_of_receipts AFTER INSERT ON receipt REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
--postgres 	EXECUTE FUNCTION add_usage();
--sqlite INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly,
--sqlite 	charge, overrun, input, cached_input, cache_write, output, reasoning, image_input, image_output, image,
--sqlite 	second, character)
--sqlite 	SELECT account, settled_at - ((settled_at % 3600000000000) + 3600000000000) % 3600000000000, key_id, model,
--sqlite 		operation, counted, 1, estimated, anomaly, charge, overrun, input, cached_input, cache_write, output,
--sqlite 		reasoning, image_input, image_output, image, second, character FROM receipt WHERE TRUE
--sqlite 	ON CONFLICT (account, hour, key_id, model, operation, counted) DO UPDATE SET
--sqlite 		requests = usage_hour.requests + EXCLUDED.requests,
--sqlite 		estimated = MAX(usage_hour.estimated, EXCLUDED.estimated), anomaly = MAX(usage_hour.anomaly, EXCLUDED.anomaly),
--sqlite 		charge = usage_hour.charge + MIN(EXCLUDED.charge, 9223372036854775807 - usage_hour.charge),
--sqlite 		overrun = usage_hour.overrun + MIN(EXCLUDED.overrun, 9223372036854775807 - usage_hour.overrun),
--sqlite 		input = usage_hour.input + MIN(EXCLUDED.input, 9223372036854775807 - usage_hour.input),
--sqlite 		cached_input = usage_hour.cached_input + MIN(EXCLUDED.cached_input, 9223372036854775807 - usage_hour.cached_input),
--sqlite 		cache_write = usage_hour.cache_write + MIN(EXCLUDED.cache_write, 9223372036854775807 - usage_hour.cache_write),
--sqlite 		output = usage_hour.output + MIN(EXCLUDED.output, 9223372036854775807 - usage_hour.output),
--sqlite 		reasoning = usage_hour.reasoning + MIN(EXCLUDED.reasoning, 9223372036854775807 - usage_hour.reasoning),
--sqlite 		image_input = usage_hour.image_input + MIN(EXCLUDED.image_input, 9223372036854775807 - usage_hour.image_input),
--sqlite 		image_output = usage_hour.image_output + MIN(EXCLUDED.image_output, 9223372036854775807 - usage_hour.image_output),
--sqlite 		image = usage_hour.image + MIN(EXCLUDED.image, 9223372036854775807 - usage_hour.image),
--sqlite 		second = usage_hour.second + MIN(EXCLUDED.second, 9223372036854775807 - usage_hour.second),
--sqlite 		character = usage_hour.character + MIN(EXCLUDED.character, 9223372036854775807 - usage_hour.character);

-- The one capture of a request, for which Verify looks from the receipt, and the
-- entries of an account that are no captures.
CREATE INDEX entry_of_capture ON entry (reference COLLATE "C") WHERE kind = 'capture';
CREATE INDEX entry_of_account ON entry (account) WHERE kind <> 'capture';

-- Keys are listed by the page, the oldest first.
CREATE INDEX key_of_account ON key (account, created_at, id);
CREATE INDEX key_by_age ON key (created_at, id);
