package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
	"github.com/tollhouse-ai/gateway/upstream/internal/rendezvous"
)

// Keys is a ring of an operator's keys for one vendor, used in turn. The calls of a session
// use one key, which has their prompts in its cache. Each key has a circuit breaker: three
// refusals in a row open it, for a time that doubles with every further refusal. Each also has
// a cooldown while it is at its limit, for as long as the vendor says. The last usable key is
// always used. A Keys is safe for concurrent use. A nil Keys has no keys.
type Keys struct {
	keys []Key
	now  func() time.Time
	turn atomic.Uint64
	mu   sync.Mutex // one refusal at a time, so that no two keys are left alone relying on each other
}

// Key is one key of a ring.
type Key struct {
	ring    *Keys
	value   *secret.String // behind a pointer, where fmt does not look
	id      string
	point   rendezvous.Point // in the orders of sessions
	breaker breaker.Breaker  // opened by refusals
	suspect atomic.Bool      // it had a refusal that may be about what the call asked for
}

// NewKeys makes a ring. It refuses an empty key, or one that a header cannot hold, and names
// it by its position, never by its text. now dates refusals and limits; nil means time.Now.
func NewKeys(keys []secret.String, now func() time.Time) (*Keys, error) {
	if now == nil {
		now = time.Now
	}
	r := &Keys{keys: make([]Key, len(keys)), now: now}
	for i, k := range keys {
		if !safetext.IsVisible(k.Reveal()) {
			return nil, fmt.Errorf("key %d is empty or has a character that no key can have", i+1)
		}
		name := sha256.Sum256([]byte("tollhouse: a key of a vendor\x00" + k.Reveal()))
		at := &r.keys[i]
		at.ring, at.value, at.breaker.CloseOnSuccess = r, &k, true
		at.id, at.point = hex.EncodeToString(name[:6]), rendezvous.PointOf(string(name[:]))
	}
	return r, nil
}

// Next returns the key for a call. It is the key that [Call.Key] names, the first usable one
// in the order of its session, or the next in turn. It returns nil if the ring is empty. It
// passes over keys that the vendor refused for this call while there is another. It fails if
// no key has the name or its breaker is open; send nothing then. Report the outcome of the
// call to [Key.Report].
func (r *Keys) Next(call *Call) (*Key, error) {
	switch {
	case call.Key != "":
		return r.named(call)
	case r == nil || len(r.keys) == 0:
		return nil, nil
	case call.Op == ListModels:
		return r.idle(), nil
	case call.Session != Session{}:
		return r.ofSession(call), nil
	}
	n := uint64(len(r.keys))
	turn := r.turn.Add(1) - 1
	for i := range n {
		if k := &r.keys[(turn+i)%n]; k.usable(call) {
			return k, nil
		}
	}
	return &r.keys[turn%n], nil
}

// idle is the first key that the vendor takes, else the first of all, for a request that is
// no caller's. It takes no turn, and no probe of the key's circuit breaker.
func (r *Keys) idle() *Key {
	now := r.now()
	for i := range r.keys {
		if state, _ := r.keys[i].breaker.Check(now, breaker.Call{}); state <= breaker.HalfOpen {
			return &r.keys[i]
		}
	}
	return &r.keys[0]
}

// named is the key that a call names, unless the vendor has refused it or has said that it
// is at its limit.
func (r *Keys) named(call *Call) (*Key, error) {
	if r != nil {
		for i := range r.keys {
			switch k := &r.keys[i]; {
			case k.id != call.Key:
			case !k.usable(call):
				return nil, NotSent(fault.New(fault.NoChannel, "The key of the vendor by which the request has to be made cannot be used for now. Try again later, or begin a new conversation."))
			default:
				return k, nil
			}
		}
	}
	return nil, NotSent(fault.New(fault.NoChannel, "The key of the vendor by which the request has to be made is not in use any more. Begin a new conversation."))
}

// ofSession is the first usable key in the order of the call's session, or the first of
// all.
func (r *Keys) ofSession(call *Call) *Key {
	var first *Key
	for i := range r.order(call) {
		k := &r.keys[i]
		if k.usable(call) {
			return k
		}
		if first == nil {
			first = k
		}
	}
	return first
}

// order is the order of the keys for the call's session. A key that is added takes its share
// of the sessions and leaves all others in place.
func (r *Keys) order(call *Call) iter.Seq[int] {
	return rendezvous.Order(len(r.keys), func(i int) uint64 { return r.keys[i].point.Rank((*[16]byte)(&call.Session)) })
}

// Only is the id of the ring's one key, empty if it has none; false if it has several.
func (r *Keys) Only() (id string, ok bool) {
	if r == nil || len(r.keys) == 0 {
		return "", true
	}
	for i := range r.keys {
		if r.keys[i].id != r.keys[0].id {
			return "", false
		}
	}
	return r.keys[0].id, true
}

