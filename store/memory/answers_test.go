package memory_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func TestMemoryKeepsSoManyBytesOfAllAndOfAnAccount(t *testing.T) {
	header := http.Header{"X-Long": {string(make([]byte, 394))}} // 400 bytes with its name
	for _, c := range []struct {
		name     string
		store    *memory.Answers
		accounts []string // of answers of 400 bytes and a header of 400
		kept     []bool
	}{
		{"all", &memory.Answers{MaxBytes: 1_700}, []string{"a", "b", "c"}, []bool{true, true, false}},
		{"an account", &memory.Answers{MaxAccountBytes: 900}, []string{"a", "a", "b"}, []bool{true, false, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1_000_000, 0)
			c.store.Now = func() time.Time { return now }
			add := func(i int, want bool) {
				t.Helper()
				k := idempotency.Key{Account: c.accounts[i], Operation: "chat", Key: fmt.Sprint(i, now)}
				must(t, c.store.Claim(t.Context(), k, idempotency.Content{1}, "r"))
				must(t, c.store.Keep(t.Context(), k, "r", idempotency.Answer{Header: header, Body: make([]byte, 400)}))
				a, err := c.store.Lookup(t.Context(), k, idempotency.Content{1})
				if kept := a != nil && err == nil; kept != want || !kept && !fault.Is(err, fault.IdempotencyConflict) {
					t.Errorf("answer %d: kept %v (%v), want %v", i, kept, err, want)
				}
			}
			for i, want := range c.kept {
				add(i, want)
			}
			now = now.Add(idempotency.KeptFor)
			for i, want := range c.kept { // there is room again
				add(i, want)
			}
		})
	}
}

func TestAClaimIsOneRequestsAndAnAnswerIsForgottenAfter24Hours(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	store := &memory.Answers{Now: func() time.Time { return now }}
	k := idempotency.Key{Account: "a", Operation: "chat", Key: "k"}
	const free, kept, running, other = "free", "kept", "running", "other content"
	state := func(content byte) string {
		a, err := store.Lookup(t.Context(), k, idempotency.Content{content})
		switch f := fault.From(err); {
		case err == nil && a == nil:
			return free
		case err == nil:
			return kept
		case f.Retry == fault.RetryYes:
			return running
		}
		return other
	}
	claim := func(request string) error { return store.Claim(t.Context(), k, idempotency.Content{1}, request) }
	end := func(request string) error { return store.Free(t.Context(), k, request) }
	keep := func(request string) error {
		return store.Keep(t.Context(), k, request, idempotency.Answer{Body: []byte("x")})
	}
	after := func(d time.Duration) func(string) error {
		return func(string) error { now = now.Add(d); return nil }
	}
	for _, c := range []struct {
		name    string
		do      func(request string) error
		request string
		refused bool
		want    string
	}{
		{"a claim", claim, "r1", false, running},
		{"a second claim", claim, "r2", true, running},
		{"another request's end", end, "r2", false, running},
		{"its end", end, "r1", false, free},
		{"a claim of the freed key", claim, "r2", false, running},
		{"another request's answer", keep, "r1", false, running},
		{"its answer", keep, "r2", false, kept},
		{"a claim of an answered key", claim, "r3", true, kept},
		{"an end after the answer", end, "r2", false, kept},
		{"just before a day", after(24*time.Hour - 1), "", false, kept},
		{"after a day", after(1), "", false, free},
	} {
		if err := c.do(c.request); fault.Is(err, fault.IdempotencyConflict) != c.refused || state(1) != c.want {
			t.Errorf("%s: %v, then the key is %s, want %s", c.name, err, state(1), c.want)
		}
		if c.want != free && state(2) != other {
			t.Errorf("%s: another content finds the key %s", c.name, state(2))
		}
	}
}
