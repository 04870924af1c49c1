package storetest

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// writeTests are the rules of a ledger that is in a database.
var writeTests = map[string]func(dbTest){
	"ACallerThatHasLeftGetsNoHold": func(b dbTest) {
		b.account("acme", 10)
		ctx, cancel := context.WithCancel(b.t.Context())
		cancel()
		for i := range 20 {
			if h, err := b.Reserve(ctx, b.charge(id(i), 1)); err == nil {
				b.settle(h, 0) // the committer was faster
			} else if !fault.Is(err, fault.ClientGone) {
				b.t.Errorf("got %v", err)
			}
		}
		b.awaitUndone()
		b.wantBalance(10, 0)
	},
	"AClosedStoreIsAway": func(b dbTest) {
		b.account("acme", 10)
		h := b.reserve("r1", 4)
		b.ok(b.Close())
		_, err := b.Reserve(b.t.Context(), b.charge("r2", 1))
		b.wantAway(err)
		_, err = b.Settle(b.t.Context(), h, images(1))
		b.wantAway(err)
		b.wantAway(b.Extend(b.t.Context(), h, images(1), 0))
		_, err = b.Balance(b.t.Context(), "acme")
		b.wantAway(err)
		_, err = b.Usage(b.t.Context(), billing.Query{})
		b.wantAway(err)
		b.wantAway(b.Ping(b.t.Context()))
		responses := b.Responses()
		b.wantAway(responses.Put(b.t.Context(), responseOf("acme", "resp_1")))
		_, err = responses.Get(b.t.Context(), "acme", "resp_1")
		b.wantAway(err)
		_, err = responses.Has(b.t.Context(), "acme", "resp_1")
		b.wantAway(err)
		_, err = responses.Delete(b.t.Context(), "acme", "resp_1")
		b.wantAway(err)
		b.faults.Cut() // there is nothing left to verify
	},
	"AHoldThatTheDatabaseRefusesHarmsNoOtherInItsBatch": func(b dbTest) {
		if !b.place.Shared {
			b.t.Skip("SQLite takes any text")
		}
		b.account("acme", 100)
		b.inParallel(40, func(i int) error {
			charge := b.charge(id(i), 1)
			if i%4 == 0 {
				charge.Model = []string{"no\x00text", "no\xfftext"}[i/4%2]
			}
			_, err := b.Reserve(b.t.Context(), charge)
			if (err != nil) != (i%4 == 0) || (err != nil && !fault.Is(err, fault.InvalidRequest)) {
				b.t.Errorf("request %d: %v", i, err)
			}
			return nil
		})
		b.wantOpen(30)
		b.wantBalance(100, 30)
	},
	// A credit whose caller leaves while the database is at it.
	"ACreditWhoseCallerLeftIsNotSaidToBeRefused": func(b dbTest) {
		b.account("acme", 10)
		err := b.leaveWaiting(func(ctx context.Context) error { return b.Credit(ctx, "acme", billing.One, "invoice 1") })
		if !fault.Is(err, fault.ServiceUnavailable) || !strings.Contains(err.Error(), "not known") {
			b.t.Errorf("got %v", err)
		}
		b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 1"))
		b.wantBalance(11, 0)
	},
	"ALedgerThatCountedBeforeIsSoundWhenItIsPrepaid": func(b dbTest) {
		b = b.counting()
		b.settle(b.reserve("r1", 3), 3)
		b.reserve("r2", 3)
		b = b.crash()
		b.wantBalance(0, 0)
		b.ok(b.Credit(b.t.Context(), "acme", 2*billing.One, "invoice 1"))
		b.settle(b.reserve("r3", 2), 2)
		b.wantBalance(0, 0)
		b.ok(b.Verify(b.t.Context()))
	},
}

// leaveWaiting has a caller leave while the database is at what it does, and returns what it
// is told.
func (b dbTest) leaveWaiting(do func(context.Context) error) error {
	gate := make(chan struct{})
	defer close(gate)
	b.faults.Block(gate)
	ctx, cancel := context.WithCancel(b.t.Context())
	told := make(chan error)
	go func() { told <- do(ctx) }()
	b.faults.Blocked()
	cancel()
	return <-told
}

// awaitUndone returns when what was in the queue is done, and undone where nobody waits for it.
func (b dbTest) awaitUndone() {
	b.t.Helper()
	for range 2 {
		b.settle(b.reserve(rand.Text(), 1), 0)
	}
}

