-- The failed tries of requests, the children of a receipt. A request that was
-- answered at once has none. waste is what the vendor may bill for one, at the
-- request's price; used is the JSON of what it counts, empty for nothing.
CREATE TABLE attempt (
	receipt TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	account TEXT NOT NULL,
	channel TEXT NOT NULL,
	model TEXT NOT NULL,
	code TEXT NOT NULL,
	status BIGINT NOT NULL,
	billable BIGINT NOT NULL,
	used TEXT NOT NULL,
	waste BIGINT NOT NULL,
	started_at BIGINT NOT NULL,
	duration BIGINT NOT NULL,
	settled_at BIGINT NOT NULL,
	PRIMARY KEY (receipt, number)
);
CREATE INDEX attempt_by_time ON attempt (settled_at);
