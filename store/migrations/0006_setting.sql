-- What the books are kept in, which cannot change, and how the last server
-- billed, for a command that runs without its configuration.
CREATE TABLE setting (
	name TEXT PRIMARY KEY,
	value TEXT NOT NULL
);
-- The hash of the price list that a process charges by; empty before it said so.
ALTER TABLE node ADD COLUMN prices TEXT NOT NULL DEFAULT '';
