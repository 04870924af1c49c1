// Package enemy plays an hour in which two tenants try to make vendors' costs
// exceed what they pay, beside a third that does nothing wrong.
//
// # What is played
//
// A request is drawn from a seed and a number. Most come of a grammar that is
// made of the OpenAPI document: every member of every endpoint, with its types,
// values and bounds, and hostile changes on top of it (absent, null, wrong type,
// out of range, twice, in other letters, escaped, deep, huge, unknown). The others
// come of scripts, one for each class of attack that was once found; a script's
// name is the request's class, and Options.Class plays that class alone.
//
// The gateway runs behind HTTP on connections without a network, with the real
// driver of each vendor. The vendors behind them read requests as a lenient Go
// program does (encoding/json: letter case does not matter, the last of several
// members counts), do what they are asked, and keep books of what they would bill
// at the gateway's own prices. All of it runs in the bubble of a testing/synctest.
//
// # What must hold
//
// After every round of requests, for each hostile account: what the vendors bill
// is at most what the account paid and the declared tolerance, and at most the
// credit of the round and the tolerance; every request by itself costs the vendors
// at most its charge and its tolerance. At the end: the third tenant saw what it
// sees in a run of the same seed without the others, request for request; the
// ledger verifies; nothing is held.
//
// # The tolerance
//
// [Tolerance] lists what the operator bears by rule, counted to the token by the
// vendor that did it: what a vendor made above the bound that it was sent, what
// media by URL counted above their declared bound, what one whole answer in a round
// had above its hold whose bound a channel drops, what a vendor billed though it
// answered with an error, output by tokens that was made and never received
// because the client left, the other parts of a request of which one part failed,
// and for a stream that ended with its balance one step of hold_tokens.
package enemy
