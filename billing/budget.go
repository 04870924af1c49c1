package billing

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// MaxBudgets is how many budgets one request can count against.
const MaxBudgets = 8

// BudgetSpec is what a budget allows. The zero value allows nothing, for ever.
type BudgetSpec struct {
	Limit Money
	// Every is how often the budget begins anew. Empty means never.
	Every Period
	// Zone is where days, weeks, months, quarters and years begin; nil means UTC.
	Zone *time.Location
	// Begins is where in its calendar a period begins: "15" is a day of the month (31 is the
	// last), "sunday" a day of the week, "06:00" a time of day. Durations are counted from a
	// time as in RFC 3339. Empty means the first of the month, Monday, midnight, and 1970.
	Begins string
	// Models are the public ids that the budget counts; one that ends in * stands for all that
	// begin with the rest. Empty means all models.
	Models []string
	// Downgrade is the model that answers instead when the budget is used up. Empty means that
	// the request is refused.
	Downgrade string
	// Alert are the percents of the limit at which the operator is told, in ascending order; nil
	// for none.
	Alert []int
}

// Period is how often a budget begins anew: one of the constants, a duration such as "4s", or
// empty for never.
type Period string

// The periods of a calendar. An hour is an hour of UTC.
const (
	EveryHour    Period = "hour"
	EveryDay     Period = "day"
	EveryWeek    Period = "week"
	EveryMonth   Period = "month"
	EveryQuarter Period = "quarter"
	EveryYear    Period = "year"
)

// duration is that of a period which is no calendar's; false for every other.
func (p Period) duration() (time.Duration, bool) {
	d, err := time.ParseDuration(string(p))
	return d, err == nil
}

// canonical spells a duration in one way: "36h", and not "2160m".
func (p Period) canonical() Period {
	d, ok := p.duration()
	if !ok {
		return p
	}
	text := d.String()
	for _, rest := range [...]string{"m0s", "h0m"} {
		if strings.HasSuffix(text, rest) {
			text = text[:len(text)-2]
		}
	}
	return Period(text)
}

