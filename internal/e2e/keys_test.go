package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// notice is within which a change to a key takes effect in a running server.
const notice = 2 * time.Second

func TestAChangeToAKeyTakesEffectInEveryProcessWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	config := settings{store: store, vendor: v.url, credit: "25"}.text()
	nodes := several(t, 2, config)
	beside := newPlace(t, config) // a command here finds no server and works on the store
	c := newCrowd(t, 10)
	for _, way := range []struct {
		name string
		do   func(args ...string) output
	}{{"another process", nodes[0].command}, {"the command on the store", func(args ...string) output { return beside.command(t, args...) }}} {
		// A command is repeated where a disk that stalls keeps the database from
		// answering, as clients repeat their requests.
		do := func(args ...string) (r output) {
			for tries := 0; tries < 10; tries++ {
				if r = way.do(args...); r.ok || !strings.Contains(r.stderr, "database is away") {
					break
				}
				c.pause()
			}
			return r
		}
		var made struct{ ID, Key string }
		if r := do("key", "create", "--account", "acme", "--json"); json.Unmarshal([]byte(r.stdout), &made) != nil {
			t.Fatalf("key create: %s", r.stderr)
		}
		for _, change := range []struct {
			verb string
			want int
		}{{"", http.StatusOK}, {"disable", http.StatusForbidden}, {"enable", http.StatusOK}, {"delete", http.StatusUnauthorized}} {
			if change.verb != "" {
				if r := do("key", change.verb, made.ID); !r.ok {
					t.Fatalf("key %s: %s", change.verb, r.stderr)
				}
			}
			took := c.noticed(t, nodes[1], made.Key, change.want)
			t.Logf("by %s, %q took effect after %s", way.name, change.verb, took)
			if took > notice {
				t.Errorf("by %s, %q was not noticed by a call that began %s later", way.name, change.verb, took)
			}
		}
	}
}

// noticed is how long from now the last call began that got another status than
// the wanted one.
func (c *crowd) noticed(t testing.TB, n *node, key string, want int) (took time.Duration) {
	t.Helper()
	began := time.Now()
	until(t, patience, "the change", func() bool {
		start := time.Since(began)
		if c.chat(n, request{text: "hello", max: 1, key: key}).status == want {
			return true
		}
		took = start.Round(time.Millisecond)
		return false
	})
	return took
}
