package faultlab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Report is what came of a lab.
type Report struct {
	Seed     uint64
	Requests int           // copies included
	Attempts int           // at vendors
	Virtual  time.Duration // how long all of it took, by the lab's clock
	Captured int           // requests that cost something
	Charged  billing.Money // by all customers
	Loose    int           // charges of which another would have been right too
	Rules    map[string]int
	Kinds    map[Kind]int
	Troubles map[Trouble]int
	Problems []string // what does not hold; none if all is well
	Failed   []int    // the cases of which something does not hold, each once
}

// verify compares everything with what must be.
func (l *Lab) verify() *Report {
	rep := &Report{Seed: l.options.Seed, Virtual: l.now(), Rules: map[string]int{}, Kinds: map[Kind]int{}, Troubles: map[Trouble]int{}}
	ctx := context.Background()
	charged := map[string]billing.Money{}
	captured := map[string][]string{} // by idempotency key
	rows := map[int]map[string]row{}
	for _, r := range l.all {
		rep.Requests++
		rep.Kinds[r.Case.Kind]++
		for _, p := range r.attempts {
			rep.Attempts++
			rep.Troubles[p.plan.Trouble]++
		}
		receipt, err := l.ledger.Receipt(ctx, accountOf(r.Case.Payer), r.ID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			l.problem("the receipt of %s: %v", r.ID, err)
		}
		charged[accountOf(r.Case.Payer)] += receipt.Charge
		if receipt.Status == billing.Captured {
			rep.Captured++
			if r.Case.Key != "" {
				captured[r.Case.Key] = append(captured[r.Case.Key], r.ID)
			}
		}
		if rows[r.generation] == nil {
			rows[r.generation] = prices(r.generation)
		}
		l.verifyCharge(r, receipt, rows[r.generation][traits[r.Case.Kind].model], rep)
		l.verifyRun(r)
	}
	for key, ids := range captured {
		if len(ids) > 1 {
			l.problem("the idempotency key %q was paid for %d times: %v", key, len(ids), ids)
		}
	}
	l.verifyReplays()
	l.verifyRetries()
	l.verifyLedger(ctx, charged, rep)
	rep.Problems, rep.Failed = l.problems, l.failed
	return rep
}

// verifyCharge compares a charge with the oracle's.
func (l *Lab) verifyCharge(r *Run, receipt billing.Receipt, price row, rep *Report) {
	v := r.right()
	if r.replayed {
		v = expectation{rule: "a replayed answer: nothing"}
	}
	rep.Rules[v.rule]++
	var wants []int64
	for _, used := range slices.Concat([]tally{v.used}, v.others) {
		want, err := used.cost(price)
		if err != nil {
			l.problem("%s: %v", r.ID, err)
		}
		if !slices.Contains(wants, want) {
			wants = append(wants, want)
		}
	}
	if len(wants) > 1 {
		rep.Loose++
	}
	cost := int64(receipt.Charge + receipt.Overrun)
	if !slices.Contains(wants, cost) {
		l.runProblem(r, "it cost %d nano-units (%+v), and should have cost %v by the rule: %s %v", cost, receipt, wants, v.rule, v.used)
	}
	if receipt.Overrun != 0 && !needy(r.Case.Payer) {
		l.runProblem(r, "the operator bore %s although the payer has money", receipt.Overrun)
	}
	if n := l.log.requests[r.ID]; n != 1 && r.ID != "" {
		l.runProblem(r, "it has %d log lines", n)
	}
	if told := l.log.charges[r.ID]; told != "" && told != receipt.Charge.String() && !r.replayed {
		l.runProblem(r, "the log tells the charge %s, the receipt %s", told, receipt.Charge)
	}
}

// needy reports whether a payer's money may end.
func needy(payer int) bool { return payer >= rich && payer < rich+poor+frugal }

// verifyRun checks what holds for a request whatever it cost.
func (l *Lab) verifyRun(r *Run) {
	if p := r.last(0); p != nil && r.Case.Stream && r.accepted && len(p.script.marks) > 0 && p.script.marks[0].what == ruins {
		l.runProblem(r, "the client got a 200 for an answer that is an error")
	}
	attempts := map[int]*attempt{}
	for _, p := range r.attempts {
		before := attempts[p.part]
		attempts[p.part] = p
		if p.number >= mostAttempts {
			l.runProblem(r, "part %d was asked for %d times", p.part, p.number+1)
		}
		if before != nil && !r.Case.repeatable() && before.sent && !before.refused && !(r.Case.Kind.IsVideo() && before.plan.Trouble == ErrorBody) {
			l.runProblem(r, "part %d was asked for again although the vendor may have done it: %s", p.part, before.plan.Trouble)
		}
		if before != nil && before.over == never && (before.dropped == never || before.dropped > p.began) {
			l.runProblem(r, "part %d was asked for again while the vendor was at it", p.part)
		}
		if p.over == never && p.dropped == never {
			l.runProblem(r, "a vendor was never let go: part %d, attempt %d", p.part, p.number+1)
		}
		if p.over == never && p.dropped > r.ended+p.patience() && !r.Case.Kind.IsVideo() {
			l.runProblem(r, "the client's request ended at %s, the vendor was let go at %s", r.ended, p.dropped)
		}
		if r.left != never && r.accepted && p.over == never && p.dropped > max(r.left, r.answered)+p.patience() && r.Case.Stream && r.Case.Kind.Talks() {
			l.runProblem(r, "the client left at %s, the vendor was let go at %s", r.left, p.dropped)
		}
	}
	if p := r.last(0); r.complete && r.Case.Stream && !needy(r.Case.Payer) && p != nil && !p.completed() {
		l.runProblem(r, "the stream was ended well before the vendor had ended it, and the payer has money")
	}
	if r.cutOff() && !l.wasDown(r.last(0).dropped) {
		l.runProblem(r, "the stream was ended although nobody but the ledger was away")
	}
	if (fault.Is(r.failed, fault.InsufficientBalance) || fault.Is(r.failed, fault.BudgetExceeded)) && !needy(r.Case.Payer) {
		l.runProblem(r, "a payer with money was refused: %v", r.failed)
	}
}

