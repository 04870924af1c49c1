package idempotency_test

import (
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
)

func TestAKeyIsForgottenAfter24Hours(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	store := &idempotency.Memory{Now: func() time.Time { return now }}
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
