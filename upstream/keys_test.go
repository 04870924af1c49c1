package upstream_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

func ring(t testing.TB, now func() time.Time, keys ...string) *upstream.Keys {
	t.Helper()
	secrets := make([]secret.String, len(keys))
	for i, k := range keys {
		secrets[i] = secret.New(k)
	}
	r, err := upstream.NewKeys(secrets, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next is the key for a call without a session.
func next(r *upstream.Keys) *upstream.Key {
	k, _ := r.Next(new(upstream.Call)) // which fails only for a call that names a key
	return k
}

// turns are the next n keys; each is told how it did.
func turns(r *upstream.Keys, n int, tell func(*upstream.Key)) string {
	var b strings.Builder
	for range n {
		k := next(r)
		b.WriteString(k.Value().Reveal())
		tell(k)
	}
	return b.String()
}

func silent(*upstream.Key) {}

// refusedKey is the error of a call whose key the vendor refused for certain.
var refusedKey = (&upstream.Failure{Status: 401, Sent: true, Fatal: true}).Fault()

// limited reports to the key that it is at its limit, and whether another can serve.
func limited(k *upstream.Key, wait time.Duration) (other bool) {
	f := upstream.FromStatus(429)
	e := f.Fault()
	e.RetryAfter = wait
	k.Report(new(upstream.Call), e)
	return f.OtherKey
}

// refuses is a vendor that refuses the named keys.
func refuses(bad string) func(*upstream.Key) {
	return func(k *upstream.Key) {
		if strings.Contains(bad, k.Value().Reveal()) {
			k.Report(new(upstream.Call), refusedKey)
		} else {
			k.Report(new(upstream.Call), nil)
		}
	}
}

func TestKeysAreUsedInTurn(t *testing.T) {
	if got := turns(ring(t, nil, "a", "b", "c"), 7, silent); got != "abcabca" {
		t.Error(got)
	}
	var none *upstream.Keys
	if next(ring(t, nil)) != nil || next(none) != nil || none.Mask("text") != "text" {
		t.Error("no keys gave a key")
	}
}

func TestAKeyThatIsRefusedThreeTimesInARowIsLeftAlone(t *testing.T) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	r := ring(t, func() time.Time { return now }, "a", "b")
	if got := turns(r, 10, refuses("a")); got != "ababab"+"bbbb" {
		t.Error(got)
	}
	for _, open := range []time.Duration{1, 2, 4} {
		now = now.Add(open*time.Second - 1)
		if got := turns(r, 4, refuses("a")); got != "bbbb" {
			t.Errorf("before %d s: %s", open, got)
		}
		now = now.Add(1)
		if got := turns(r, 6, refuses("a")); strings.Count(got, "a") != 1 {
			t.Errorf("after %d s: %s", open, got)
		}
	}
	now = now.Add(time.Minute)
	if got := turns(r, 6, refuses("")); strings.Count(got, "a") < 2 {
		t.Errorf("a key that works again: %s", got)
	}
}

// A proxy does not know the vendor's keys, and one that may not use a model is as good as
// before for the others.
func TestWhatSaysNothingOfAKeyLeavesItInUse(t *testing.T) {
	for name, f := range map[string]*upstream.Failure{
		"a proxy's refusal": upstream.FromStatus(407), "another address": upstream.FromStatus(421), "an old protocol": upstream.FromStatus(426),
		"no such model": {Status: 403, Sent: true, NoModel: true}, "a limit of one request's size": {Status: 429, Sent: true, Refused: true, Oversized: true},
		"the caller's fault": upstream.FromStatus(400), "the vendor's fault": upstream.FromStatus(500), "no connection": {},
	} {
		got := turns(ring(t, nil, "a", "b"), 8, func(k *upstream.Key) { k.Report(new(upstream.Call), f.Fault()) })
		if got != "abababab" || f.OtherKey {
			t.Errorf("%s: keys %s, another one can serve: %t", name, got, f.OtherKey)
		}
	}
}

// attempts makes a call of a session as a router does: with another key where the vendor
// refused the first. They are the keys that were asked.
func attempts(r *upstream.Keys, session int, vendor func(key string) *upstream.Failure) (keys string) {
	c := inSession(session)
	for {
		k, _ := r.Next(c)
		keys += k.Value().Reveal()
		f := vendor(k.Value().Reveal())
		if f == nil {
			k.Report(c, nil)
			return keys
		}
		if k.Report(c, f.Fault()); !f.OtherKey {
			return keys
		}
		c.RefusedKeys = append(c.RefusedKeys, f.Key)
	}
}

func TestRefusalsOfOneCallersRequestsLeaveTheKeysToOthers(t *testing.T) {
	always := func(status int) func(string) *upstream.Failure {
		return func(string) *upstream.Failure { return upstream.FromStatus(status) }
	}
	for _, row := range []struct {
		name   string
		vendor func(key string) *upstream.Failure
		calls  int
		asked  int // keys by each call
		inUse  int // keys that sessions still have
	}{
		{"a 403 for what is asked", always(403), 12, 2, 3},
		{"a 402 for what is asked", always(402), 12, 2, 3},
		{"one 429", always(429), 1, 2, 2},
		{"a request above the limit by its size", func(string) *upstream.Failure {
			return &upstream.Failure{Status: 429, Sent: true, Refused: true, Oversized: true}
		}, 12, 1, 3},
	} {
		now := time.Unix(0, 0)
		r := ring(t, func() time.Time { return now }, "a", "b", "c")
		for range row.calls {
			if got := attempts(r, 1, row.vendor); len(got) != row.asked {
				t.Errorf("%s: one call asked the keys %q, want %d", row.name, got, row.asked)
			}
		}
		used := make(map[string]bool)
		for n := range 100 {
			used[keyOf(t, r, inSession(n))] = true
		}
		if len(used) != row.inUse {
			t.Errorf("%s: other sessions have %d keys, want %d", row.name, len(used), row.inUse)
		}
	}
}

// A vendor may say no more of a dead key than a bare 401. Another key then serves the call.
func TestAnAmbiguousRefusalCountsIfAnotherKeyServesTheCall(t *testing.T) {
	now := time.Unix(0, 0)
	r := ring(t, func() time.Time { return now }, "a", "b")
	session := 0
	for keyOf(t, r, inSession(session)) != "a" {
		session++
	}
	var got []string
	for range 4 {
		got = append(got, attempts(r, session, func(key string) *upstream.Failure {
			if key == "a" {
				return upstream.FromStatus(401)
			}
			return nil
		}))
	}
	if want := []string{"ab", "ab", "ab", "b"}; !slices.Equal(got, want) {
		t.Errorf("the calls asked the keys %q, want %q", got, want)
	}
}

func TestTheLastUsableKeyIsAlwaysUsed(t *testing.T) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	r := ring(t, func() time.Time { return now }, "a", "b")
	got := turns(r, 40, refuses("ab"))
	if last := got[30:]; last != strings.Repeat(last[:1], 10) {
		t.Errorf("keys that are all refused: %s", got)
	}
	lone := ring(t, nil, "k")
	if got := turns(lone, 9, refuses("k")); got != "kkkkkkkkk" {
		t.Error(got)
	}
}