// Mask returns text with every key of the ring in it made unreadable, also as it stands
// in an address.
func (r *Keys) Mask(text string) string {
	if r == nil {
		return text
	}
	for i := range r.keys {
		key, masked := r.keys[i].value.Reveal(), r.keys[i].value.String()
		for _, form := range [3]string{key, url.QueryEscape(key), url.PathEscape(key)} {
			text = strings.ReplaceAll(text, form, masked)
		}
	}
	return text
}

// Value is the key itself.
func (k *Key) Value() secret.String { return *k.value }

// ID is the key's name, from which the key cannot be found, and which is the same in
// every process. That of a nil Key is empty.
func (k *Key) ID() string {
	if k == nil {
		return ""
	}
	return k.id
}

// Moved reports whether a call of a session was made with another key than the first in
// its order ([Reply.Moved]).
func (k *Key) Moved(call *Call) bool {
	if k == nil || call.Key != "" || call.Session == (Session{}) {
		return false
	}
	for first := range k.ring.order(call) {
		return k != &k.ring.keys[first]
	}
	return false
}

// usable reports whether the call may be made with the key.
func (k *Key) usable(call *Call) bool {
	if slices.Contains(call.RefusedKeys, k.id) {
		return false
	}
	_, ok := k.breaker.Acquire(k.ring.now(), breaker.Call{}, false)
	return ok
}

// Report notes the outcome of a call that was made with the key; err is nil after a good
// answer. It sets [Failure.Key] of the failure in err's chain. It sets [Failure.OtherKey] if
// the vendor refused or limited the key and another key can serve. A nil Key notes nothing. A
// driver reports the errors that it returns. A Router reports how an answer was judged
// ([Reply.Used]), since a 200 may hold a refusal.
//
// Any client can provoke a refusal that is about its request, or a limit by a large one. Such
// a call goes to one other key only, so that its requests put no second key aside. An
// ambiguous refusal counts against a key only if another key then serves the same call.
func (k *Key) Report(call *Call, err error) {
	if k == nil {
		return
	}
	if err == nil { // as nearly always: without the allocation of errors.As
		k.breaker.Succeeded(k.ring.now())
		if k.suspect.Load() {
			k.suspect.Store(false)
		}
		k.ring.confirm(call.RefusedKeys)
		return
	}
	var f *Failure
	if errors.As(err, &f) {
		f.Key = k.id
	}
	first := !k.ring.refusedOne(call)
	switch {
	case f != nil && misroutedStatuses[f.Status]:
	case f == nil, f.Oversized, f.NoModel, f.Status >= 400 && f.Status < 500 && f.Status != http.StatusTooManyRequests && !f.Fatal:
		k.breaker.Succeeded(k.ring.now())
	case f.Ambiguous:
		k.suspect.Store(true)
		f.OtherKey = first && k.ifOtherUsable(func(time.Time) {})
	case f.Fatal:
		f.OtherKey = k.ifOtherUsable(k.refused)
	case f.Status == http.StatusTooManyRequests:
		wait := fault.From(err).RetryAfter
		if wait <= 0 {
			wait = breaker.MinOpenTime
		}
		k.suspect.Store(false)
		f.OtherKey = first && k.ifOtherUsable(func(now time.Time) { k.breaker.CoolDown(k.breaker.CurrentToken(), now, wait) })
	}
}

// refusedOne reports whether the vendor has refused a key of the ring for the call.
func (r *Keys) refusedOne(call *Call) bool {
	for i := range r.keys {
		if slices.Contains(call.RefusedKeys, r.keys[i].id) {
			return true
		}
	}
	return false
}

// refused counts a refusal of the key, whatever it was used for.
func (k *Key) refused(now time.Time) {
	k.breaker.Failed(k.breaker.CurrentToken(), breaker.Failure{Fatal: true, Certain: true}, now)
}

// confirm counts the ambiguous refusals of keys whose call another key has served.
func (r *Keys) confirm(refused []string) {
	if len(refused) == 0 {
		return
	}
	for i := range r.keys {
		if k := &r.keys[i]; slices.Contains(refused, k.id) && k.suspect.Swap(false) {
			k.ifOtherUsable(k.refused)
		}
	}
}

// Masked is err with every key of the ring made unreadable in what a caller reads of it.
// An error that a vendor put into a 200 has the vendor's words. For a nil Key it is err
// itself.
func (k *Key) Masked(err error) error {
	var f *fault.Error
	if k == nil || !errors.As(err, &f) {
		return err
	}
	message, param, code := k.ring.Mask(f.Message), k.ring.Mask(f.Param), fault.Code(k.ring.Mask(string(f.Code)))
	if message == f.Message && param == f.Param && code == f.Code {
		return err
	}
	return f.With(func(e *fault.Error) { e.Message, e.Param, e.Code, e.Body = message, param, code, nil })
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
