package money

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/replay"
)

// meter holds whatever it is asked for, and fails as a test says.
type meter struct {
	reserve error
	hangs   bool
	spare   bool // it has capacity for checkpoints

	mu       sync.Mutex
	extend   func(ctx context.Context, more billing.Money) error // nil means that all is granted
	extended []billing.Money
	saved    []billing.Usage
	settle   error
	receipt  *billing.Receipt // instead of the one that fits
	settled  []billing.Usage
	records  [][]billing.Record
	locked   map[string]bool // accounts whose settlements wait in vain
}

func (m *meter) Reserve(ctx context.Context, r billing.HoldRequest) (billing.Hold, error) {
	if m.hangs {
		<-ctx.Done()
		return billing.Hold{}, ctx.Err()
	}
	return billing.Hold{ID: r.RequestID, Account: r.Account, Key: r.Key, Price: r.Price, Amount: 1_000 * micro}, m.reserve
}

func (m *meter) HasCapacity() bool { return m.spare }

func (m *meter) Extend(ctx context.Context, _ billing.Hold, soFar billing.Usage, more billing.Money) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.extend != nil {
		if err := m.extend(ctx, more); err != nil {
			return err
		}
	}
	m.extended, m.saved = append(m.extended, more), append(m.saved, soFar)
	return nil
}

func (m *meter) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[h.Account] {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return billing.Receipt{}, ctx.Err()
	}
	m.settled, m.records = append(m.settled, u), append(m.records, slices.Clone(with))
	if m.settle != nil {
		return billing.Receipt{}, m.settle
	}
	if m.receipt != nil {
		return *m.receipt, nil
	}
	o := with[0].(billing.Outcome)
	return billing.Receipt{ID: h.ID, Usage: u, Status: billing.StatusOf(u), Reason: o.Reason, Channel: o.Channel}, nil
}

// lock locks the rows of these accounts, and unlocks all others.
func (m *meter) lock(accounts ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked = make(map[string]bool)
	for _, account := range accounts {
		m.locked[account] = true
	}
}

// settlements is how many were made.
func (m *meter) settlements() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.settled)
}

func (m *meter) away(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle = err
}

// lab is a Money over a meter, and what it reported and logged.
type lab struct {
	*Money
	meter *meter
	mu    sync.Mutex
	late  []Late
	log   strings.Builder
}

func newLab(m *meter) *lab {
	l := &lab{meter: m}
	l.Money = New(Options{
		Meter: m, Timeout: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(&l.log, nil)),
		Report: func(_ context.Context, late Late) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.late = append(l.late, late)
		},
	})
	return l
}

func (l *lab) states() (all []State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, late := range l.late {
		all = append(all, late.State)
	}
	return all
}

// micro is the price of one token.
const micro = billing.One / 1_000_000

var payer = Payer{Account: "acme", Key: "key_1", Name: "ci"}

// ordered is an order of the request req_1.
func ordered(t *testing.T) Order {
	t.Helper()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	quote := operation.Tokens{Candidates: 1}.Quote(&operation.Facts{MaxOutput: 100_000, HoldTokens: 1_000})
	return Order{Payer: payer, Wanted: billing.HoldRequest{RequestID: "req_1", Price: price}, Quote: &quote, Step: 1_000}
}

// hold makes a hold.
func (l *lab) hold(t *testing.T, o Order) *Hold {
	t.Helper()
	h := new(Hold)
	if err := l.Hold(t.Context(), o, h); err != nil {
		t.Fatal(err)
	}
	return h
}

func complete() Outcome { return Outcome{Outcome: billing.Outcome{Reason: billing.ReasonComplete}} }

// answers keeps one key, and what was done with it.
type answers struct{ did []string }

func (a *answers) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	return nil, nil
}

func (a *answers) Claim(_ context.Context, _ idempotency.Key, _ idempotency.Content, id string) error {
	a.did = append(a.did, "claim "+id)
	return nil
}

