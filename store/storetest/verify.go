package storetest

import (
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// verifyTests are the rules of Verify.
var verifyTests = map[string]func(dbTest){
	"VerifyNamesTheInvariantThatABrokenLedgerBreaks": func(b dbTest) {
		b.account("acme", 10)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(20*billing.One)))
		b.ok(b.SetBudget(b.t.Context(), "acme", "k2", new(billing.One)))
		b.advance(2 * time.Hour) // so that it is certain what counts against the budgets
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 1"))
		b.settle(b.reserve("released", 1), 0)
		b.settleWithAttempts(b.reserve("captured", 2), 2, failedAttempts()...)
		b.submittedTask("a", 0)
		b.checkpoint(b.reserve("open", 1))
		b.settle(b.reserve("overrun", 1), 9)
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 2")) // so that there is something to take away
		for _, c := range corruptions {
			if err := b.Verify(b.t.Context()); err != nil {
				b.t.Fatalf("before %s: %v", c.name, err)
			}
			b.wantBroken(c)
		}
	},
	"TheDatabaseItselfRefusesToHoldMoreThanThereIs": func(b dbTest) {
		b.account("acme", 10)
		b.ok(b.SetBudget(b.t.Context(), "acme", "k1", new(9*billing.One)))
		b.checkpoint(b.reserve("open", 1))
		for _, statement := range []string{
			"UPDATE account SET held = posted + 1", "UPDATE account SET held = -1", "UPDATE account SET posted = held - 1",
			"UPDATE budget SET spent = -1", "UPDATE budget SET held = -1", "UPDATE budget SET amount = -1",
			"INSERT INTO hold SELECT * FROM hold",
		} {
			if err := b.place.Exec(b.t.Context(), statement); err == nil {
				b.t.Errorf("it took %q", statement)
			}
		}
	},
	"VerifyCallsOnlyADatabaseThatIsAwayAway": func(b dbTest) {
		b.account("acme", 10)
		b.ok(b.place.Exec(b.t.Context(), "ALTER TABLE entry RENAME COLUMN customer TO lost"))
		err := b.Verify(b.t.Context())
		if f := fault.From(err); !fault.Is(err, fault.InternalError) || f.RetryAfter != 0 || f.Err == nil || strings.Contains(f.Message, "inconsistent") {
			b.t.Errorf("a column that is not there: %v, want 500 with its cause", err)
		}
		b.ok(b.place.Exec(b.t.Context(), "ALTER TABLE entry RENAME COLUMN lost TO customer"))
		b.ok(b.Verify(b.t.Context()))
		b.faults.Cut()
		err = b.Verify(b.t.Context())
		if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
			b.t.Errorf("a database that is away: %v, want 503 and a time to wait", err)
		}
	},
	"VerifyFindsDamageInEveryPartOfALargeLedger": func(b dbTest) {
		b.makeLarge()
		b.ok(b.Verify(b.t.Context()))
		for _, i := range []int{1, 10_000, 10_001, largeLedger} {
			row := fmt.Sprintf("'req_%d'", i)
			hour := fmt.Sprintf("(SELECT settled_at - settled_at %% 3600000000000 FROM receipt WHERE id = %s)", row)
			for _, c := range []corruption{
				{"an entry", "I1", "UPDATE entry SET credit = 1 WHERE reference = " + row, "UPDATE entry SET credit = 0 WHERE reference = " + row},
				{"a status", "I4", "UPDATE receipt SET status = 'released' WHERE id = " + row, "UPDATE receipt SET status = 'captured' WHERE id = " + row},
				{"a hold", "I6", "UPDATE receipt SET held = 6 WHERE id = " + row, "UPDATE receipt SET held = 9 WHERE id = " + row},
				{"a charge", "I11", "UPDATE receipt SET charge = 8 WHERE id = " + row, "UPDATE receipt SET charge = 7 WHERE id = " + row},
				{"usage", "I10", "UPDATE usage_hour SET input = input + 1 WHERE hour = " + hour, "UPDATE usage_hour SET input = input - 1 WHERE hour = " + hour},
				{"an account", "I7", fmt.Sprintf("UPDATE account SET overrun = 1 WHERE id = 'a%d'", i%2500+1), fmt.Sprintf("UPDATE account SET overrun = 0 WHERE id = 'a%d'", i%2500+1)},
			} {
				b.wantBroken(c)
			}
		}
	},
	"VerifyTakesNoTrafficForDamage": func(b dbTest) {
		b.account("acme", 1000).account("other", 1000)
		var running sync.WaitGroup
		for caller := range 4 {
			running.Go(func() {
				for i := range 50 {
					c := b.charge(fmt.Sprintf("r%d-%d", caller, i), 2)
					c.Account = []string{"acme", "other"}[i%2]
					h, err := b.Reserve(b.t.Context(), c)
					if err == nil {
						_, err = b.Settle(b.t.Context(), h, images(1))
					}
					if err == nil && i%10 == 0 {
						err = b.Credit(b.t.Context(), c.Account, billing.One, c.RequestID)
					}
					if err != nil {
						b.t.Error(err)
					}
				}
			})
		}
		over := make(chan struct{})
		go func() { running.Wait(); close(over) }()
		for more := true; more; {
			select {
			case <-over:
				more = false // and once more
			default:
			}
			if err := b.Verify(b.t.Context()); err != nil {
				b.t.Fatal(err)
			}
		}
	},
	"VerifyComparesTheSumsOfAllAccountsWithTheirs": func(b dbTest) {
		b.account("acme", 10).account("other", 10)
		b.settle(b.reserve("r1", 1), 1)
		b.advance(time.Hour)
		theirs := b.charge("r2", 1)
		theirs.Account = "other"
		b.settle(b.made(theirs), 1)
		b.advance(2 * time.Hour)
		b.sumHours()
		b.advance(3 * archiveDay) // the rest of the day, and whole days, have no usage
		b.settle(b.reserve("r3", 1), 1)
		b.advance(2 * time.Hour)
		b.sumHours()
		b.ok(b.Verify(b.t.Context()))
		for _, c := range []corruption{
			{"an hour of another sum", "I10", "UPDATE usage_total SET image = image + 1 WHERE span = 1", "UPDATE usage_total SET image = image - 1 WHERE span = 1"},
			{"a day of another sum", "I10", "UPDATE usage_total SET charge = charge + 1 WHERE span = 24", "UPDATE usage_total SET charge = charge - 1 WHERE span = 24"},
			{"an hour that is gone", "I10", "UPDATE usage_total SET first = first - 864000000000000 WHERE span = 1", "UPDATE usage_total SET first = first + 864000000000000 WHERE span = 1"},
		} {
			b.wantBroken(c)
		}
	},
	"AllAccountsTogetherMayHaveMoreThanAnAmount": func(b dbTest) {
		const most = billing.Unlimited - 1
		for _, name := range []string{"acme", "other", "third"} {
			b.ok(b.CreateAccount(b.t.Context(), name, most))
		}
		b.wantCode(b.Credit(b.t.Context(), "acme", 1, "one more"), fault.InvalidRequest)
		b.settle(b.reserve("r1", 3), 2)
		b.wantCode(b.Credit(b.t.Context(), "acme", 1, "one more"), fault.InvalidRequest) // what was given counts, also when it is spent
		b.ok(b.Verify(b.t.Context()))
		got, err := b.Totals(b.t.Context())
		b.ok(err)
		given := new(big.Int).Mul(big.NewInt(3), big.NewInt(int64(most)))
		spent := big.NewInt(int64(2 * billing.One))
		want := billing.Totals{Accounts: 3, Posted: new(big.Int).Sub(given, spent), Held: new(big.Int), Credited: given, Revenue: spent, Overrun: new(big.Int)}
		for name, pair := range map[string][2]*big.Int{
			"posted": {got.Posted, want.Posted}, "held": {got.Held, want.Held}, "credited": {got.Credited, want.Credited},
			"revenue": {got.Revenue, want.Revenue}, "overrun": {got.Overrun, want.Overrun},
		} {
			if pair[0].Cmp(pair[1]) != 0 {
				b.t.Errorf("%s: got %s, want %s", name, pair[0], pair[1])
			}
		}
		if text := ledger.FormatSum(got.Credited); got.Accounts != 3 || text != "27670116110.564327418" {
			b.t.Errorf("got %d accounts with %s", got.Accounts, text)
		}
	},
}