// wantAway fails unless err says when to come back.
func (b dbTest) wantAway(err error) {
	b.t.Helper()
	if f := fault.From(err); f == nil || f.Code != fault.ServiceUnavailable || f.HTTPStatus() != 503 || f.RetryAfter <= 0 {
		b.t.Errorf("got %v, want 503 and when to come back", err)
	}
}

// scenario is the life of one account, in operations that may be repeated
// after they failed.
type scenario struct {
	dbTest
	name   string // of the account, and in front of every id
	holds  map[string]billing.Hold
	video  video.Task
	failed int // operations that were repeated
}

// scenarioStep is one operation of a scenario.
type scenarioStep struct {
	name string
	do   func(s *scenario) error
}

// scenarioSteps leave 10 units on the account, and 2 in the budget of its key.
var scenarioSteps = []scenarioStep{
	{"create", func(s *scenario) error { return s.CreateAccount(s.t.Context(), s.name, 10*billing.One) }},
	{"credit", func(s *scenario) error { return s.Credit(s.t.Context(), s.name, 5*billing.One, "invoice") }},
	{"bound", func(s *scenario) error { return s.SetBudget(s.t.Context(), s.name, "k1", new(7*billing.One)) }},
	{"reserve", func(s *scenario) error { return s.hold("captured", 1) }},
	{"reserve another", func(s *scenario) error { return s.hold("released", 2) }},
	{"extend", func(s *scenario) error {
		return s.Extend(s.t.Context(), s.holds["captured"], images(1), billing.One)
	}},
	{"settle", func(s *scenario) error { return s.end("captured", images(3)) }},
	{"release", func(s *scenario) error { return s.end("released", billing.Usage{}) }},
	{"submit a video", func(s *scenario) error {
		c := s.videoCharge(s.name, 2)
		n := c.With[0].(video.CreateTask)
		c.Account, n.Task.Account = s.name, s.name
		c.With[0] = n
		h, err := s.Reserve(s.t.Context(), c)
		s.holds["video"], s.video = h, n.Task
		return err
	}},
	{"accept the video", func(s *scenario) error {
		took := accepted(s.video, "up-"+s.name, startTime)
		_, err := s.Change(s.t.Context(), video.Step{Task: took}, nil)
		if err == nil {
			s.video = took
		}
		return err
	}},
	{"lease videos", func(s *scenario) error {
		_, err := s.Ledger.Claim(s.t.Context(), "a", startTime.Add(time.Minute), 10)
		return err
	}},
	{"settle the video", func(s *scenario) error {
		end := endStep(s.video, video.Succeeded, startTime)
		_, err := s.Settle(s.t.Context(), s.holds["video"], images(2), end)
		if err == nil {
			s.video = end.Task
		}
		return err
	}},
}

func (s *scenario) key(request string) idempotency.Key {
	return idempotency.Key{Account: s.name, Operation: "image", Key: request}
}

func (s *scenario) hold(request string, n int64) (err error) {
	c := s.charge(s.name+request, n)
	c.Account = s.name
	c.With = []billing.Record{idempotency.Claim{Key: s.key(request), Content: idempotency.Content{1}}}
	s.holds[request], err = s.Reserve(s.t.Context(), c)
	return err
}

func (s *scenario) end(request string, u billing.Usage) error {
	stored := responseOf(s.name, "resp_of_"+request)
	_, err := s.Settle(s.t.Context(), s.holds[request], u, billing.Outcome{Reason: billing.ReasonComplete}, stored,
		idempotency.Record{Key: s.key(request), Content: idempotency.Content{1}, Header: http.Header{"X-A": {"b"}}, Body: []byte("body")})
	found, missing := s.Responses().Get(s.t.Context(), s.name, "msg_of_"+stored.ID)
	if s.ok(missing); err == nil && found == nil {
		s.t.Fatalf("%s: %s is settled and not stored", s.name, request)
	}
	return err
}

// play does every step, each again until it succeeds, and checks in between that
// what failed has changed nothing and what did not has changed it once.
func (s *scenario) play() {
	s.t.Helper()
	for _, a := range scenarioSteps {
		for tries := 0; ; tries++ {
			err := a.do(s)
			if err == nil {
				break
			}
			s.failed++
			if tries == 3 || !(fault.Is(err, fault.ServiceUnavailable) || fault.Is(err, fault.InternalError)) {
				s.t.Fatalf("%s, %s: %v", s.name, a.name, err)
			}
		}
	}
}