func (a *answers) Keep(_ context.Context, _ idempotency.Key, id string, kept idempotency.Answer) error {
	a.did = append(a.did, "keep "+id+" "+string(kept.Body))
	return nil
}

func (a *answers) Free(_ context.Context, _ idempotency.Key, id string) error {
	a.did = append(a.did, "free "+id)
	return nil
}

func claim(t *testing.T, a *answers, byHold bool) *replay.Claim {
	t.Helper()
	r := replay.New(replay.Options{Store: a, Claims: a, ByHold: byHold, Logger: slog.New(slog.DiscardHandler)})
	c, _, err := r.Claim(t.Context(), idempotency.Key{Key: "k"}, idempotency.Content{}, "req_1")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestARefusedHoldSaysWhoCannotPayOrThatTheStoreIsAway(t *testing.T) {
	tests := []struct {
		name    string
		meter   *meter
		code    fault.Code
		message string
	}{
		{"balance", &meter{reserve: fault.New(fault.InsufficientBalance, "no")}, fault.InsufficientBalance, "no"},
		{"budget", &meter{reserve: fault.New(fault.BudgetExceeded, "no")}, fault.BudgetExceeded, `Key "ci": no`},
		{"key taken", &meter{reserve: idempotency.ErrInProgress()}, fault.IdempotencyConflict, "running"},
		{"failed", &meter{reserve: errors.New("away")}, fault.ServiceUnavailable, "store"},
		{"hangs", &meter{hangs: true}, fault.ServiceUnavailable, "store"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h Hold
				err := newLab(tt.meter).Hold(t.Context(), ordered(t), &h)
				if !fault.Is(err, tt.code) || !strings.Contains(err.Error(), tt.message) || h.Open() {
					t.Errorf("got %v, want %s with %q", err, tt.code, tt.message)
				}
			})
		})
	}
}

func TestAHoldEndsOnce(t *testing.T) {
	l := newLab(&meter{})
	h := l.hold(t, ordered(t))
	r, err := h.Capture(t.Context(), billing.Usage{Output: 7}, complete())
	if err != nil || r.Usage.Output != 7 || r.Status != billing.Captured || h.Open() || h.Tokens() != 7 {
		t.Fatalf("got %+v, %v", r, err)
	}
	again, err := h.Capture(t.Context(), billing.Usage{Output: 8}, complete())
	if err != nil || again != nil {
		t.Errorf("the second capture: got %+v, %v, want nothing", again, err)
	}
	if r, err = h.Capture(t.Context(), billing.Usage{}, Outcome{}); err != nil || r != nil || len(l.meter.settled) != 1 || h.Tokens() != 7 {
		t.Errorf("a release after it: got %+v, %v, %d settlements", r, err, len(l.meter.settled))
	}
	var none Hold
	if r, err := none.Capture(t.Context(), billing.Usage{Output: 7}, complete()); err != nil || r != nil {
		t.Errorf("the zero hold: got %+v, %v", r, err)
	}
	left := l.hold(t, ordered(t))
	left.Leave()
	if _, err := left.Capture(t.Context(), billing.Usage{}, Outcome{}); err != nil || left.Open() || len(l.meter.settled) != 1 {
		t.Errorf("a hold that was left was settled: %v, %+v", err, l.meter.settled)
	}
}

// drop is a record that ends something with a hold.
type drop struct{}

func (drop) RecordKind() string { return "drop" }

func TestASettlementKeepsTheAnswerAndItsRecords(t *testing.T) {
	for _, byHold := range []bool{true, false} {
		a, l := &answers{}, newLab(&meter{})
		o := ordered(t)
		o.Claim, o.AtEnd = claim(t, a, byHold), []billing.Record{drop{}}
		h, end := l.hold(t, o), complete()
		end.Answer = o.Claim.Answer(nil, []byte("{}"), 9)
		if _, err := h.Capture(t.Context(), billing.Usage{Output: 7}, end); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, r := range l.meter.records[0] {
			kinds = append(kinds, r.RecordKind())
		}
		wantKinds, wantDone := []string{"outcome", "drop"}, []string{"claim req_1", "keep req_1 {}"}
		if byHold {
			wantKinds, wantDone = []string{"outcome", "answer", "drop"}, nil
		}
		if !slices.Equal(kinds, wantKinds) || !slices.Equal(a.did, wantDone) {
			t.Errorf("by hold %t: got records %q, the store %q", byHold, kinds, a.did)
		}
	}
	a, l := &answers{}, newLab(&meter{})
	o := ordered(t)
	o.Claim = claim(t, a, false)
	if _, err := l.hold(t, o).Capture(t.Context(), billing.Usage{}, complete()); err != nil || !slices.Equal(a.did, []string{"claim req_1", "free req_1"}) {
		t.Errorf("a release: got %v, %q", err, a.did)
	}
}

