package billing

import (
	"cmp"
	"context"
	"math/big"
	"strings"
	"time"
)

// Reports is the reading side of a ledger. The server asks a Meter for it: with
// one, /v1/balance, /v1/usage and /v1/receipts answer; without, they are 404. Its methods
// are safe for concurrent use, also with those of [Meter].
type Reports interface {
	// Currency is what the amounts are of ("USD").
	Currency() string
	// Counting reports whether usage is recorded without money.
	Counting() bool
	// Balance is one account's position; fault.NotFound if there is no such account.
	Balance(ctx context.Context, account string) (Balance, error)
	// Usage sums settled requests.
	Usage(ctx context.Context, q Query) ([]UsageRow, error)
	// Receipt is the settled end of one request of an account; fault.NotFound
	// if the account has none by that id.
	Receipt(ctx context.Context, account, id string) (Receipt, error)
}

// Accounts is the administrative side of a ledger. Its methods are safe for concurrent use,
// also with those of [Meter]: a Credit or a SetBudget never takes what a hold has.
type Accounts interface {
	Reports
	Budgets
	// CreateAccount adds an account with an opening credit. It fails with
	// fault.InvalidRequest if the name is taken or malformed.
	CreateAccount(ctx context.Context, name string, credit Money) error
	// EnsureAccount opens an account with a first credit, once: an account that exists keeps
	// its money, and nothing changes. It is safe to race, so a service can call it at each
	// login. It fails as CreateAccount does for what no account can have.
	EnsureAccount(ctx context.Context, name string, credit Money) error
	// Credit adds money to an account (a negative amount takes it back, never
	// below what is held) under a unique reference; the same reference again
	// changes nothing.
	Credit(ctx context.Context, account string, amount Money, reference string) error
	// Exists reports whether there is an account, also where the ledger only
	// counts and Balance knows every name.
	Exists(ctx context.Context, account string) (bool, error)
	// Balances is a page of the accounts, sorted by name: at most limit of those
	// whose names come after one, which need not exist.
	Balances(ctx context.Context, after string, limit int) ([]Balance, error)
	// Totals sums all accounts.
	Totals(ctx context.Context) (Totals, error)
	// SetBudget bounds what one key may spend from now on; nil lifts the bound. It replaces the
	// key's budget of all models without a window. See PutBudget for all others.
	SetBudget(ctx context.Context, account, key string, budget *Money) error
	// BudgetsOf is what each of some keys has left, neither spent nor held, of the tightest of
	// its own budgets of all models; a key without one is not in it.
	BudgetsOf(ctx context.Context, keys []KeyOf) (map[KeyOf]Money, error)
	// Request is the settled end of a request of any account, with the attempts
	// that failed before, in their order; fault.NotFound if there is none by that id.
	Request(ctx context.Context, id string) (Receipt, []Attempt, error)
	// Waste sums failed attempts by channel and upstream model, by the time their
	// request was settled, sorted by both. By is not looked at.
	Waste(ctx context.Context, q Query) ([]WasteRow, error)
	// Verify checks the ledger's invariants (docs/reference/billing.md, Invariants) and names
	// the first that does not hold.
	Verify(ctx context.Context) error
}

// Archives is a ledger that has moved receipts into files. The admin API asks an [Accounts]
// for it.
type Archives interface {
	// Archived are the files by their names, as they were when they were written.
	Archived(ctx context.Context) ([]Archived, error)
}

// Archived is a file that receipts were moved into.
type Archived struct {
	Name     string
	Receipts int64
	Charge   *big.Int // the sum, in nano-units
	SHA256   string   // of the file, in hexadecimal digits
}

// KeyOf is a key of an account.
type KeyOf struct{ Account, Key string }

// DefaultCurrency is the currency of a ledger without one of its own.
const DefaultCurrency = "USD"

// Balance is an account's position. 0 ≤ Held ≤ Posted.
type Balance struct {
	Account string
	Posted  Money // credits less charges
	Held    Money // set aside for running requests
}

// Available is what a new request can be held against.
func (b Balance) Available() Money { return b.Posted - b.Held }

// Totals is the trial balance of a ledger: sums over all accounts, in nano-units.
// Posted is Credited less Revenue plus Overrun. A sum may be larger than a [Money]
// can be. Where the ledger only counts all but Accounts are zero.
type Totals struct {
	Accounts int64
	Posted   *big.Int // what the customers have
	Held     *big.Int // the part of it that is set aside for running requests
	Credited *big.Int // what they were given
	Revenue  *big.Int // the full cost of what was delivered
	Overrun  *big.Int // the part of it that the operator bore
}

// OpenHold is a request that has not been settled.
type OpenHold struct {
	Hold
	CreatedAt time.Time
	SoFar     Usage // the last checkpoint given to Extend
}

// Query selects and groups usage.
type Query struct {
	Account string    // empty: every account
	Since   time.Time // inclusive; zero: from the beginning
	Until   time.Time // exclusive; zero: until now
	By      GroupBy
	// Limit, if it is not 0, asks for a page of a report by key or by account. The page
	// has at most Limit rows after After, in the order of [CompareRows]. Keys of
	// different accounts are then different rows, and the time of a report has no limit.
	Limit int
	After RowName
}

// RowName names a row of a page: by account, of which Key is empty, or by account and key.
type RowName struct{ Account, Key string }

// IsAfter reports whether a row of a page comes after q.After.
func (q *Query) IsAfter(r *UsageRow) bool {
	after := UsageRow{Account: q.After.Account, Group: q.After.Key}
	if q.By == ByAccount {
		after.Group = q.After.Account
	}
	return q.After.Account == "" || CompareRows(*r, after) > 0
}

// CompareRows orders rows of pages by their accounts, then by their groups.
func CompareRows(a, b UsageRow) int {
	return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Group, b.Group))
}

// GroupBy is what the rows of a usage answer are summed over.
type GroupBy string

// What usage can be grouped by.
const (
	ByModel GroupBy = "model"
	ByKey   GroupBy = "key"
	ByDay   GroupBy = "day" // UTC, "2006-01-02"

	ByAccount GroupBy = "account"
)

// UsageRow is the sum of the requests in one group.
type UsageRow struct {
	Group    string
	Account  string // of a page only, see [Query.Limit]
	Requests int64
	Usage    Usage
	Charge   Money
}
