package ledger

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// CheckNewAccount refuses an account whose name is taken, and an opening credit that
// the account cannot have.
func CheckNewAccount(name string, taken bool, credit billing.Money, countsOnly bool) error {
	switch {
	case taken:
		return fault.Invalid("name", fmt.Sprintf("There already is an account %q.", name))
	case credit < 0:
		return fault.Invalid("credit", "The opening credit of an account must not be negative.")
	case credit > 0 && countsOnly:
		return ErrCountsOnly("credit")
	}
	return nil
}

// CheckAccountName fails with fault.InvalidRequest on a name that no account can have. A
// name is 1 to 64 ASCII letters, digits and any of "._-@+", and starts with a letter or
// digit. The colon is for the platform's own accounts.
func CheckAccountName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if len(name) >= 1 && len(name) <= 64 && strings.IndexByte(letters, name[0]) >= 0 && strings.Trim(name, letters+"._-@+") == "" {
		return nil
	}
	return fault.Invalid("name", "An account name is 1 to 64 ASCII letters, digits and any of \"._-@+\", and starts with a letter or digit.")
}

// Credited is what a reference of an account already stands for.
type Credited struct {
	Amount billing.Money
	Found  bool
}

// CheckCredit refuses a credit of an account that has so much available. again
// reports that the reference was used for the same amount before: then there is
// nothing to do.
func CheckCredit(amount billing.Money, reference string, before Credited, available billing.Money) (again bool, err error) {
	switch {
	case reference == "":
		return false, fault.Invalid("reference", "A credit needs a reference, so that repeating it changes nothing.")
	case before.Found && before.Amount == amount:
		return true, nil
	case before.Found:
		return false, fault.Invalid("reference", fmt.Sprintf("The reference %.64q already stands for a credit of %s.", reference, before.Amount))
	case amount == 0:
		return false, fault.Invalid("amount", "A credit must not be zero.")
	case amount < -available:
		return false, fault.Invalid("amount", fmt.Sprintf("Only %s of the account's balance is available to be taken back.", available))
	}
	return false, nil
}

// CheckBudget refuses a budget that no key can have; nil is none.
func CheckBudget(key string, budget *billing.Money) error {
	switch {
	case key == "":
		return fault.Invalid("key", "A budget belongs to a key; name one.")
	case budget != nil && (*budget < 0 || *budget == billing.Unlimited):
		return fault.Invalid("budget", "A budget must not be negative, and must be an amount.")
	}
	return nil
}

// Waste is what a failed attempt costs at a price. Where its usage has no price that
// fits, it is nothing.
func Waste(a *billing.Attempt, p *billing.Price) billing.Money {
	if !a.Billable {
		return 0
	}
	cost, err := p.Cost(a.Used)
	if err != nil {
		return 0
	}
	return cost
}

// negative reports whether a bucket is below zero, which no request consumes.
func negative(u *billing.Usage) bool {
	for _, count := range u.Units {
		if count < 0 {
			return true
		}
	}
	return false
}

// CheckGrouping refuses usage grouped by what it is not kept by, and pages of groups that have
// none.
func CheckGrouping(q *billing.Query) error {
	switch q.By {
	case billing.ByKey, billing.ByAccount:
		return nil
	case "", billing.ByModel, billing.ByDay:
		if q.Limit > 0 {
			return fault.Invalid("limit", fmt.Sprintf("Only usage by %q or %q comes in pages.", billing.ByKey, billing.ByAccount))
		}
		return nil
	}
	return fault.Invalid("by", fmt.Sprintf("Usage is grouped by %q, %q, %q or %q.", billing.ByModel, billing.ByKey, billing.ByDay, billing.ByAccount))
}

// HourOf is the first nanosecond of the hour of UTC that holds a moment, since 1970.
// Usage is summed by it.
func HourOf(at time.Time) int64 {
	hour := time.Hour.Nanoseconds()
	nanos := at.UnixNano()
	return nanos - (nanos%hour+hour)%hour
}

// Hours are the first hour of a query and the one after its last: Since is rounded
// down and Until up to a whole hour.
func Hours(q billing.Query) (first, end int64) {
	first, end = math.MinInt64, math.MaxInt64
	if !q.Since.IsZero() {
		first = Nanos(q.Since.UTC().Truncate(time.Hour))
	}
	if !q.Until.IsZero() {
		end = Nanos(q.Until.UTC().Add(time.Hour - 1).Truncate(time.Hour))
	}
	return first, end
}

// Nanos is t.UnixNano. A time too far off to be counted so is the furthest that is,
// in its direction.
func Nanos(t time.Time) int64 {
	switch {
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	}
	return t.UnixNano()
}

// FormatSum writes a sum of amounts, in nano-units, as a decimal, as
// [billing.Money.String] does. It may be larger than a Money can be.
func FormatSum(nanos *big.Int) string {
	if nanos.IsInt64() {
		return billing.Money(nanos.Int64()).String()
	}
	whole, rest := new(big.Int).QuoRem(nanos, big.NewInt(int64(billing.One)), new(big.Int))
	_, fraction, _ := strings.Cut(billing.Money(new(big.Int).Abs(rest).Int64()).String(), ".")
	return whole.String() + "." + fraction // whole has the sign: it is not 0
}

// ErrInsufficientBalance refuses a request that its account cannot pay. Its text is a constant
// of the API: in server/errors.go (plainShape) and in server/openapi too.
func ErrInsufficientBalance() error {
	return fault.New(fault.InsufficientBalance, "Insufficient balance")
}

// ErrRequestIDUsed refuses a second hold of the same id, and one without an id.
func ErrRequestIDUsed() error {
	return fault.New(fault.InternalError, "The gateway used a request id twice. Nothing was charged; send the request again.")
}

// ErrNoPayer refuses a request whose account the ledger does not have.
func ErrNoPayer() error {
	return fault.New(fault.PermissionDenied, "The account that this API key belongs to does not exist in the ledger. The operator has to create it.")
}

// ErrUnknownHold refuses the end of a hold that the ledger does not know.
func ErrUnknownHold() error {
	return fault.New(fault.InternalError, "Unknown hold: it may have expired.")
}

// ErrHoldEnded refuses to extend a hold that has been settled: it has
// [billing.ErrHoldEnded] in its chain.
func ErrHoldEnded() error {
	return fault.Wrap(fault.InternalError, "The gateway extended a hold that has ended.", billing.ErrHoldEnded)
}

// ErrNoAccount is the error of a look-up by name.
func ErrNoAccount(name string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no account %.64q.", name))
}

// ErrNoReceipt is the error of a look-up by id.
func ErrNoReceipt(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no receipt %.64q.", id))
}

// ErrNoPrice is the error of a look-up by version.
func ErrNoPrice(version string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no price version %.64q.", version))
}

// ErrCountsOnly refuses to move money where usage is only counted.
func ErrCountsOnly(param string) error {
	return fault.Invalid(param, "This ledger counts usage and keeps no money (billing: count), so there is nothing to credit or to bound.")
}

// ErrNoKeyAfter refuses to list keys after one that there is not.
func ErrNoKeyAfter(id string) error {
	return fault.Invalid("after", fmt.Sprintf("There is no key with the id %.64q to list the next ones of: it may have been deleted. List from the start.", id))
}