// check compares what the scenario left with what it has to leave.
func (s *scenario) check() {
	s.t.Helper()
	ctx := context.Background()
	got, err := s.Balance(ctx, s.name)
	s.ok(err)
	s.same("the balance of "+s.name, billing.Balance{Account: s.name, Posted: 10 * billing.One}, got)
	r, err := s.Receipt(ctx, s.name, s.name+"captured")
	if err != nil || r.Charge != 3*billing.One || r.Hold != 2*billing.One || r.Reason != billing.ReasonComplete {
		s.t.Fatalf("%s: %+v, %v", s.name, r, err)
	}
	s.checkAnswers(r)
	s.checkBudget()
	s.taskTest().want(s.video)
	if made, err := s.Deliveries(ctx, s.name, 10); err != nil || len(made) != 1 {
		s.t.Fatalf("%s: the deliveries are %+v, %v", s.name, made, err)
	}
}

// checkAnswers looks a key up that keeps its answer, and one that was freed.
func (s *scenario) checkAnswers(r billing.Receipt) {
	s.t.Helper()
	got, err := s.Lookup(s.t.Context(), s.key("captured"), idempotency.Content{1})
	s.ok(err)
	s.same("the answer of "+s.name, &idempotency.Answer{Header: http.Header{"X-A": {"b"}}, Body: []byte("body"), Receipt: r}, got)
	if got, err = s.Lookup(s.t.Context(), s.key("released"), idempotency.Content{2}); err != nil || got != nil {
		s.t.Fatalf("%s: a freed key gave %+v, %v", s.name, got, err)
	}
}

// checkBudget finds 2 units left to the key.
func (s *scenario) checkBudget() {
	s.t.Helper()
	s.ok(s.hold("probe", 0))
	if h := s.holds["probe"]; h.Available != 2*billing.One {
		s.t.Fatalf("%s: %s are available to the key", s.name, h.Available)
	}
	s.ok(s.end("probe", billing.Usage{}))
}

// errNotSent is how a driver says that a statement never left. SQLite's never does.
func (b dbTest) errNotSent() error {
	if b.place.Shared {
		return driver.ErrBadConn
	}
	return io.ErrUnexpectedEOF
}