// delivered counts one output token for each.
type delivered int64

func (d delivered) Usage() billing.Usage { return billing.Usage{Output: int64(d)} }
func (d delivered) Output() int64        { return int64(d) }
func (d delivered) Said() int64          { return int64(d) }

func TestAStreamsHoldIsExtendedUntilTheMoneyEnds(t *testing.T) {
	left := 1_500 * micro
	m := &meter{extend: func(_ context.Context, more billing.Money) error {
		if more > left {
			return fault.New(fault.InsufficientBalance, "no")
		}
		left -= more
		return nil
	}}
	h := newLab(m).hold(t, ordered(t))
	h.Stream(0, time.Now())
	var ended int64
	for out := int64(1); ended == 0; out++ {
		enough, err := h.Covers(t.Context(), delivered(out), time.Now())
		switch {
		case err != nil:
			t.Fatal(err)
		case !enough:
			ended = out
		}
	}
	if ended != 2_500 || left != 0 {
		t.Errorf("the stream ended at %d tokens with %s left, want 2500 and nothing", ended, left)
	}
}

func TestAStreamIsCheckpointedByTokensAndIfTheMeterHasTimeByTheClock(t *testing.T) {
	const half = 500 * time.Millisecond
	for _, tt := range []struct {
		name   string
		after  time.Duration // the clock's even second
		tokens int
		pause  time.Duration // after each
		spare  bool
		want   []int64
	}{
		{"a thousand tokens are new", 0, 2_500, 0, true, []int64{1_000, 2_000}},
		{"two seconds are over", 0, 14, half, true, []int64{5, 9, 13}},
		{"two seconds are over, the meter is busy", 0, 14, half, false, nil},
		{"an even second is over, as for others", 700 * time.Millisecond, 14, half, true, []int64{5, 8, 12}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, o := &meter{spare: tt.spare}, ordered(t)
			o.Wanted.Price = nil // nothing ends it
			h, now := newLab(m).hold(t, o), time.Unix(1_700_000_000, 0).Add(tt.after)
			h.Stream(0, now)
			for out := range tt.tokens {
				if enough, err := h.Covers(t.Context(), delivered(out+1), now); err != nil || !enough {
					t.Fatalf("at %d tokens: %t, %v", out+1, enough, err)
				}
				now = now.Add(tt.pause)
			}
			var got []int64
			for _, u := range m.saved {
				got = append(got, u.Output)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("saved at %d tokens, want %d", got, tt.want)
			}
		})
	}
}

// counts are what a vendor reports beside what was delivered.
type counts struct {
	delivered
	usage billing.Usage
}

func (c counts) Usage() billing.Usage { return c.usage }

func TestACheckpointIsClampedAsASettlementIs(t *testing.T) {
	m := &meter{}
	h := newLab(m).hold(t, ordered(t))
	h.Stream(0, time.Now())
	if _, err := h.Covers(t.Context(), counts{1_200, billing.Usage{Output: 900_000_000}}, time.Now()); err != nil || len(m.saved) != 1 || m.saved[0].Output != 1_200 || !m.saved[0].Anomaly {
		t.Errorf("saved %+v, %v, want the tokens of what was delivered", m.saved, err)
	}
}