// cutOff reports whether the gateway ended a stream by itself of which only the
// charge could not be recorded. One that comes by single bytes may have run out of
// time.
func (r *Run) cutOff() bool {
	p := r.last(0)
	return p != nil && p.plan.Answer.Grain == 0 && p.plan.Answer.Gap < 10*time.Second && r.Case.Stream && r.accepted && p.plan.Trouble == Fine && p.over == never && !p.completed() &&
		r.left == never && r.Case.Copies[r.Copy].Client.Slow == 0 && !needy(r.Case.Payer) &&
		r.failed != nil && strings.Contains(r.failed.Error(), "could not be recorded")
}

// verifyRetries checks that attempts beyond the first of a call are a fifth of all
// calls at the most, and three.
func (l *Lab) verifyRetries() {
	calls, extra := l.polls.Load(), int64(0)
	for _, r := range l.all {
		if len(r.attempts) == 0 { // no channel may have been free
			calls++
		}
		for _, p := range r.attempts {
			if p.number == 0 {
				calls++
			} else {
				extra++
			}
		}
	}
	if extra > calls/5+3 {
		l.problem("there were %d attempts beyond the first of %d calls", extra, calls)
	}
}

// patience is how long after its client's leaving a vendor may be kept: no longer
// than it takes, but that a complete stream's transfer may end by itself.
func (p *attempt) patience() time.Duration {
	const prompt, drain = 100 * time.Millisecond, time.Second
	if p.completed() {
		return drain + prompt
	}
	return prompt
}

// completed reports whether the end of a complete answer came.
func (p *attempt) completed() bool {
	return slices.ContainsFunc(p.came(), func(m mark) bool { return m.what == completes })
}

// repeatable reports whether an attempt that may have cost its vendor something may
// be followed by another.
func (c *Case) repeatable() bool { return c.Kind.Talks() || c.Kind.Lists() }

// verifyReplays checks that a duplicate got what the first request got.
func (l *Lab) verifyReplays() {
	for _, r := range l.all {
		if !r.replayed {
			continue
		}
		first := l.runs[r.original]
		switch {
		case first == nil || first.Case.Key != r.Case.Key:
			l.runProblem(r, "it got the answer of %q, which is not a request of the same key", r.original)
		case first.complete && !r.Case.Kind.IsVideo() && string(first.body) != string(r.body):
			l.runProblem(r, "it got %d bytes, the first request %d others", len(r.body), len(first.body))
		}
	}
}

// verifyLedger checks the ledger as a whole. Of a store that keeps answers and tasks
// too, the gateway does not ask it by the probe.
func (l *Lab) verifyLedger(ctx context.Context, charged map[string]billing.Money, rep *Report) {
	if l.options.Store == nil {
		l.ledger.verify(l.problem)
	} else if err := l.ledger.Verify(ctx); err != nil {
		l.problem("the ledger: %v", err)
	}
	for account, sum := range charged {
		rep.Charged += sum
		b, err := l.ledger.Balance(ctx, account)
		if err != nil || b.Held != 0 {
			l.problem("of %s %s is still held (%v)", account, b.Held, err)
		}
		if rich := account <= "account-5"; rich && credit-b.Posted != sum {
			l.problem("%s has paid %s, its receipts say %s", account, credit-b.Posted, sum)
		}
	}
	for id, n := range l.log.videos {
		if n > 1 {
			l.problem("the end of the video of %s was logged %d times", id, n)
		}
	}
}

// runProblem notes what does not hold for a run, with its script.
func (l *Lab) runProblem(r *Run, format string, args ...any) {
	var attempts string
	for _, p := range r.attempts {
		attempts += fmt.Sprintf("\n  part %d attempt %d: %q began %s, sent %v, %d of %d bytes, over %s (eof %v), dropped %s",
			p.part, p.number+1, p.plan.Trouble, p.began, p.sent, p.given, len(p.script.data), p.over, p.eof, p.dropped)
	}
	if !slices.Contains(l.failed, r.Case.Number) {
		l.failed = append(l.failed, r.Case.Number)
	}
	l.problem("seed %d request %d copy %d (%s): %s\n  began %s, accepted %v, %d reads, %d bytes, complete %v, left %s, ended %s, error %v%s\n%s",
		r.Case.Seed, r.Case.Number, r.Copy, r.ID, fmt.Sprintf(format, args...),
		r.began, r.accepted, r.reads, r.got, r.complete, r.left, r.ended, r.failed, attempts, r.Case)
}