// corruption is a statement that breaks a ledger, what it breaks, and what mends it.
type corruption struct{ name, invariant, breaks, mends string }

// wantBroken has Verify name what a corruption breaks, and mends it.
func (b dbTest) wantBroken(c corruption) {
	b.t.Helper()
	b.ok(b.place.Exec(b.t.Context(), c.breaks))
	if err := b.Verify(b.t.Context()); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), " "+c.invariant+": ") {
		b.t.Errorf("%s: %s: %v, want %s", c.name, c.breaks, err, c.invariant)
	}
	b.ok(b.place.Exec(b.t.Context(), c.mends))
}

var corruptions = []corruption{
	{"a balance out of nothing", "I1", "UPDATE account SET posted = posted + 1", "UPDATE account SET posted = posted - 1"},
	{"a lopsided entry", "I1", "UPDATE entry SET credit = credit + 1 WHERE kind = 'credit'", "UPDATE entry SET credit = credit - 1 WHERE kind = 'credit'"},
	{"an entry of nobody", "I1", "UPDATE entry SET account = 'x' WHERE kind = 'credit'", "UPDATE entry SET account = 'acme' WHERE kind = 'credit'"},
	{"an earning that no entry explains", "I7", "UPDATE account SET revenue = revenue + 1", "UPDATE account SET revenue = revenue - 1"},
	{"a gift that no entry explains", "I7", "UPDATE account SET credited = credited + 1", "UPDATE account SET credited = credited - 1"},
	{"a loss that no entry explains", "I7", "UPDATE account SET overrun = overrun + 1", "UPDATE account SET overrun = overrun - 1"},
	{"a hold that no balance knows", "I3", "UPDATE hold SET amount = amount + 1", "UPDATE hold SET amount = amount - 1"},
	{"an account that holds for nobody", "I3", "UPDATE account SET held = held + 1", "UPDATE account SET held = held - 1"},
	{"a budget that holds for nobody", "I3", "UPDATE budget SET held = held + 1", "UPDATE budget SET held = held - 1"},
	{"a hold of nobody", "I3", "UPDATE hold SET account = 'x'", "UPDATE hold SET account = 'acme'"},
	{"a hold that should have ended", "I5", "UPDATE hold SET expires_at = 5", "UPDATE hold SET expires_at = 4102444800000000000"},
	{"an open hold that was settled", "I4", "UPDATE receipt SET id = 'open' WHERE id = 'released'", "UPDATE receipt SET id = 'released' WHERE id = 'open'"},
	{"a capture of another amount", "I11", "UPDATE receipt SET charge = charge - 1 WHERE id = 'captured'", "UPDATE receipt SET charge = charge + 1 WHERE id = 'captured'"},
	{"another overrun", "I11", "UPDATE receipt SET overrun = overrun + 1 WHERE id = 'overrun'", "UPDATE receipt SET overrun = overrun - 1 WHERE id = 'overrun'"},
	{"a captured hold that says released", "I4", "UPDATE receipt SET status = 'released' WHERE id = 'captured'", "UPDATE receipt SET status = 'captured' WHERE id = 'captured'"},
	{"a released hold that was charged", "I4", "UPDATE receipt SET charge = 1 WHERE id = 'released'", "UPDATE receipt SET charge = 0 WHERE id = 'released'"},
	{"a capture at another time", "I10", "UPDATE receipt SET settled_at = -settled_at WHERE id = 'captured'", "UPDATE receipt SET settled_at = -settled_at WHERE id = 'captured'"},
	{"a second capture", "I10", copyReceipt("captured", "'second'"), "DELETE FROM receipt WHERE id = 'second'"},
	{"a charge beyond hold and available", "I6", "UPDATE receipt SET available = available - 1 WHERE id = 'overrun'", "UPDATE receipt SET available = available + 1 WHERE id = 'overrun'"},
	{"a charge beyond its hold of which nothing says that it was there", "I6", "UPDATE receipt SET available = -available WHERE id = 'overrun'", "UPDATE receipt SET available = -available WHERE id = 'overrun'"},
	{"an open video without a hold", "I9", "UPDATE task SET request_id = 'x' WHERE id = 'vid_a'", "UPDATE task SET request_id = 'req_a' WHERE id = 'vid_a'"},
	{"a hold of a video that has ended", "I9", "UPDATE task SET ended = NOT ended WHERE id = 'vid_a'", "UPDATE task SET ended = NOT ended WHERE id = 'vid_a'"},
	{"a capture in the journal", "I4", "INSERT INTO entry (account, kind, reference, customer, credit, created_at) VALUES ('acme', 'capture', 'captured', 0, 0, 0)", "DELETE FROM entry WHERE reference = 'captured'"},
	{"a credit that was entered twice", "I1", "INSERT INTO entry (account, kind, reference, customer, credit, created_at)" +
		" SELECT account, kind, reference || ' again', customer, credit, created_at FROM entry WHERE reference = 'invoice 1'", "DELETE FROM entry WHERE reference = 'invoice 1 again'"},
	{"a charge that was not entered", "I10", "UPDATE usage_hour SET charge = charge - 1", "UPDATE usage_hour SET charge = charge + 1"},
	{"usage that no receipt explains", "I10", "UPDATE usage_hour SET image = image + 1", "UPDATE usage_hour SET image = image - 1"},
	{"usage of another hour", "I10", "UPDATE usage_hour SET hour = hour + 3600000000000", "UPDATE usage_hour SET hour = hour - 3600000000000"},
	{"a receipt that usage does not count", "I10", "UPDATE usage_hour SET requests = requests - 1", "UPDATE usage_hour SET requests = requests + 1"},
	{"a receipt of nobody", "I10", "UPDATE receipt SET account = 'x' WHERE id = 'released'", "UPDATE receipt SET account = 'acme' WHERE id = 'released'"},
	{"a price row of another content", "I11", "UPDATE price SET content = replace(content, '1.00', '2.00')", "UPDATE price SET content = replace(content, '2.00', '1.00')"},
	{"a price row of another version", "I11", "UPDATE price SET version = version || '0'; UPDATE hold SET price = price || '0'",
		"UPDATE price SET version = substr(version, 1, 18); UPDATE hold SET price = substr(price, 1, 18)"},
	{"a price row that is gone", "I11", "UPDATE price SET number = number + 1000", "UPDATE price SET number = number - 1000"},
	{"an open hold whose price row is gone", "I11", "UPDATE hold SET price = price || '0'", "UPDATE hold SET price = substr(price, 1, 18)"},
	{"units that cost another charge, in usage too", "I11", "UPDATE receipt SET image = image + 1 WHERE id = 'captured'; UPDATE usage_hour SET image = image + 1",
		"UPDATE receipt SET image = image - 1 WHERE id = 'captured'; UPDATE usage_hour SET image = image - 1"},
	{"a receipt of another price", "I11", "UPDATE receipt SET price_number = NULL WHERE id = 'captured'", "UPDATE receipt SET price_number = (SELECT number FROM price) WHERE id = 'captured'"},
	{"a negative charge", "I6", "UPDATE receipt SET charge = -charge WHERE id = 'captured'", "UPDATE receipt SET charge = -charge WHERE id = 'captured'"},
	{"a negative overrun", "I6", "UPDATE receipt SET overrun = -1 WHERE id = 'captured'", "UPDATE receipt SET overrun = 0 WHERE id = 'captured'"},
	{"a hold that lists no budget", "I3", "UPDATE hold SET budgets = '' WHERE id = 'open'", "UPDATE hold SET budgets = (SELECT CAST(id AS TEXT) FROM budget WHERE subject = 'key:k1') WHERE id = 'open'"},
	{"a budget that has counted less than its key was charged", "I12", "UPDATE budget SET spent = spent - 1 WHERE subject = 'key:k1'", "UPDATE budget SET spent = spent + 1 WHERE subject = 'key:k1'"},
	{"a budget that has counted more than its key was charged", "I12", "UPDATE budget SET spent = spent + 1 WHERE subject = 'key:k1'", "UPDATE budget SET spent = spent - 1 WHERE subject = 'key:k1'"},
	{"a budget of another limit", "I12", "UPDATE budget SET amount = amount + 1", "UPDATE budget SET amount = amount - 1"},
	{"a budget of other terms", "I12", "UPDATE budget SET terms = '{}'", "UPDATE budget SET terms = (SELECT terms FROM budget_entry WHERE budget = id)"},
	{"a budget that nobody raised", "I12", "UPDATE budget SET raised = 1", "UPDATE budget SET raised = 0"},
	{"budgets that their account does not count", "I12", "UPDATE account SET budgets = 0", "UPDATE account SET budgets = 2"},
	{"a budget that is gone", "I12", "DELETE FROM budget WHERE subject = 'key:k2'; UPDATE account SET budgets = 1",
		"INSERT INTO budget (id, account, subject, terms, amount, raised, raised_until, begins, since, spent, held, ended)" +
			" SELECT budget, 'acme', 'key:k2', terms, amount, 0, 0, 0, 0, 0, 0, FALSE FROM budget_entry WHERE amount = 1000000000; UPDATE account SET budgets = 2"},
	{"a budget that nobody deleted", "I12", "UPDATE budget SET ended = TRUE WHERE subject = 'key:k1'; UPDATE account SET budgets = 1",
		"UPDATE budget SET ended = FALSE WHERE subject = 'key:k1'; UPDATE account SET budgets = 2"},
	{"days that cannot have been archived", "I10", "INSERT INTO setting (name, value) VALUES ('archived', '1900000000000000000')", "DELETE FROM setting WHERE name = 'archived'"},
	{"failed attempts that are gone", "I10", "UPDATE attempt SET receipt = receipt || '0' WHERE number = 1", "UPDATE attempt SET receipt = 'captured'"},
	{"a failed attempt of another waste", "I10", "UPDATE attempt SET waste = waste + 1 WHERE number = 2", "UPDATE attempt SET waste = waste - 1 WHERE number = 2"},
	{"a capture of another hold", "I6", "UPDATE receipt SET held = held - 1 WHERE id = 'captured'", "UPDATE receipt SET held = held + 1 WHERE id = 'captured'"},
}

