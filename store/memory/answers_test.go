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
				if a, err := c.store.Open(t.Context(), k, idempotency.Content{1}, "r"); a != nil || err != nil {
					t.Fatal(a, err)
				}
				if err := c.store.Keep(t.Context(), k, "r", idempotency.Answer{Header: header, Body: make([]byte, 400)}); err != nil {
					t.Fatal(err)
				}
				a, err := c.store.Open(t.Context(), k, idempotency.Content{1}, "r2")
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

func TestAKeyIsForgottenAfter24Hours(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	store := &memory.Answers{Now: func() time.Time { return now }}
	k := idempotency.Key{Account: "a", Operation: "chat", Key: "k"}
	open := func() (*idempotency.Answer, error) { return store.Open(t.Context(), k, idempotency.Content{1}, "r") }
	if a, err := open(); a != nil || err != nil {
		t.Fatal(a, err)
	}
	if err := store.Keep(t.Context(), k, "r", idempotency.Answer{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(24*time.Hour - 1)
	if a, err := open(); a == nil || err != nil {
		t.Errorf("just before: %v, %v", a, err)
	}
	now = now.Add(1)
	if a, err := open(); a != nil || err != nil {
		t.Errorf("after: %v, %v", a, err)
	}
}
