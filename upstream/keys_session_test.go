package upstream_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// inSession is a call of the nth session.
func inSession(n int) *upstream.Call {
	c := new(upstream.Call)
	binary.LittleEndian.PutUint64(c.Session[:], uint64(n)+1)
	return c
}

// keyOf is the text of the key for a call.
func keyOf(t *testing.T, r *upstream.Keys, c *upstream.Call) string {
	t.Helper()
	k, err := r.Next(c)
	if err != nil {
		t.Fatal(err)
	}
	return k.Value().Reveal()
}

func TestASessionKeepsItsKeyInWhateverOrderTheyAre(t *testing.T) {
	rings := []*upstream.Keys{ring(t, nil, "a", "b", "c", "d"), ring(t, nil, "d", "c", "b", "a"), ring(t, nil, "b", "d", "a", "c")}
	used := make(map[string]int)
	for n := range 10_000 {
		want := keyOf(t, rings[0], inSession(n))
		used[want]++
		for i, r := range rings {
			if got := keyOf(t, r, inSession(n)); got != want {
				t.Fatalf("session %d: ring %d gave %s, want %s", n, i, got, want)
			}
		}
	}
	for key, n := range used {
		if share := float64(n) / 10_000; math.Abs(share-0.25) > 0.02 {
			t.Errorf("the key %s has %.3f of the sessions, want 0.25", key, share)
		}
	}
}

func TestAKeyThatIsAddedTakesItsShareOfTheSessionsAndMovesNoOther(t *testing.T) {
	before, after := ring(t, nil, "a", "b", "c", "d"), ring(t, nil, "a", "b", "new", "c", "d")
	moved := 0
	for n := range 10_000 {
		was, is := keyOf(t, before, inSession(n)), keyOf(t, after, inSession(n))
		switch {
		case was == is:
		case is != "new":
			t.Fatalf("session %d moved from %s to %s", n, was, is)
		default:
			moved++
		}
	}
	if share := float64(moved) / 10_000; math.Abs(share-0.2) > 0.02 {
		t.Errorf("%.3f of the sessions moved, want 0.2", share)
	}
}

func TestASessionHasASecondKeyWhileTheBreakerOfItsFirstIsOpen(t *testing.T) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	r := ring(t, func() time.Time { return now }, "a", "b", "c")
	c := inSession(1)
	preferred, _ := r.Next(c)
	if preferred.Moved(c) {
		t.Error("the first key of the order is said to be another")
	}
	if !limited(preferred, 20*time.Second) {
		t.Fatal("no other key can serve")
	}
	second, _ := r.Next(c)
	if second == preferred || !second.Moved(c) {
		t.Errorf("the key whose breaker is open was used, or its stand-in not reported: %t", second.Moved(c))
	}
	if again, _ := r.Next(c); again != second {
		t.Error("the session has a third key")
	}
	now = now.Add(20 * time.Second)
	if back, _ := r.Next(c); back != preferred {
		t.Error("the session did not return")
	}
}

func TestARetryUsesTheNextKeyOfTheSession(t *testing.T) {
	r := ring(t, nil, "a", "b", "c")
	c := inSession(1)
	var order []string
	for range 3 {
		k, _ := r.Next(c)
		f := upstream.FromStatus(401)
		k.Report(f.Fault())
		if f.Key != k.ID() || !f.OtherKey {
			t.Fatalf("the failure names the key %q of %q, other key %t", f.Key, k.ID(), f.OtherKey)
		}
		order = append(order, k.Value().Reveal())
		c.RefusedKeys = append(c.RefusedKeys, f.Key)
	}
	if slices.Sort(order); strings.Join(order, "") != "abc" {
		t.Errorf("the attempts used %s, want each key once", order)
	}
	if keyOf(t, r, c) != keyOf(t, r, inSession(1)) {
		t.Error("where all were refused, the first of the order is not used")
	}
}

func TestACallThatNamesItsKeyGetsNoOther(t *testing.T) {
	r := ring(t, nil, "a", "b", "c")
	for _, want := range "abc" {
		k, _ := r.Next(new(upstream.Call))
		c := inSession(3)
		c.Key = k.ID()
		if got, err := r.Next(c); err != nil || got != k || got.Moved(c) {
			t.Errorf("%c: got %v, %v", want, got, err)
		}
		c.RefusedKeys = []string{k.ID()}
		if got, err := r.Next(c); got != nil || fault.From(err).Code != fault.NoChannel {
			t.Errorf("%c, refused for the call: got %v, %v", want, got, err)
		}
		c.RefusedKeys = nil
		if limited(k, time.Minute); want == 'c' { // the last one that is left is used
			continue
		}
		got, err := r.Next(c)
		if f, _ := upstream.FailureOf(err); got != nil || fault.From(err).Code != fault.NoChannel || !f.Unasked {
			t.Errorf("%c, at its limit: got %v, %v", want, got, err)
		}
	}
	var none *upstream.Keys
	for name, keys := range map[string]*upstream.Keys{"another ring": ring(t, nil, "d"), "no keys": none} {
		k, _ := r.Next(new(upstream.Call))
		got, err := keys.Next(&upstream.Call{Key: k.ID()})
		if f, _ := upstream.FailureOf(err); got != nil || fault.From(err).Code != fault.NoChannel || !f.Unasked {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestTheIDOfAKeyIsStable(t *testing.T) {
	k := next(ring(t, nil, "sk-one"))
	if got, want := k.ID(), "ef754bea2210"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var none *upstream.Key
	if none.ID() != "" || none.Moved(inSession(1)) {
		t.Error("no key has an id")
	}
}

// BenchmarkKeyOfSession is the choice among four keys.
func BenchmarkKeyOfSession(b *testing.B) {
	r := ring(b, nil, "a", "b", "c", "d")
	c := inSession(1)
	b.ReportAllocs()
	for b.Loop() {
		if k, err := r.Next(c); k == nil || err != nil {
			b.Fatal(err)
		}
	}
}