// BudgetText is a [BudgetSpec] as files, commands and the admin API write it. [ParseBudget]
// reads it.
type BudgetText struct {
	Limit     string   `json:"limit,omitempty"`
	Every     string   `json:"every,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Begins    string   `json:"begins,omitempty"`
	Models    []string `json:"models,omitempty"`
	Exhausted string   `json:"exhausted,omitempty"` // "refuse", the default, or "downgrade:MODEL"
	Alert     []int    `json:"alert,omitzero"`      // nil means 50, 80 and 100
}

// ParseBudget reads a budget, whose Models it sorts: their order means nothing. It fails with fault.InvalidRequest, whose Param is the JSON name
// of the field.
func ParseBudget(t BudgetText) (s BudgetSpec, err error) {
	if s.Limit, err = ParseMoney(t.Limit); err != nil {
		return BudgetSpec{}, fault.Invalid("limit", fmt.Sprintf("The limit of a budget is a decimal such as \"5.00\", and not %q.", clip(t.Limit)))
	}
	if s.Zone, err = parseZone(t.Zone); err != nil {
		return BudgetSpec{}, err
	}
	if s.Zone == time.UTC {
		s.Zone = nil
	}
	s.Every, s.Begins, s.Models, s.Alert = Period(t.Every).canonical(), t.Begins, slices.Sorted(slices.Values(t.Models)), t.Alert
	if s.Alert == nil {
		s.Alert = []int{50, 80, 100}
	} else if len(s.Alert) == 0 {
		s.Alert = nil
	}
	if model, downgrades := strings.CutPrefix(t.Exhausted, "downgrade:"); downgrades && model != "" {
		s.Downgrade = model
	} else if t.Exhausted != "" && t.Exhausted != "refuse" {
		return BudgetSpec{}, fault.Invalid("exhausted", fmt.Sprintf("A budget that is used up can \"refuse\" or \"downgrade:MODEL\", and not %q.", clip(t.Exhausted)))
	}
	if err := s.Validate(); err != nil {
		return BudgetSpec{}, err
	}
	return s, nil
}

// Text is the spec as [ParseBudget] reads it.
func (s *BudgetSpec) Text() BudgetText {
	t := BudgetText{Limit: s.Limit.String(), Every: string(s.Every), Begins: s.Begins, Models: s.Models, Alert: s.Alert}
	if s.Zone != nil && s.Zone != time.UTC {
		t.Zone = s.Zone.String()
	}
	if s.Downgrade != "" {
		t.Exhausted = "downgrade:" + s.Downgrade
	}
	if t.Alert == nil {
		t.Alert = []int{}
	}
	return t
}

// Validate fails with fault.InvalidRequest if no budget can be so. The Param of the error is
// the field, as [BudgetText] names it in JSON.
func (s *BudgetSpec) Validate() error {
	if s.Limit < 0 || s.Limit == Unlimited {
		return fault.Invalid("limit", "The limit of a budget must not be negative, and must be an amount.")
	}
	if s.Zone != nil {
		if _, err := parseZone(s.Zone.String()); err != nil {
			return err
		}
	}
	if err := s.validateEvery(); err != nil {
		return err
	}
	if err := s.validateModels(); err != nil {
		return err
	}
	for i, percent := range s.Alert {
		if percent < 1 || percent > 100 || (i > 0 && percent <= s.Alert[i-1]) {
			return fault.Invalid("alert", "The alerts of a budget are percents from 1 to 100 in ascending order.")
		}
	}
	return nil
}

func (s *BudgetSpec) validateEvery() error {
	begins := func(how string) error {
		return fault.Invalid("begins", fmt.Sprintf("%s, and not %q.", how, clip(s.Begins)))
	}
	switch s.Every {
	case "", EveryHour:
		if s.Begins != "" {
			return fault.Invalid("begins", "A budget for ever, or for each hour of UTC, has no other beginning.")
		}
	case EveryDay:
		if _, ok := parseClock(s.Begins); !ok {
			return begins("A day of a budget begins at a time such as \"06:00\"")
		}
	case EveryWeek:
		if _, ok := parseWeekday(s.Begins); !ok {
			return begins("A week of a budget begins on a day such as \"sunday\"")
		}
	case EveryMonth, EveryQuarter, EveryYear:
		if _, ok := parseDay(s.Begins); !ok {
			return begins("A " + string(s.Every) + " of a budget begins on a day of the month from 1 to 31")
		}
	default:
		d, ok := s.Every.duration()
		if !ok {
			return fault.Invalid("every", fmt.Sprintf("A budget begins anew every hour, day, week, month, quarter or year, or every duration such as \"36h\", and not %q.", clip(string(s.Every))))
		}
		if d < time.Second {
			return fault.Invalid("every", "A budget that begins anew after a duration lasts one second at least.")
		}
		if _, ok := parseOrigin(s.Begins); !ok {
			return begins("A duration of a budget is counted from a time such as \"2026-11-01T00:00:00Z\"")
		}
	}
	return nil
}

func (s *BudgetSpec) validateModels() error {
	const most = 100
	if len(s.Models) > most {
		return fault.Invalid("models", fmt.Sprintf("A budget names %d models at most.", most))
	}
	for i, pattern := range s.Models {
		if name := strings.TrimSuffix(pattern, "*"); pattern == "" || !plain(name) || strings.Contains(name, "*") || slices.Contains(s.Models[:i], pattern) {
			return fault.Invalid("models", fmt.Sprintf("A model of a budget is an id, named once, which can end in \"*\", and not %q.", clip(pattern)))
		}
	}
	if s.Downgrade != "" && (!plain(s.Downgrade) || strings.Contains(s.Downgrade, "*")) {
		return fault.Invalid("exhausted", fmt.Sprintf("A budget downgrades to the id of one model, and not to %q.", clip(s.Downgrade)))
	}
	return nil
}

// Counts reports whether the budget counts requests to a model, by its public id.
func (s *BudgetSpec) Counts(model string) bool {
	return len(s.Models) == 0 || slices.ContainsFunc(s.Models, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return pattern == model || (open && strings.HasPrefix(model, prefix))
	})
}

// Window is the running window of a valid spec: its first moment, and that of the next one.
// Both are zero for a budget for ever. They depend on nothing but the arguments.
//
// Where a clock that is set forward skips the beginning, the window begins when the clock is
// set. Where a clock that is set back repeats the beginning, the first one counts. A day that a
// month does not have is its last.
func Window(spec BudgetSpec, now time.Time) (begin, end time.Time) {
	switch spec.Every {
	case "":
		return time.Time{}, time.Time{}
	case EveryHour:
		begin = now.UTC().Truncate(time.Hour)
		return begin, begin.Add(time.Hour)
	case EveryDay, EveryWeek, EveryMonth, EveryQuarter, EveryYear:
		zone := spec.Zone
		if zone == nil {
			zone = time.UTC
		}
		today := now.In(zone)
		end = firstInstant(zone, spec.start(today, 2))
		for k := 1; ; k-- {
			begin = firstInstant(zone, spec.start(today, k))
			if !begin.After(now) {
				return begin, end
			}
			end = begin
		}
	}
	length, ok := spec.Every.duration()
	if !ok || length <= 0 { // no valid spec is so
		return time.Time{}, time.Time{}
	}
	origin, _ := parseOrigin(spec.Begins)
	passed := now.Sub(origin)
	over := passed % length
	if over < 0 {
		over += length
	}
	begin = origin.Add(passed - over)
	return begin, begin.Add(length)
}

// start is what the clocks show when the kth period after today's begins, as if it were UTC.
func (s *BudgetSpec) start(today time.Time, k int) time.Time {
	year, month, day := today.Date()
	switch s.Every {
	case EveryDay:
		clock, _ := parseClock(s.Begins)
		return time.Date(year, month, day+k, 0, 0, 0, 0, time.UTC).Add(clock)
	case EveryWeek:
		first, _ := parseWeekday(s.Begins)
		passed := (int(today.Weekday()) - int(first) + 7) % 7
		return time.Date(year, month, day-passed+7*k, 0, 0, 0, 0, time.UTC)
	case EveryMonth:
		month += time.Month(k)
	case EveryQuarter:
		month += time.Month(3*k) - (month-1)%3
	default:
		year, month = year+k, time.January
	}
	first, _ := parseDay(s.Begins)
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(year, month, min(first, last), 0, 0, 0, 0, time.UTC)
}

// firstInstant is the first moment at which the clocks of a zone show a time, or have been set
// forward over it. The time is given as if it were UTC.
func firstInstant(zone *time.Location, shown time.Time) time.Time {
	const furthest = 16 * time.Hour // from UTC
	at := func(other time.Duration) (moment time.Time, shows bool) {
		_, offset := shown.Add(other).In(zone).Zone()
		moment = shown.Add(-time.Duration(offset) * time.Second)
		_, then := moment.In(zone).Zone()
		return moment, then == offset
	}
	before, shows := at(-furthest)
	if shows {
		return before
	}
	if after, shows := at(furthest); shows {
		return after
	}
	set, _ := before.In(zone).ZoneBounds()
	return set.UTC()
}

// parseZone finds a zone by its IANA name; an empty one is UTC.
func parseZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fault.Invalid("zone", fmt.Sprintf("There is no time zone %q: write an IANA name such as \"Europe/Berlin\".", clip(name)))
	}
	return zone, nil
}

// parseClock reads a time of day.
func parseClock(text string) (time.Duration, bool) {
	if text == "" {
		return 0, true
	}
	t, err := time.Parse("15:04", text)
	return t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), err == nil && len(text) == len("15:04")
}

// parseWeekday reads the name of a day.
func parseWeekday(text string) (time.Weekday, bool) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if text == strings.ToLower(day.String()) {
			return day, true
		}
	}
	return time.Monday, text == ""
}

// parseDay reads a day of the month.
func parseDay(text string) (int, bool) {
	if text == "" {
		return 1, true
	}
	day, err := strconv.Atoi(text)
	return day, err == nil && day >= 1 && day <= 31 && strconv.Itoa(day) == text
}

// parseOrigin reads the time from which durations are counted.
func parseOrigin(text string) (time.Time, bool) {
	if text == "" {
		return time.Unix(0, 0).UTC(), true
	}
	t, err := time.Parse(time.RFC3339, text)
	return t.UTC(), err == nil && t.After(time.Unix(0, math.MinInt64)) && t.Before(time.Unix(0, math.MaxInt64))
}

// plain reports whether a text can be a part of a subject or a model's id: not longer than 256
// bytes, without spaces and control characters.
func plain(text string) bool {
	return len(text) <= 256 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' })
}

// clip shortens a caller's text for a message.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most]
	}
	return text
}

// Budget is a budget in force, as a ledger has it.
type Budget struct {
	ID      int64 // stays while the spec changes
	Account string
	Subject Subject
	Spec    BudgetSpec
	// Raised is what the running raise adds to the limit, until RaisedUntil. Both are zero
	// without one.
	Raised      Money
	RaisedUntil time.Time
	Spent       Money // in the running window
	Held        Money // for running requests
	// Begins and ResetsAt are the running window. Both are zero for ever.
	Begins, ResetsAt time.Time
}

// Limit is what the running window allows.
func (b *Budget) Limit() Money { return b.Spec.Limit + b.Raised }

// Remaining is what is neither spent nor held; never below zero.
func (b *Budget) Remaining() Money { return max(max(b.Limit()-b.Spent, 0)-b.Held, 0) }

// BudgetExceeded is in the chain of the error of [Meter].Reserve and [Meter].Extend that has
// the code fault.BudgetExceeded. It names the budget that has the least left.
type BudgetExceeded struct{ Budget Budget }

// Error says which budget has how much.
func (e *BudgetExceeded) Error() string {
	return fmt.Sprintf("the budget of %s has %s left", e.Budget.Subject, e.Budget.Remaining())
}

// By says who changes a budget, and why. The ledger keeps both with the change.
type By struct{ Actor, Reason string }

// BudgetQuery asks for the budgets in force on some subjects of an account, on all of them if
// Subjects is nil, or of all accounts if Account is empty.
type BudgetQuery struct {
	Account  string
	Subjects []Subject
	// Limit, if it is not 0, asks for a page: at most so many, whose ids come after After.
	Limit int
	After int64
}

// Budgets are the limits on what an account and its parts spend. Their methods are safe for
// concurrent use, and a change is durable when the method returns. A running request keeps the
// budgets that it began with.
type Budgets interface {
	// PutBudget puts a budget on a subject of an account, in the place of the one with the same
	// Every and Models. What that has spent, and what it holds, stays. A budget that is new, or
	// whose window begins elsewhere now, has spent what usage says of the hours of the running
	// window; usage does not tell groups, tags and runs apart, so these begin with nothing.
	PutBudget(ctx context.Context, account string, on Subject, spec BudgetSpec, by By) (Budget, error)
	// Budgets returns budgets sorted by id.
	Budgets(ctx context.Context, q BudgetQuery) ([]Budget, error)
	// RaiseBudget adds an amount to the limit until a time, in the place of an earlier raise.
	// Amount 0 ends that.
	RaiseBudget(ctx context.Context, account string, id int64, amount Money, until time.Time, by By) error
	// ResetBudget forgets what was spent in the running window.
	ResetBudget(ctx context.Context, account string, id int64, by By) error
	// DeleteBudget ends a budget.
	DeleteBudget(ctx context.Context, account string, id int64, by By) error
}
