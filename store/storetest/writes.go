package storetest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// script is the life of one account, told in operations that may be repeated
// after they failed.
type script struct {
	bench
	name   string // of the account, and in front of every id
	holds  map[string]billing.Hold
	failed int // operations that were repeated
}

// act is one operation of a script.
type act struct {
	name string
	do   func(s *script) error
}

// acts leave 12 units on the account, and 4 in the budget of its key.
var acts = []act{
	{"create", func(s *script) error { return s.CreateAccount(s.t.Context(), s.name, 10*billing.One) }},
	{"credit", func(s *script) error { return s.Credit(s.t.Context(), s.name, 5*billing.One, "invoice") }},
	{"bound", func(s *script) error { return s.SetBudget(s.t.Context(), s.name, "k1", new(7*billing.One)) }},
	{"claim", func(s *script) error { return s.claim("captured") }},
	{"claim another", func(s *script) error { return s.claim("released") }},
	{"reserve", func(s *script) error { return s.hold("captured", 1) }},
	{"reserve another", func(s *script) error { return s.hold("released", 2) }},
	{"extend", func(s *script) error {
		return s.Extend(s.t.Context(), s.holds["captured"], images(1), billing.One)
	}},
	{"settle", func(s *script) error { return s.end("captured", images(3)) }},
	{"release", func(s *script) error { return s.end("released", billing.Usage{}) }},
}

func (s *script) key(request string) idempotency.Key {
	return idempotency.Key{Account: s.name, Operation: "image", Key: request}
}

func (s *script) claim(request string) error {
	_, err := s.Open(s.t.Context(), s.key(request), idempotency.Content{1}, s.name+request)
	return err
}

func (s *script) hold(request string, n int64) (err error) {
	c := s.charge(s.name+request, n)
	c.Account = s.name
	s.holds[request], err = s.Reserve(s.t.Context(), c)
	return err
}

func (s *script) end(request string, u billing.Usage) error {
	_, err := s.Settle(s.t.Context(), s.holds[request], u, billing.Outcome{Reason: billing.ReasonComplete},
		idempotency.Record{Key: s.key(request), Content: idempotency.Content{1}, Header: http.Header{"X-A": {"b"}}, Body: []byte("body")})
	return err
}

// play does every act, each again until it succeeds, and checks in between that
// what failed has changed nothing and what did not has changed it once.
func (s *script) play() {
	s.t.Helper()
	for _, a := range acts {
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

// check compares what the script left with what it has to leave.
func (s *script) check() {
	s.t.Helper()
	ctx := context.Background()
	got, err := s.Balance(ctx, s.name)
	s.ok(err)
	if diff := cmp.Diff(billing.Balance{Account: s.name, Posted: 12 * billing.One}, got); diff != "" {
		s.t.Fatalf("%s (-want +got):\n%s", s.name, diff)
	}
	r, err := s.Receipt(ctx, s.name, s.name+"captured")
	if err != nil || r.Charge != 3*billing.One || r.Hold != 2*billing.One || r.Reason != billing.ReasonComplete {
		s.t.Fatalf("%s: %+v, %v", s.name, r, err)
	}
	s.checkAnswers(r)
	s.checkBudget()
}

// checkAnswers looks a key up that keeps its answer, and one that was freed.
func (s *script) checkAnswers(r billing.Receipt) {
	s.t.Helper()
	got, err := s.Open(s.t.Context(), s.key("captured"), idempotency.Content{1}, s.name+"later")
	s.ok(err)
	if diff := cmp.Diff(&idempotency.Answer{Header: http.Header{"X-A": {"b"}}, Body: []byte("body"), Receipt: r}, got); diff != "" {
		s.t.Fatalf("%s: the answer (-want +got):\n%s", s.name, diff)
	}
	if got, err = s.Open(s.t.Context(), s.key("released"), idempotency.Content{2}, s.name+"later"); err != nil || got != nil {
		s.t.Fatalf("%s: a freed key gave %+v, %v", s.name, got, err)
	}
}

// checkBudget finds 4 units left to the key.
func (s *script) checkBudget() {
	s.t.Helper()
	s.ok(s.hold("probe", 0))
	if h := s.holds["probe"]; h.Available != 4*billing.One {
		s.t.Fatalf("%s: %s are available to the key", s.name, h.Available)
	}
	s.ok(s.end("probe", billing.Usage{}))
}

// gone is how a driver tells that a statement never left. SQLite's never does.
func (b bench) gone() error {
	if b.place.Shared {
		return driver.ErrBadConn
	}
	return io.ErrUnexpectedEOF
}

// everyWriteFails plays the script once for each step of it that can fail, in
// every way in which one can, until the script has no further step.
func everyWriteFails(b bench) {
	ways := []struct {
		name  string
		after bool
		err   error
	}{
		{"gone", false, b.gone()},
		{"unanswered", true, io.ErrUnexpectedEOF},
		{"refused", false, ErrFault},
		{"done-but-refused", true, ErrFault},
	}
	for _, way := range ways {
		repeated, n := 0, 1
		for ; ; n++ {
			s := &script{bench: b, name: fmt.Sprintf("%s-%d-", way.name, n), holds: map[string]billing.Hold{}}
			b.cut.FailAt(n, way.after, way.err)
			s.play()
			steps := b.cut.Steps()
			b.cut.FailAt(0, false, nil)
			s.check()
			if n%8 == 0 || steps < n { // it reads every account that there is
				b.ok(b.Verify(b.t.Context()))
			}
			repeated += s.failed
			if steps < n {
				break
			}
		}
		if n < 2*len(acts) {
			b.t.Errorf("%s: the script has only %d steps", way.name, n)
		}
		b.t.Logf("%s: each of %d steps failed, %d operations were repeated", way.name, n-1, repeated)
	}
}
