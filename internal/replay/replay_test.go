package replay_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/replay"
)

// store has one key.
type store struct {
	kept      *idempotency.Answer
	owner     string
	freed     int
	lookupErr error
	hangs     bool
}

func (s *store) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	return s.kept, s.lookupErr
}

func (s *store) Claim(ctx context.Context, _ idempotency.Key, content idempotency.Content, id string) error {
	switch {
	case s.hangs:
		<-ctx.Done()
		return ctx.Err()
	case s.owner != "":
		return idempotency.ErrTaken(content, content)
	}
	s.owner = id
	return nil
}

func (s *store) Keep(_ context.Context, _ idempotency.Key, id string, a idempotency.Answer) error {
	if s.owner == id {
		s.kept = &a
	}
	return nil
}

func (s *store) Free(ctx context.Context, _ idempotency.Key, id string) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	s.freed++
	if s.owner == id {
		s.owner = ""
	}
	return nil
}

func key(name string) idempotency.Key {
	return idempotency.Key{Account: "acme", Operation: "chat", Key: name}
}

func TestClaimFindsTheFirstAnswerOrFailsOrClaims(t *testing.T) {
	first := &idempotency.Answer{Body: []byte("{}")}
	tests := []struct {
		name  string
		key   string
		store store
		code  fault.Code
		first *idempotency.Answer
	}{
		{name: "free key", key: "k"},
		{name: "answered", key: "k", store: store{kept: first}, first: first},
		{name: "running", key: "k", store: store{lookupErr: idempotency.ErrInProgress()}, code: fault.IdempotencyConflict},
		{name: "store away", key: "k", store: store{lookupErr: context.DeadlineExceeded}, code: fault.RequestTimeout},
		{name: "store failed", key: "k", store: store{lookupErr: http.ErrServerClosed}, code: fault.ServiceUnavailable},
		{name: "longest key", key: strings.Repeat("k", idempotency.MaxKey)},
		{name: "key too long", key: strings.Repeat("k", idempotency.MaxKey+1), code: fault.InvalidRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := replay.New(replay.Options{Store: &tt.store, Claims: &tt.store, Logger: slog.New(slog.DiscardHandler)})
			claim, got, err := r.Claim(t.Context(), key(tt.key), idempotency.Content{}, "req_1")
			if got != tt.first || tt.code == "" && err != nil || tt.code != "" && !fault.Is(err, tt.code) {
				t.Errorf("got %+v and %v, want %+v and %q", got, err, tt.first, tt.code)
			}
			if want := tt.first == nil && tt.code == ""; (claim != nil) != want {
				t.Errorf("got a claim: %t, want %t", claim != nil, want)
			}
		})
	}
}

func TestAClaimHasOneOwnerUntilItIsKeptOrFreed(t *testing.T) {
	s := &store{}
	r := replay.New(replay.Options{Store: s, Claims: s, Logger: slog.New(slog.DiscardHandler)})
	claim := func(id string) *replay.Claim {
		t.Helper()
		c, _, err := r.Claim(t.Context(), key("k"), idempotency.Content{}, id)
		if err != nil || c == nil {
			t.Fatalf("got %v and %v, want a claim", c, err)
		}
		return c
	}
	first, second := claim("req_1"), claim("req_2")
	if err := first.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Take(t.Context()); !fault.Is(err, fault.IdempotencyConflict) {
		t.Errorf("the second owner: got %v, want a conflict", err)
	}
	second.Free(t.Context())
	if s.owner != "req_1" {
		t.Errorf("the key belongs to %q, want req_1", s.owner)
	}
	first.Free(t.Context())
	if err := second.Take(t.Context()); err != nil {
		t.Errorf("after it was freed: %v", err)
	}
	if err := second.Keep(t.Context(), second.Answer(nil, nil, 9), billing.Receipt{ID: "req_2"}); err != nil || s.kept != nil || s.owner != "" {
		t.Errorf("a request that costs nothing keeps %+v, %v, owner %q", s.kept, err, s.owner)
	}
	if err := second.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	charged := billing.Receipt{ID: "req_2", Status: billing.Captured}
	if err := second.Keep(t.Context(), second.Answer(nil, []byte("answer"), 9), charged); err != nil || s.kept == nil || string(s.kept.Body) != "answer" || s.kept.Receipt.ID != "req_2" {
		t.Errorf("a request that was charged keeps %+v, %v", s.kept, err)
	}
}

func TestAnAnswerIsCopiedAndBounded(t *testing.T) {
	s := &store{}
	c, _, err := replay.New(replay.Options{Store: s, Claims: s}).Claim(t.Context(), key("k"), idempotency.Content{1}, "req_1")
	if err != nil {
		t.Fatal(err)
	}
	header, body := http.Header{"Content-Type": {"text/plain"}}, []byte("four")
	a := c.Answer(header, body, 4)
	header.Set("Content-Type", "text/html")
	body[0] = 'p'
	if a.Header.Get("Content-Type") != "text/plain" || string(a.Body) != "four" || a.Key != key("k") || a.Content != (idempotency.Content{1}) {
		t.Errorf("got %+v", a)
	}
	if a = c.Answer(header, body, 3); a.Body != nil {
		t.Errorf("got a body of %d bytes, want none above the limit", len(a.Body))
	}
}

func TestWhereTheStoreIsTheMeterItsHoldClaims(t *testing.T) {
	for _, byHold := range []bool{true, false} {
		s := &store{}
		c, _, err := replay.New(replay.Options{Store: s, Claims: s, ByHold: byHold}).Claim(t.Context(), key("k"), idempotency.Content{1}, "req_1")
		if err != nil {
			t.Fatal(err)
		}
		want := idempotency.Claim{Key: key("k"), Content: idempotency.Content{1}}
		if got := c.Record(); c.KeptByHold() != byHold || byHold && got != want || !byHold && got != nil {
			t.Errorf("by hold %t: the hold records %+v", byHold, got)
		}
	}
}

func TestAStoreThatHangsIsA503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{hangs: true}
		var log strings.Builder
		r := replay.New(replay.Options{Store: s, Claims: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		c, _, err := r.Claim(t.Context(), key("k"), idempotency.Content{}, "req_1")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Take(t.Context()); !fault.Is(err, fault.ServiceUnavailable) || time.Since(began) != 4*time.Second {
			t.Errorf("got %v after %s, want a 503 after 4s, with the try to free the key", err, time.Since(began))
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := c.Take(left); !fault.Is(err, fault.ClientGone) {
			t.Errorf("got %v, want that the client left", err)
		}
		if c.Free(left); !strings.Contains(log.String(), "releasing idempotency key failed") {
			t.Errorf("the log has %q", log.String())
		}
	})
}
