package upstream

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

// Keys is a ring of an operator's keys for one vendor, used in turn. A key that
// is refused three times in a row rests for a time that grows with every
// further refusal, and one that is at its limit for as long as the vendor says,
// but the last usable one never does. It is safe for concurrent use. A nil ring
// is one without keys.
type Keys struct {
	keys []Key
	now  func() time.Time
	turn atomic.Uint64
	mu   sync.Mutex // one refusal at a time, so that no two keys go to rest relying on each other
}

// Key is one key of a ring.
type Key struct {
	ring         *Keys
	value        *secret.String // behind a pointer, where fmt does not look
	breaker      keyBreaker
	limitedUntil atomic.Pointer[time.Time] // until when it is at its limit
}

// NewKeys makes a ring. An empty key, or one that cannot stand in a header, is
// refused by its position, never by its text. now dates the rests; time.Now if
// nil.
func NewKeys(keys []secret.String, now func() time.Time) (*Keys, error) {
	if now == nil {
		now = time.Now
	}
	r := &Keys{keys: make([]Key, len(keys)), now: now}
	for i, k := range keys {
		if !printable(k.Reveal()) {
			return nil, fmt.Errorf("key %d is empty or has a character that no key can have", i+1)
		}
		r.keys[i].ring, r.keys[i].value = r, &k
	}
	return r, nil
}

// Next is the key whose turn it is; nil if the ring has none. Tell it
// afterwards how it did by Worked or Refused.
func (r *Keys) Next() *Key {
	if r == nil || len(r.keys) == 0 {
		return nil
	}
	now := r.now()
	n := uint64(len(r.keys))
	turn := r.turn.Add(1) - 1
	for i := range n {
		if k := &r.keys[(turn+i)%n]; k.usable(now) && k.breaker.acquire(now) {
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

// printable reports whether key is made of visible ASCII, as a header needs it.
func printable(key string) bool {
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return key != ""
}

// Value is the key itself.
func (k *Key) Value() secret.String { return *k.value }

// Worked says that the vendor took the key.
func (k *Key) Worked() { k.breaker.succeeded() }

// Refused says that the vendor refused the key or the account behind it, and
// reports whether another key can serve.
func (k *Key) Refused() (other bool) {
	return k.pauseIfOtherUsable(func(now time.Time) { k.breaker.failed(now) })
}

// Limited says that the vendor called the key for a pause: for a second if wait
// is 0, and for a minute at most. It reports whether another key can serve.
func (k *Key) Limited(wait time.Duration) (other bool) {
	return k.pauseIfOtherUsable(func(now time.Time) {
		until := now.Add(min(positive(wait, minOpenTime), maxCooldown))
		k.limitedUntil.Store(&until)
	})
}

// spare lets the key rest if there is another.
func (k *Key) pauseIfOtherUsable(rest func(now time.Time)) bool {
	k.ring.mu.Lock()
	defer k.ring.mu.Unlock()
	now := k.ring.now()
	for i := range k.ring.keys {
		if other := &k.ring.keys[i]; other != k && other.usable(now) {
			rest(now)
			return true
		}
	}
	return false
}

// usable reports whether the key does not rest.
func (k *Key) usable(now time.Time) bool {
	if until := k.limitedUntil.Load(); until != nil && now.Before(*until) {
		return false
	}
	return k.breaker.usable(now)
}
