package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// ringed answers with the keys of a ring in turn, as a driver does.
type ringed struct {
	keys       *upstream.Keys
	retryAfter time.Duration
	used       []string
}

func (k *ringed) Do(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
	key, err := k.keys.Next(c)
	if err != nil {
		return nil, err
	}
	k.used = append(k.used, key.ID())
	reply := says(strings.NewReader("an answer"))
	reply.Key, reply.Used, reply.RetryAfter = key.ID(), key, k.retryAfter
	return reply, nil
}

func (*ringed) Supports(upstream.Op, string) bool { return true }

func TestAnErrorInA200CountsAgainstTheKeyAndShowsNone(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		asked  int // attempts
		wait   time.Duration
	}{
		{"the caller's", 400, 1, 0},
		{"a rate limit", 429, 2, 7 * time.Second},
		{"a refused key", 401, 2, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			ring, err := upstream.NewKeys([]secret.String{secret.New("sk-first-key"), secret.New("sk-second-key")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			up := &ringed{keys: ring, retryAfter: 7 * time.Second}
			asks := asking{Router: newRouter(t, router.Options{}, every("a", up, 0)), read: func(context.Context, *upstream.Reply) error {
				e := upstream.FromStatus(test.status).Fault()
				e.Message = "the key sk-first-key and the key sk-second-key"
				return e
			}}
			_, err = asks.Do(t.Context(), call(t, `{"model":"m"}`))
			var e *fault.Error
			if !errors.As(err, &e) || strings.Contains(e.Message, "-key ") || strings.HasSuffix(e.Message, "-key") {
				t.Errorf("%v", err)
			}
			if len(up.used) != test.asked || test.asked > 1 && up.used[0] == up.used[1] {
				t.Errorf("keys %q were used, want %d", up.used, test.asked)
			}
			if e.RetryAfter != test.wait {
				t.Errorf("to wait for %s, want %s", e.RetryAfter, test.wait)
			}
		})
	}
}
