package faultlab

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
)

// hostileReport is what came of the requests of hostile tenants.
type hostileReport struct {
	Seed     uint64
	Requests int // that were sent, copies included
	Reached  int // that a vendor saw
	Refused  int // with a 4xx
	Charged  billing.Money
	Billed   billing.Money // by the vendors, for the hostile tenants
	Borne    Tolerance     // what was borne by rule
	Statuses map[int]int
	Good     int            // requests of the third tenant
	Found    map[string]int // problems by the class of the request
	Problems []string
}

// String are the figures, and of each class the first problems with the command
// that plays them again.
func (rep *hostileReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d requests, %d reached a vendor, %d refused, %v; billed %s, charged %s, borne by rule %+v; %d requests of the third tenant",
		rep.Seed, rep.Requests, rep.Reached, rep.Refused, rep.Statuses, rep.Billed, rep.Charged, rep.Borne, rep.Good)
	shown := map[string]bool{}
	for _, p := range rep.Problems {
		if class, _, _ := strings.Cut(p, ":"); !shown[class] {
			shown[class] = true
			fmt.Fprintf(&b, "\n%s", p)
		}
	}
	if len(rep.Problems) > 0 {
		fmt.Fprintf(&b, "\n%d problems %v of the seed %d", len(rep.Problems), rep.Found, rep.Seed)
	}
	return b.String()
}

func (rep *hostileReport) problem(class, format string, args ...any) {
	rep.Found[class]++
	rep.Problems = append(rep.Problems, class+": "+fmt.Sprintf(format, args...))
}

// Tolerance is what vendors bill and the operator bears by rule, by its reason.
type Tolerance struct {
	Disobeyed  billing.Money // made above the bound that the vendor was sent
	Media      billing.Money // of one call in a round: media by URL, above their declared bound
	Dropped    billing.Money // of one whole answer in a round whose bound a channel drops, above its hold
	Waste      billing.Money // billed, though the gateway got an error for it
	Unreceived billing.Money // output by tokens of a stream, made and not shown when the client disconnected
	Parts      billing.Money // of a request that was cut into parts: the others, where a vendor failed at one
	Ended      billing.Money // of a stream that ended with its balance: one step of hold_tokens
}

// Sum is all of it.
func (t Tolerance) Sum() billing.Money {
	return t.Disobeyed + t.Media + t.Dropped + t.Waste + t.Unreceived + t.Parts + t.Ended
}

func (t *Tolerance) add(more Tolerance) {
	t.Disobeyed += more.Disobeyed
	t.Media += more.Media
	t.Dropped += more.Dropped
	t.Waste += more.Waste
	t.Unreceived += more.Unreceived
	t.Parts += more.Parts
	t.Ended += more.Ended
}

// account is what a round was for one hostile account.
type account struct {
	billed  billing.Money
	borne   Tolerance
	dropped bool          // an answer of this round was above its hold, as its bound is dropped
	missing billing.Money // neither paid nor borne by rule, where the account had no more
	worst   billing.Money // of it, by one request
	example string
	class   string // of that request
}

// audit compares what the vendors would bill with what the gateway charged.
func (l *hostileLab) audit(round int) {
	accounts := map[string]*account{tenantAccount(hostileOne): {}, tenantAccount(hostileTwo): {}}
	l.vendors.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.vendors.bills))
	l.vendors.mu.Unlock()
	for _, id := range ids {
		l.mu.Lock()
		r := l.requests[id]
		l.mu.Unlock()
		if r == nil { // the third tenant's, which is not over yet
			continue
		}
		if r.tenant != thirdTenant {
			l.compare(id, r, accounts[tenantAccount(r.tenant)])
		}
		l.vendors.forget(id)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		a := accounts[name]
		l.report.Billed += a.billed
		l.report.Borne.add(a.borne)
		b, err := l.ledger.Balance(context.Background(), name)
		if err != nil {
			l.report.problem("ledger", "%v", err)
		}
		spent := roundCredit - b.Posted
		l.report.Charged += spent
		borne := a.borne.Sum()
		if a.missing > a.borne.Disobeyed+a.borne.Media {
			l.report.problem(a.class, "round %d: %s had %s and paid %s; %s of what the vendors bill is neither paid nor borne by rule, which is %+v. The most: %s",
				round, name, roundCredit, spent, a.missing, a.borne, a.example)
		}
		if a.billed > spent+borne || a.billed > roundCredit+borne {
			l.report.problem("sum", "round %d: the vendors bill %s for %s, which had %s and paid %s; %+v was borne by rule", round, a.billed, name, roundCredit, spent, a.borne)
		}
	}
}

// compare compares what vendors bill for one request with its charge. What a vendor made above
// its bound, and what media counted, is charged like all else. If the account had no more,
// another request may be the one that cannot be paid. So what is missing then is compared for
// the account.
func (l *hostileLab) compare(id string, r *request, a *account) {
	var total billing.Money
	var tolerance Tolerance
	var what []string
	model := ""
	for _, b := range l.vendors.of(id) {
		total += b.total
		tolerance.add(b.tolerance)
		what = append(what, strings.Join(b.what, ", "))
		model = b.model
	}
	receipt, err := l.ledger.Receipt(context.Background(), tenantAccount(r.tenant), id)
	if err != nil && total > 0 {
		l.report.problem(r.class, "request %d: a vendor bills %s, and there is no receipt: %v\n%s", r.number, total, err, r)
	}
	l.report.Reached++
	own := tolerance // but for what is to be charged all the same
	own.Disobeyed, own.Media = 0, 0
	missing := total - receipt.Charge - own.Sum()
	switch {
	case receipt.Reason == "balance_ended":
		tolerance.Ended = min(max(missing, 0), cost(model, billing.Output, "", hostileHeld))
		missing -= tolerance.Ended
	case receipt.Reason == "upstream_failed" && len(what) > 1 && !bytes.Contains(r.body, []byte(flagged)):
		tolerance.Parts = max(missing, 0)
		missing -= tolerance.Parts
	case model == droppedChat && receipt.Reason == billing.ReasonComplete && receipt.Overrun > 0 && !a.dropped:
		a.dropped = true
		tolerance.Dropped = max(missing, 0)
		missing -= tolerance.Dropped
	}
	a.billed += total
	a.borne.add(tolerance)
	const rounding = 1
	if missing <= rounding {
		return
	}
	text := fmt.Sprintf("request %d (%s): the vendors bill %s (%s), the charge is %s (hold %s, overrun %s, %s %s, %+v), and %+v was borne by rule\n%s\nBy itself: -seed %d -only %d",
		r.number, id, total, abridged(strings.Join(what, "; ")), receipt.Charge, receipt.Hold, receipt.Overrun, receipt.Status, receipt.Reason, receipt.Usage, tolerance, r, l.options.Seed, r.number)
	if missing-receipt.Overrun > rounding {
		l.report.problem(r.class, "%s", text)
		return
	}
	a.missing += missing
	if missing > a.worst {
		a.worst, a.example, a.class = missing, text, r.class
	}
}

func abridged(text string) string {
	const most = 120
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
