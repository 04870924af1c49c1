package ledger

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Budget is the row of a budget. Whoever has its account locked reads and changes it. What is
// spent counts up, and is compared with the limit.
type Budget struct {
	ID          int64
	Account     string
	Subject     billing.Subject
	Terms       *billing.BudgetSpec // never changed; its Limit is not looked at
	Limit       billing.Money
	Raised      billing.Money // added to Limit
	RaisedUntil int64         // until then
	Ended       bool          // no new request counts against it
	Counts

	from, until int64 // the last window that was looked for
}

// Counts are what requests change of a budget.
type Counts struct {
	Begins int64         // the window that Spent belongs to; 0 for ever
	Since  int64         // no charge of Spent was settled earlier
	Spent  billing.Money // in that window
	Held   billing.Money // for running requests, whenever they began
}

// window is the window that holds a moment: its first nanosecond, and that of the next one. The
// last answer is remembered.
func (b *Budget) window(now int64) (from, until int64) {
	if now < b.from || now >= b.until {
		b.from, b.until = 0, math.MaxInt64
		if begin, end := billing.Window(*b.Terms, time.Unix(0, now)); !end.IsZero() {
			b.from, b.until = Nanos(begin), Nanos(end)
		}
	}
	return b.from, b.until
}

// used is what was spent in the window that holds now. After a clock was set back the later
// window goes on.
func (b *Budget) used(now int64) billing.Money {
	if from, _ := b.window(now); b.Begins < from {
		return 0
	}
	return b.Spent
}

// raise is what is added to the limit at a time.
func (b *Budget) raise(now int64) billing.Money {
	if now < b.RaisedUntil {
		return b.Raised
	}
	return 0
}

// left is what is not spent. A request that cost more than its hold can leave less than is held.
func (b *Budget) left(now int64) billing.Money {
	return max(b.Limit+b.raise(now)-b.used(now), 0)
}

// Available is what can still be held.
func (b *Budget) Available(now int64) billing.Money { return max(b.left(now)-b.Held, 0) }

// spare is what can be held and leave half of what is left free. It may be negative.
func (b *Budget) spare(now int64) billing.Money {
	left := b.left(now)
	return left - b.Held - left/2
}

// settle ends a hold. What is charged belongs to the window of now, which is later than the
// receipt's time, at, if the clock was set back since the hold was made.
func (b *Budget) settle(now, at int64, held, charge billing.Money) {
	b.Held -= held
	if charge == 0 {
		return
	}
	b.roll(now)
	b.Spent, b.Since = AddCapped(b.Spent, charge), min(b.Since, at)
}

// roll begins the window that holds now, unless that or a later one has begun.
func (b *Budget) roll(now int64) {
	if from, _ := b.window(now); b.Begins < from {
		b.Begins, b.Since, b.Spent = from, from, 0
	}
}

// Refresh finds the window that holds now, which copies of the budget then have too.
func (b *Budget) Refresh(now int64) { b.window(now) }

// Snapshot is the budget as it is at a time.
func (b *Budget) Snapshot(now int64) billing.Budget {
	s := billing.Budget{ID: b.ID, Account: b.Account, Subject: b.Subject, Spec: *b.Terms, Raised: b.raise(now), Spent: b.used(now), Held: b.Held}
	s.Spec.Limit = b.Limit
	if s.Raised != 0 {
		s.RaisedUntil = time.Unix(0, b.RaisedUntil).UTC()
	}
	s.Begins, s.ResetsAt = billing.Window(s.Spec, time.Unix(0, max(now, b.Begins)))
	return s
}

// Replaces reports whether a budget with other terms on the same subject takes this one's place.
func (b *Budget) Replaces(terms *billing.BudgetSpec) bool {
	return b.Terms.Every == terms.Every && slices.Equal(b.Terms.Models, terms.Models)
}

// Put gives the budget other terms. seed says what the subject was charged for since an hour: a
// new budget begins with that, and so does one whose windows begin elsewhere from now on.
func (b *Budget) Put(terms *billing.BudgetSpec, now int64, seed func(since int64) (billing.Money, error)) error {
	same := b.Terms != nil && sameWindows(b.Terms, terms)
	fresh := b.Terms == nil
	b.Terms, b.Limit, b.from, b.until = terms, terms.Limit, 0, 0
	from, _ := b.window(now)
	if same || (!fresh && (b.Begins == from || b.Begins > now)) { // after a clock was set back the later window goes on
		return nil
	}
	since := HourOf(time.Unix(0, from))
	spent, err := seed(since)
	if !fresh && b.Begins > from { // what was counted is in the window too, whether or not usage tells it apart
		spent = max(spent, b.Spent)
	}
	b.Begins, b.Since, b.Spent = from, since, spent
	return err
}

// sameWindows reports whether two budgets of one period begin anew at the same times.
func sameWindows(a, b *billing.BudgetSpec) bool {
	zone := func(s *billing.BudgetSpec) string {
		if s.Zone == nil {
			return time.UTC.String()
		}
		return s.Zone.String()
	}
	return a.Begins == b.Begins && zone(a) == zone(b)
}

