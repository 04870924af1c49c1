package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
)

// Keys is a ring of an operator's keys for one vendor, used in turn. Each key has a
// circuit breaker, which three refusals in a row open for a time that doubles with
// every further refusal, and a cooldown while it is at its limit, for as long as the
// vendor says. The last usable key is used whatever becomes of it. A Keys is safe for
// concurrent use; a nil one has no keys.
type Keys struct {
	keys []Key
	now  func() time.Time
	turn atomic.Uint64
	mu   sync.Mutex // one refusal at a time, so that no two keys are left alone relying on each other
}

// Key is one key of a ring.
type Key struct {
	ring    *Keys
	value   *secret.String  // behind a pointer, where fmt does not look
	breaker breaker.Breaker // opened by refusals
}

// NewKeys makes a ring. An empty key, or one that cannot stand in a header, is
// refused by its position, never by its text. now dates refusals and limits;
// time.Now if nil.
func NewKeys(keys []secret.String, now func() time.Time) (*Keys, error) {
	if now == nil {
		now = time.Now
	}
	r := &Keys{keys: make([]Key, len(keys)), now: now}
	for i, k := range keys {
		if !word.IsVisible(k.Reveal()) {
			return nil, fmt.Errorf("key %d is empty or has a character that no key can have", i+1)
		}
		r.keys[i].ring, r.keys[i].value, r.keys[i].breaker.Forgiving = r, &k, true
	}
	return r, nil
}

// Next is the key whose turn it is; nil if the ring has none. [Key.Report] then takes
// the outcome of the call.
func (r *Keys) Next() *Key {
	if r == nil || len(r.keys) == 0 {
		return nil
	}
	now := r.now()
	n := uint64(len(r.keys))
	turn := r.turn.Add(1) - 1
	for i := range n {
		k := &r.keys[(turn+i)%n]
		if _, ok := k.breaker.Acquire(now, breaker.Call{}, false); ok {
			return k
		}
	}
	return &r.keys[turn%n]
}

// Mask returns text with every key of the ring in it made unreadable.
func (r *Keys) Mask(text string) string {
	if r == nil {
		return text
	}
	for i := range r.keys {
		text = strings.ReplaceAll(text, r.keys[i].value.Reveal(), r.keys[i].value.String())
	}
	return text
}

// Value is the key itself.
func (k *Key) Value() secret.String { return *k.value }

// Report notes how the call went that was made with the key; err is nil after a good
// answer. Where the vendor refused the key or said that it is at its limit, and another
// key can serve, it sets [Failure.OtherKey] of the failure in err's chain. A nil Key
// notes nothing.
func (k *Key) Report(err error) {
	if k == nil {
		return
	}
	if err == nil { // as nearly always: without the allocation of errors.As
		k.breaker.Succeeded(k.ring.now())
		return
	}
	var f *Failure
	errors.As(err, &f)
	switch {
	case f != nil && misroutedStatuses[f.Status]:
	case f == nil, f.Oversized, f.Status >= 400 && f.Status < 500 && f.Status != http.StatusTooManyRequests && !f.Fatal:
		k.breaker.Succeeded(k.ring.now())
	case f.Fatal:
		f.OtherKey = k.ifOtherUsable(func(now time.Time) {
			k.breaker.Failed(k.breaker.CurrentToken(), breaker.Failure{Fatal: true, Certain: true}, now)
		})
	case f.Status == http.StatusTooManyRequests:
		wait := fault.From(err).RetryAfter
		if wait <= 0 {
			wait = breaker.MinOpenTime
		}
		f.OtherKey = k.ifOtherUsable(func(now time.Time) { k.breaker.CoolDown(k.breaker.CurrentToken(), now, wait) })
	}
}

// ifOtherUsable takes note of what keeps calls from the key if there is another for
// them.
func (k *Key) ifOtherUsable(note func(now time.Time)) bool {
	k.ring.mu.Lock()
	defer k.ring.mu.Unlock()
	now := k.ring.now()
	for i := range k.ring.keys {
		other := &k.ring.keys[i]
		if state, _ := other.breaker.Check(now, breaker.Call{}); other != k && state <= breaker.HalfOpen {
			note(now)
			return true
		}
	}
	return false
}