func TestAnEventLargerThanAStepIsPaidFor(t *testing.T) {
	m := &meter{}
	h := newLab(m).hold(t, ordered(t))
	h.Stream(0, time.Now())
	enough, err := h.Covers(t.Context(), delivered(5_000), time.Now())
	if err != nil || !enough || len(m.extended) != 1 || m.extended[0] != 5_000*micro {
		t.Errorf("got %t, %v, extended by %v, want 4,000 above and a step", enough, err, m.extended)
	}
}

func TestAMeterThatIsAwayEndsNoStreamAndIsAskedAgainACheckpointLater(t *testing.T) {
	for name, away := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("away") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, began := 0, time.Now()
				l := newLab(&meter{extend: func(ctx context.Context, _ billing.Money) error { asked++; return away(ctx) }})
				h := l.hold(t, ordered(t))
				h.Stream(0, began)
				for out := range int64(2_751) {
					if enough, err := h.Covers(t.Context(), delivered(out), began); err != nil || !enough {
						t.Fatalf("at %d tokens: %t, %v", out, enough, err)
					}
				}
				if asked != 2 || time.Since(began) > 5*time.Second || !strings.Contains(l.log.String(), "extending a hold failed") {
					t.Errorf("asked %d times in %s, want at 751 and at 1751 tokens, each for 2s", asked, time.Since(began))
				}
			})
		})
	}
}

func TestAStreamWhoseHoldAnotherProcessEndedIsToldSo(t *testing.T) {
	h := newLab(&meter{extend: func(context.Context, billing.Money) error { return billing.ErrHoldEnded }}).hold(t, ordered(t))
	h.Stream(0, time.Now())
	_, err := h.Covers(t.Context(), delivered(1_000), time.Now())
	if !errors.Is(err, billing.ErrHoldEnded) || !fault.Is(err, fault.ServiceUnavailable) {
		t.Errorf("got %v, want a 503 with ErrHoldEnded", err)
	}
}

func TestASettlementThatAnotherProcessMadeWithholdsTheAnswer(t *testing.T) {
	a, l := &answers{}, newLab(&meter{receipt: &billing.Receipt{ID: "req_1", Reason: billing.ReasonInternal, Status: billing.Captured}})
	o := ordered(t)
	o.Claim = claim(t, a, false)
	h, end := l.hold(t, o), complete()
	end.Answer = o.Claim.Answer(nil, []byte("{}"), 9)
	r, err := h.Capture(t.Context(), billing.Usage{Output: 7}, end)
	if !errors.Is(err, billing.ErrHoldEnded) || r.ID != "req_1" || a.did[1] != "keep req_1 " {
		t.Errorf("got %+v, %v, kept %q; want the other's receipt, a 503 and no body", r, err, a.did)
	}
}

func TestALateSettlementIsRetriedUntilItIsDurable(t *testing.T) {
	tests := []struct {
		name     string
		outcome  func(c *replay.Claim) Outcome
		want     billing.Usage // that is settled in the end
		reason   string
		attempts int // that the operator pays for
	}{
		{"a stream is charged", func(*replay.Claim) Outcome { return complete() }, billing.Usage{Output: 7}, billing.ReasonComplete, 0},
		{"a whole answer that nobody gets is released", func(*replay.Claim) Outcome {
			o := complete()
			o.Channel, o.Whole = "a", &billing.Attempt{Model: "m-1"}
			return o
		}, billing.Usage{}, billing.ReasonInternal, 1},
		{"a whole answer for a repeated request is charged", func(c *replay.Claim) Outcome {
			o := complete()
			o.Answer, o.Whole = c.Answer(nil, []byte("{}"), 9), new(billing.Attempt)
			return o
		}, billing.Usage{Output: 7}, billing.ReasonComplete, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(&meter{settle: errors.New("away")})
				o := ordered(t)
				o.Claim, o.AtEnd = claim(t, &answers{}, false), []billing.Record{drop{}}
				h := l.hold(t, o)
				if r, err := h.Capture(t.Context(), billing.Usage{Output: 7}, tt.outcome(o.Claim), drop{}); !fault.Is(err, fault.ServiceUnavailable) || r != nil {
					t.Fatalf("got %+v, %v, want a 503", r, err)
				}
				if l.Late() != 1 || h.Tokens() != 7 {
					t.Errorf("%d settlements wait, of %d tokens", l.Late(), h.Tokens())
				}
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { l.Run(ctx) })
				time.Sleep(time.Second)
				l.meter.away(nil)
				time.Sleep(time.Minute)
				stop()
				running.Wait()
				last := len(l.meter.settled) - 1
				records := l.meter.records[last]
				got := records[0].(billing.Outcome)
				if l.Late() != 0 || l.meter.settled[last] != tt.want || got.Reason != tt.reason || len(got.Failed) != tt.attempts || len(records) != 2 {
					t.Errorf("got %+v with %+v, want %+v", l.meter.settled[last], records, tt.want)
				}
				if tt.attempts > 0 && (got.Failed[0].Used.Output != 7 || !got.Failed[0].Billable || got.Failed[0].Channel != "a" || got.Failed[0].Model != "m-1") {
					t.Errorf("the operator bears %+v", got.Failed)
				}
				states := l.states()
				if states[0] != Queued || states[1] != Failed || states[len(states)-1] != Settled {
					t.Errorf("got the states %q", states)
				}
			})
		})
	}
}