// faultTests are the rules of a database that fails (docs/reference/faults.md, Crashes and money).
var faultTests = map[string]func(dbTest){
	// The scenario is played once for each write of it that can fail, in
	// every way in which one can, until the scenario has no further write.
	"WhicheverWriteFailsNothingIsLostAndNothingIsDoubled": func(b dbTest) {
		ways := []struct {
			name  string
			after bool
			err   error
		}{
			{"gone", false, b.errNotSent()},
			{"unanswered", true, io.ErrUnexpectedEOF},
			{"refused", false, sqlhook.ErrFault},
			{"done-but-refused", true, sqlhook.ErrFault},
		}
		for _, way := range ways {
			repeated, n := 0, 1
			for ; ; n++ {
				s := &scenario{dbTest: b, name: fmt.Sprintf("%s-%d-", way.name, n), holds: map[string]billing.Hold{}}
				b.faults.FailAt(n, way.after, way.err)
				s.play()
				steps := b.faults.Steps()
				b.faults.FailAt(0, false, nil)
				s.check()
				if n%8 == 0 || steps < n { // it reads every account that there is
					b.ok(b.Verify(b.t.Context()))
				}
				repeated += s.failed
				if steps < n {
					break
				}
			}
			if n < 2*len(scenarioSteps) {
				b.t.Errorf("%s: the scenario has only %d steps", way.name, n)
			}
			b.t.Logf("%s: each of %d steps failed, %d operations were repeated", way.name, n-1, repeated)
		}
	},
	// There is no caller who would try again: what the next
	// transaction finds has to be put right by the committer alone.
	"ACommitThatLostItsAnswerIsFoundAfterItsCallerHasLeft": func(b dbTest) {
		b.account("acme", 100)
		open := b.reserve("open", 3)
		for i, e := range commitFaults {
			b.faults.FailCommit(e.applied, e.err)
			err := b.leaveWaiting(func(ctx context.Context) error {
				_, err := b.Reserve(ctx, b.lasting(id(i), 4))
				return err
			})
			if !fault.Is(err, fault.ClientGone) {
				b.t.Errorf("%s: got %v", e.name, err)
			}
			b.awaitUndone()
			b.wantBalance(100, 3)
			b.wantOpen(1)
		}
		b.settle(open, 2)
		b.wantBalance(98, 0)
	},
	"TenThousandOpenHoldsEndWithTheNextStart": func(b dbTest) {
		const callers = 500
		holds := int64(longtest.Count(10_000, 2_000))
		b.account("acme", holds)
		b.inParallel(callers, func(caller int) error {
			for i := caller; i < int(holds); i += callers {
				h, err := b.Reserve(b.t.Context(), b.charge(id(i), 1))
				if err == nil && i%2 == 0 {
					err = b.Extend(b.t.Context(), h, images(1), 0)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		b.wantBalance(billing.Money(holds), billing.Money(holds))
		b.kill()
		start := time.Now()
		b = b.open(store.Options{})
		b.t.Logf("a start that ends %d holds took %s", holds, time.Since(start))
		b.wantOpen(0)
		b.wantBalance(billing.Money(holds/2), 0)
		rows, err := b.Usage(b.t.Context(), billing.Query{})
		if err != nil || len(rows) != 1 || rows[0].Charge != billing.Money(holds/2)*billing.One || rows[0].Usage.Images != holds/2 {
			b.t.Errorf("%+v, %v", rows, err)
		}
	},
	"ADatabaseThatHangsIsServiceUnavailableAndNothingElse": func(b dbTest) {
		b.account("acme", 1_000)
		b = b.withShortWait()
		h := b.reserveRetrying("running", 2)
		gate := make(chan struct{})
		b.faults.Block(gate)
		var all sync.WaitGroup
		for i := range 600 { // more than one batch
			all.Go(func() {
				_, err := b.Reserve(b.t.Context(), b.lasting(id(i), 1))
				b.wantAway(err)
			})
		}
		for name, ask := range b.changes(h) {
			all.Go(func() { b.wantAway(fmt.Errorf("%s: %w", name, ask())) })
		}
		all.Wait()
		close(gate)
		b.settle(h, 2)
		b.settle(b.reserveRetrying("last", 1), 0) // comes after all that was given back
		b.settle(b.reserveRetrying("very last", 1), 0)
		b.wantBalance(998, 0)
		b.wantOpen(0)
	},
	"NoRequestBeginsWhileTheDatabaseHangs": func(b dbTest) {
		b.account("acme", 1_000)
		b = b.withShortWait()
		h := b.reserveRetrying("running", 2)
		gate := make(chan struct{})
		b.faults.Block(gate)
		settled := make(chan error)
		go func() {
			_, err := b.Settle(b.t.Context(), h, images(1))
			settled <- err
		}()
		b.faults.Blocked()
		var err error
		for i := 0; err == nil; i++ { // until the transaction has taken longer than a request waits
			if _, err = b.Reserve(b.t.Context(), b.charge(id(i), 0)); err == nil {
				_, err = b.Balance(b.t.Context(), "acme")
			}
		}
		b.wantAway(err)
		close(gate)
		b.ok(<-settled)
		b.reserveRetrying("after", 1)
	},
}

// commitFaults are the ways in which a COMMIT can end that has no answer.
var commitFaults = []struct {
	name    string
	applied bool
	err     error
}{
	{"cut before it arrived", false, io.ErrUnexpectedEOF},
	{"cut after it was done", true, io.ErrUnexpectedEOF},
	{"not done, for a reason that says nothing", false, sqlhook.ErrFault},
	{"done, with an error that says nothing", true, sqlhook.ErrFault},
}

// withShortWait opens the database again with a short WaitTimeout.
func (b dbTest) withShortWait() dbTest {
	b.t.Helper()
	b.kill()
	return b.open(store.Options{WaitTimeout: time.Second})
}

// reserveRetrying makes a hold, however often the wait for it is too short. What it
// did not wait for is given back.
func (b dbTest) reserveRetrying(name string, n int64) billing.Hold {
	b.t.Helper()
	for try := 0; ; try++ {
		h, err := b.Reserve(b.t.Context(), b.charge(fmt.Sprint(name, " ", try), n))
		if !fault.Is(err, fault.ServiceUnavailable) {
			b.ok(err)
			return h
		}
	}
}

// changes are the other operations, which nobody has waited for in the end and
// none of which moves money by itself.
func (b dbTest) changes(h billing.Hold) map[string]func() error {
	ctx := b.t.Context()
	return map[string]func() error{
		"Extend":        func() error { return b.Extend(ctx, h, images(1), 0) },
		"CreateAccount": func() error { return b.CreateAccount(ctx, "other", 0) },
		"SetBudget":     func() error { return b.SetBudget(ctx, "acme", "k2", new(billing.One)) },
		"Settle": func() error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			_, err := b.Settle(ctx, h, images(2))
			return err
		},
	}
}