// copyReceipt adds a receipt like another one.
func copyReceipt(id, as string) string {
	return "INSERT INTO receipt (id, account, key_id, operation, model, status, price_number, held, charge, reason, channel, created_at, settled_at, image, counted)" +
		" SELECT " + as + ", account, key_id, operation, model, status, price_number, held, charge, reason, channel, created_at, settled_at, image, counted FROM receipt WHERE id = '" + id + "'"
}

// largeLedger has enough receipts of one account that Verify reads them in several
// parts, and so many accounts beside it. Receipt i was settled i seconds
// after the first.
const largeLedger = 10_500

func (b dbTest) makeLarge() {
	series := fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", largeLedger)
	const at = "1772357400000000000 + i * 1000000000"
	b.account("acme", 1000)
	version := price(b.t, billing.Rate{Unit: billing.Request, Amount: "0.000000007"}).Version()
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO price (version, content, first_seen) SELECT '%s', '[{"unit":"request","amount":"0.000000007"}]', 0 FROM n WHERE i = 1`, version),
		"INSERT INTO account (id, posted, held, credited, revenue, overrun, budgets, created_at) SELECT 'a' || i, 0, 0, 0, 0, 0, 0, 0 FROM n WHERE i <= 2500",
		"INSERT INTO receipt (id, account, key_id, operation, model, status, price_number, held, charge, reason, channel, created_at, settled_at, input, request, counted)" +
			" SELECT 'req_' || i, 'acme', 'k1', 'chat', 'm', 'captured', (SELECT number FROM price), 9, 7, 'complete', 'c', " + at + ", " + at + ", i, 1, FALSE FROM n",
		"INSERT INTO entry (account, kind, reference, customer, credit, created_at) SELECT 'acme', 'credit', 'req_' || i, 0, 0, " + at + " FROM n",
		"INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly, charge, overrun, input," +
			" cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character, request)" +
			" SELECT 'acme', hour, 'k1', 'm', 'chat', FALSE, COUNT(*), 0, 0, 7 * COUNT(*), 0, SUM(i), 0, 0, 0, 0, 0, 0, 0, 0, 0, COUNT(*)" +
			" FROM (SELECT i, " + at + " - (" + at + ") % 3600000000000 AS hour FROM n) AS settled GROUP BY hour",
	} {
		b.ok(b.place.Exec(b.t.Context(), series+statement))
	}
	b.ok(b.place.Exec(b.t.Context(), fmt.Sprintf("UPDATE account SET posted = posted - %d, revenue = %[1]d WHERE id = 'acme'", 7*largeLedger)))
}