// Several wait, so that the next one of the locked account would come before the other's.
func TestLateSettlementsOfALockedAccountDelayThoseOfNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(&meter{})
		l.meter.lock("acme", "other")
		for _, account := range []string{"acme", "acme", "acme", "other"} {
			o := ordered(t)
			o.Payer.Account = account
			if _, err := l.hold(t, o).Capture(t.Context(), billing.Usage{Output: 7}, complete()); !fault.Is(err, fault.ServiceUnavailable) {
				t.Fatal(err)
			}
		}
		l.meter.lock("acme")
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		synctest.Wait()
		if made, left := l.meter.settlements(), l.Late(); made != 1 || left != 3 {
			t.Errorf("at once: %d settlements are made and %d wait, want that of the other account made", made, left)
		}
		l.meter.lock()
		time.Sleep(time.Minute) // a try that has begun, and the longest pause
		if made, left := l.meter.settlements(), l.Late(); made != 4 || left != 0 {
			t.Errorf("when it is unlocked: %d settlements are made and %d wait", made, left)
		}
		stop()
		running.Wait()
	})
}

func TestTheEndOfRunTriesALateSettlementOnceMore(t *testing.T) {
	l := newLab(&meter{settle: errors.New("away")})
	h := l.hold(t, ordered(t))
	if _, err := h.Capture(t.Context(), billing.Usage{Output: 7}, complete()); err == nil {
		t.Fatal("the answer was not withheld")
	}
	l.meter.away(nil)
	ended, end := context.WithCancel(t.Context())
	end()
	if l.Run(ended); l.Late() != 0 || len(l.meter.settled) != 2 {
		t.Errorf("%d settlements wait after %d tries", l.Late(), len(l.meter.settled))
	}
}

func TestASettlementThatTheMeterRefusesIsGivenUpAndFreesTheKeyOfNoCharge(t *testing.T) {
	for _, used := range []int64{0, 7} {
		synctest.Test(t, func(t *testing.T) {
			a, l := &answers{}, newLab(&meter{settle: fault.New(fault.InternalError, "no")})
			o := ordered(t)
			o.Claim = claim(t, a, false)
			if _, err := l.hold(t, o).Capture(t.Context(), billing.Usage{Output: used}, complete()); err == nil {
				t.Fatal("the answer was not withheld")
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { l.Run(ctx) })
			time.Sleep(5 * time.Minute)
			stop()
			running.Wait()
			states := l.states()
			if freed := slices.Contains(a.did, "free req_1"); l.Late() != 0 || states[len(states)-1] != GivenUp || len(states) != 12 || freed != (used == 0) {
				t.Errorf("%d tokens: %d wait, states %q, the store %q", used, l.Late(), states, a.did)
			}
		})
	}
}