// Reset forgets what was spent in the running window, and returns it.
func (b *Budget) Reset(now int64) (spent billing.Money) {
	spent = b.used(now)
	b.roll(now)
	b.Spent, b.Since = 0, now
	return spent
}

// CheckRaise refuses a raise that a budget cannot have.
func (b *Budget) CheckRaise(amount billing.Money, until, now int64) error {
	switch {
	case amount < 0:
		return fault.Invalid("amount", "A raise of a budget must not be negative. Set the budget to lower its limit.")
	case amount > 0 && until <= now:
		return fault.Invalid("until", "A raise of a budget must end later than now.")
	case !Fits(b.Limit, amount):
		return fault.Invalid("amount", "A budget cannot have a limit this large.")
	}
	return nil
}

// Path are the subjects of a request.
func Path(r *billing.HoldRequest) []billing.Subject {
	path := make([]billing.Subject, 0, 2+len(r.Subjects))
	path = append(path, billing.AccountSubject(r.Account), billing.KeySubject(r.Key))
	for _, s := range r.Subjects {
		if !slices.Contains(path, s) {
			path = append(path, s)
		}
	}
	return path
}

// CheckCount refuses a request that counts against too many budgets, and names them.
func CheckCount(budgets []*Budget) error {
	if len(budgets) <= billing.MaxBudgets {
		return nil
	}
	var names []string
	for _, b := range budgets {
		names = append(names, b.Subject.String())
	}
	return fault.Invalid("", fmt.Sprintf("The request counts against %d budgets, and can count against %d: %s.", len(budgets), billing.MaxBudgets, strings.Join(names, ", ")))
}

// CheckSubject refuses a subject on which an account cannot have a budget.
func CheckSubject(account string, on billing.Subject) error {
	switch {
	case on.Validate() != nil:
		return on.Validate()
	case on.Kind == billing.OnChannel || on.Kind == billing.OnModel:
		return fault.Invalid("subject", "A budget on a channel or a model is the operator's own, and no account's.")
	case on.Account != "" && on.Account != account:
		return fault.Invalid("subject", fmt.Sprintf("%s does not belong to the account %q.", on, account))
	case on.Kind == billing.OnRun && on.Key == "":
		return fault.Invalid("subject", "A run belongs to a key; name that too.")
	}
	return nil
}

// StoredSubject is the text of a subject within its account: a run's has its key, in which no
// slash is left.
func StoredSubject(s billing.Subject) string {
	if s.Kind == billing.OnRun {
		return string(billing.OnRun) + ":" + strings.NewReplacer("%", "%25", "/", "%2F").Replace(s.Key) + "/" + s.Name
	}
	return s.String()
}

// ParseStoredSubject is the inverse of StoredSubject. Of a key it takes any id, as a row of an
// older version may have it.
func ParseStoredSubject(text string) (billing.Subject, error) {
	if key, ok := strings.CutPrefix(text, string(billing.OnKey)+":"); ok {
		return billing.KeySubject(key), nil
	}
	if rest, run := strings.CutPrefix(text, string(billing.OnRun)+":"); run {
		key, name, _ := strings.Cut(rest, "/")
		s := billing.Subject{Kind: billing.OnRun, Name: name, Key: strings.NewReplacer("%2F", "/", "%25", "%").Replace(key)}
		return s, s.Validate()
	}
	return billing.ParseSubject(text)
}

// TermsOf are the terms of a limit for ever on all models.
func TermsOf(limit billing.Money) *billing.BudgetSpec {
	return &billing.BudgetSpec{Limit: limit, Alert: []int{50, 80, 100}}
}

// ErrNoBudget is the error of a look-up by id.
func ErrNoBudget(account string, id int64) error {
	return fault.New(fault.NotFound, fmt.Sprintf("The account %.64q has no budget with the id %d.", account, id))
}

// errBudgetExceeded refuses a request that its account can pay, and a budget cannot.
func errBudgetExceeded(b billing.Budget) error {
	message := fmt.Sprintf("The budget of %s does not cover the request: of its limit of %s, %s is spent and %s is held by running requests.", b.Subject, b.Limit(), b.Spent, b.Held)
	switch {
	case b.Subject.Kind == billing.OnKey && b.Spec.Every == "":
		message = fmt.Sprintf("The key's budget does not cover the request: %s of it is not spent, and %s of that is held for running requests.", max(b.Limit()-b.Spent, 0), b.Held)
	case !b.ResetsAt.IsZero():
		message += " It begins anew at " + b.ResetsAt.Format(time.RFC3339) + "."
	}
	return fault.Wrap(fault.BudgetExceeded, message, &billing.BudgetExceeded{Budget: b})
}

// Charged reports whether usage of a key belongs to a subject, as far as usage tells them
// apart: that of groups, tags and runs belongs to none.
func Charged(on billing.Subject, key string) bool {
	return on.Kind == billing.OnAccount || on == billing.KeySubject(key)
}

// AddTightest notes what a key has left of one of its budgets, unless that counts only some
// models or another one has less.
func AddTightest(left map[billing.KeyOf]billing.Money, of billing.KeyOf, b *Budget, now int64) {
	if len(b.Terms.Models) > 0 {
		return
	}
	if least, known := left[of]; !known || b.Available(now) < least {
		left[of] = b.Available(now)
	}
}
