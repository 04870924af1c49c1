package storetest

import (
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// verifying are the rules of Verify.
var verifying = map[string]func(bench){
	"VerifyNamesTheInvariantThatABrokenLedgerBreaks": namesInvariant,
	"TheDatabaseItselfRefusesToHoldMoreThanThereIs":  refusesOverdraft,
	"VerifyCallsOnlyADatabaseThatIsAwayAway":         callsAway,
}

// corruptions are statements that break a ledger, what they break, and what
// mends it.
var corruptions = []struct{ name, invariant, breaks, mends string }{
	{"a balance out of nothing", "I1", "UPDATE account SET posted = posted + 1", "UPDATE account SET posted = posted - 1"},
	{"a lopsided entry", "I1", "UPDATE entry SET credit = credit + 1 WHERE kind = 'credit'", "UPDATE entry SET credit = credit - 1 WHERE kind = 'credit'"},
	{"an entry of nobody", "I1", "UPDATE entry SET account = 'x' WHERE kind = 'credit'", "UPDATE entry SET account = 'acme' WHERE kind = 'credit'"},
	{"an earning that no entry explains", "I7", "UPDATE account SET revenue = revenue + 1", "UPDATE account SET revenue = revenue - 1"},
	{"a gift that no entry explains", "I7", "UPDATE account SET credited = credited + 1", "UPDATE account SET credited = credited - 1"},
	{"a loss that no entry explains", "I7", "UPDATE account SET overrun = overrun + 1", "UPDATE account SET overrun = overrun - 1"},
	{"a hold that no purse knows", "I3", "UPDATE hold SET amount = amount + 1", "UPDATE hold SET amount = amount - 1"},
	{"an account that holds for nobody", "I3", "UPDATE account SET held = held + 1", "UPDATE account SET held = held - 1"},
	{"a budget that holds for nobody", "I3", "UPDATE budget SET posted = posted + 1, held = held + 1", "UPDATE budget SET posted = posted - 1, held = held - 1"},
	{"a hold of nobody", "I3", "UPDATE hold SET account = 'x'", "UPDATE hold SET account = 'acme'"},
	{"a hold that should have ended", "I5", "UPDATE hold SET expires_at = 5", "UPDATE hold SET expires_at = 4102444800000000000"},
	{"an open hold that was settled", "I4", "UPDATE receipt SET id = 'open' WHERE id = 'released'", "UPDATE receipt SET id = 'released' WHERE id = 'open'"},
	{"a capture of another amount", "I4", "UPDATE receipt SET charge = charge - 1 WHERE id = 'captured'", "UPDATE receipt SET charge = charge + 1 WHERE id = 'captured'"},
	{"another overrun", "I4", "UPDATE receipt SET overrun = overrun + 1 WHERE id = 'overrun'", "UPDATE receipt SET overrun = overrun - 1 WHERE id = 'overrun'"},
	{"a captured hold that says released", "I4", "UPDATE receipt SET status = 'released' WHERE id = 'captured'", "UPDATE receipt SET status = 'captured' WHERE id = 'captured'"},
	{"a released hold that was charged", "I4", "UPDATE receipt SET charge = 1 WHERE id = 'released'", "UPDATE receipt SET charge = 0 WHERE id = 'released'"},
	{"a capture without a receipt", "I4", "UPDATE receipt SET id = 'x' WHERE id = 'captured'", "UPDATE receipt SET id = 'captured' WHERE id = 'x'"},
	{"a second capture", "I4", "UPDATE entry SET reference = 'overrun' WHERE reference = 'captured'", ""},
	{"a charge beyond hold and available", "I6", "UPDATE entry SET available = -1 WHERE reference = 'captured'", "UPDATE entry SET available = 10000000000 WHERE reference = 'captured'"},
	{"an open video without a hold", "I9", "UPDATE task SET request_id = 'x' WHERE id = 'vid_a'", "UPDATE task SET request_id = 'req_a' WHERE id = 'vid_a'"},
	{"a hold of a video that has ended", "I9", "UPDATE task SET ended = NOT ended WHERE id = 'vid_a'", "UPDATE task SET ended = NOT ended WHERE id = 'vid_a'"},
	{"a capture of another hold", "I6", "UPDATE receipt SET held = held + 1 WHERE id = 'captured'", "UPDATE receipt SET held = held - 1 WHERE id = 'captured'"},
}

func namesInvariant(b bench) {
	b.account("acme", 10)
	b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(9*billing.One)))
	b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 1"))
	b.settle(b.reserve("released", 1), 0)
	b.settle(b.reserve("captured", 2), 2)
	b.submitted("a", 0)
	b.reserve("open", 1)
	b.settle(b.reserve("overrun", 1), 9)
	for _, c := range corruptions {
		if err := b.Verify(b.t.Context()); err != nil {
			b.t.Fatalf("before %s: %v", c.name, err)
		}
		b.ok(b.place.Exec(b.t.Context(), c.breaks))
		if err := b.Verify(b.t.Context()); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), " "+c.invariant+": ") {
			b.t.Errorf("%s: %v, want %s", c.name, err, c.invariant)
		}
		if c.mends == "" {
			c.mends = "UPDATE entry SET reference = 'captured' WHERE reference = 'overrun' AND revenue = 2000000000"
		}
		b.ok(b.place.Exec(b.t.Context(), c.mends))
	}
}

func refusesOverdraft(b bench) {
	b.account("acme", 10)
	b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(9*billing.One)))
	b.reserve("open", 1)
	for _, statement := range []string{
		"UPDATE account SET held = posted + 1", "UPDATE account SET held = -1", "UPDATE account SET posted = held - 1",
		"UPDATE budget SET held = posted + 1", "UPDATE budget SET held = -1",
		"INSERT INTO hold SELECT * FROM hold", "INSERT INTO budget (account, key_id, posted, held, ended) SELECT account, key_id, 0, 0, ended FROM budget",
	} {
		if err := b.place.Exec(b.t.Context(), statement); err == nil {
			b.t.Errorf("it took %q", statement)
		}
	}
}

func callsAway(b bench) {
	b.account("acme", 10)
	b.ok(b.place.Exec(b.t.Context(), "ALTER TABLE entry RENAME COLUMN revenue TO lost"))
	err := b.Verify(b.t.Context())
	if f := fault.From(err); !fault.Is(err, fault.InternalError) || f.RetryAfter != 0 || f.Err == nil || strings.Contains(f.Message, "inconsistent") {
		b.t.Errorf("a column that is not there: %v, want 500 with its cause", err)
	}
	b.ok(b.place.Exec(b.t.Context(), "ALTER TABLE entry RENAME COLUMN lost TO revenue"))
	b.ok(b.Verify(b.t.Context()))
	b.cut.Cut()
	err = b.Verify(b.t.Context())
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		b.t.Errorf("a database that is away: %v, want 503 and a time to wait", err)
	}
}