func TestNoKeyIsEverInAText(t *testing.T) {
	r := ring(t, nil, "sk-one", "sk-two")
	if got := r.Mask("sk-two and sk-one, sk-one"); got != "[secret] and [secret], [secret]" {
		t.Error(got)
	}
	if text := fmt.Sprintf("%v %+v %#v %v", r, next(r), *next(r), next(r).Value()); strings.Contains(text, "sk-") {
		t.Error(text)
	}
	for _, bad := range []string{"", "sk-a b", "sk-a\r\nX: y", "sk-é"} {
		_, err := upstream.NewKeys([]secret.String{secret.New("sk-ok"), secret.New(bad)}, nil)
		if err == nil || !strings.Contains(err.Error(), "key 2") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("key %q: %v", bad, err)
		}
	}
}

func TestAKeyAtItsLimitHasACooldownIfAnotherIsUsable(t *testing.T) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	r := ring(t, func() time.Time { return now }, "a", "b")
	for name, row := range map[string]struct{ said, wait time.Duration }{
		"as told": {20 * time.Second, 20 * time.Second}, "nothing said": {0, time.Second}, "far too long": {time.Hour, time.Minute},
	} {
		k := next(r)
		for k.Value().Reveal() != "a" {
			k = next(r)
		}
		if !limited(k, row.said) {
			t.Errorf("%s: the other key cannot serve", name)
		}
		if got := turns(r, 4, silent); got != "bbbb" {
			t.Errorf("%s: %s", name, got)
		}
		if limited(next(r), time.Minute) {
			t.Errorf("%s: a key whose breaker is open was said to serve", name)
		}
		now = now.Add(row.wait - 1)
		if got := turns(r, 4, silent); got != "bbbb" {
			t.Errorf("%s, just before the end: %s", name, got)
		}
		now = now.Add(1)
		if got := turns(r, 4, silent); strings.Count(got, "a") != 2 {
			t.Errorf("%s, after the end: %s", name, got)
		}
	}
	if limited(next(ring(t, nil, "k")), time.Minute) {
		t.Error("the only key has another")
	}
}

func TestOneCallAtATimeProbesAKey(t *testing.T) {
	for range 300 {
		now := time.Unix(0, 0)
		r := ring(t, func() time.Time { return now }, "a", "b")
		turns(r, 6, refuses("a"))
		now = now.Add(2 * time.Second)
		var tried atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if next(r).Value().Reveal() == "a" {
					tried.Add(1)
				}
			})
		}
		all.Wait()
		if n := tried.Load(); n != 1 {
			t.Fatalf("%d calls at a time", n)
		}
	}
}

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
		f := &upstream.Failure{Status: 401, Sent: true, Fatal: true}
		k.Report(c, f.Fault())
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
