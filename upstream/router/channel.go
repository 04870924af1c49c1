package router

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
	"github.com/tollhouse-ai/gateway/upstream/internal/rendezvous"
)

// everyModel is the public id under which a channel passes every id through.
const everyModel = "*"

// MaxDrain is the longest that a stream is read on after its client disconnected.
const MaxDrain = 30 * time.Second

// Channel is one way to an upstream: which models it serves, when it is asked
// and which fields its upstream does not take.
type Channel struct {
	// Name is the channel's name in logs and receipts; unique in a Router.
	Name string
	// Upstream answers the channel's calls. The caller of New closes it.
	Upstream upstream.Upstream
	// Models maps public ids to upstream ids. {"*": "*"} passes every id through unchanged.
	// {"groq/*": "*"} passes every id that begins with "groq/", without that prefix. An id
	// that is named wins, then the longest prefix.
	Models map[string]string
	// Discovered maps public ids to those of models that the vendor lists; nil for a channel
	// that does not ask. Such an id is served only if no other channel names it in Models or
	// passes it through. So a vendor cannot attract the calls of a model by listing it.
	// Channels that all discovered an id share its calls. An id in Models goes first. An id
	// that the upstream does not support is left out.
	Discovered map[string]string
	// DefersToDiscovered keeps "*" from passing an id through that another channel discovered.
	// That channel then serves it, unless Discovered has it too.
	DefersToDiscovered bool
	// Priority orders channels: the lowest number is asked first.
	Priority int
	// Weight is the channel's share among those of its priority; 0 counts as 1.
	Weight int
	// Timeout bounds the channel's answers.
	Timeout Timeouts
	// MaxConcurrent is how many calls the channel answers at a time, from the
	// call to the end of the answer's body; 0 for any number.
	MaxConcurrent int
	// RPM is how many calls the upstream takes in a minute; 0 for any number. A
	// second's worth of them may come at once.
	RPM int
	// Drain is how long a stream is read on after its client disconnected, so that it is
	// charged as the vendor reports. It is for a vendor that bills cancelled streams. 0
	// cancels at once; at most [MaxDrain].
	Drain time.Duration
	// CachePrompts has the prompts of conversations that become messages for the channel
	// marked for the vendor's cache, unless their caller marks some.
	CachePrompts bool
	// Thinking is how the channel's models are asked for reasoning in conversations that
	// become messages: "adaptive", or "enabled" with a budget of tokens. Where it is set, a
	// reasoning effort alone asks for reasoning that the client sees. Empty asks adaptively,
	// and only for a client that asks to see it.
	Thinking string
	// Drop names the top-level request fields that the upstream refuses, and those that its
	// API format has no words for. The names are the client's or those of chat completions. A
	// call for several candidates is refused rather than sent without its n.
	Drop []string
	// Rename leads from top-level request fields to the upstream's names for
	// them. A field that has the new name already wins. Messages for an upstream that
	// has chat completions too are sent as they are: the names are those of OpenAI's wire.
	Rename map[string]string
	// SessionHeader is the header in which the upstream gets the session of a call; empty for
	// none. The session is sent as 32 hexadecimal digits from which the client's own name for
	// it cannot be found.
	SessionHeader string
	// Pass names request fields that the channel takes although they cost money without a
	// price, or choose another model or account, and billing is prepaid. It also names the
	// fields for callers' users and caches that the upstream gets unchanged
	// ([upstream.Call.Alias]).
	Pass []string
}

// ChannelInfo describes a channel for a banner or a health page.
type ChannelInfo struct {
	Name     string
	Models   []string // public ids, sorted; "*" for all; not to be modified
	Priority int
	Weight   int       // at least 1
	Usable   bool      // false while its circuit breaker is open or it is paused
	State    string    // one of the State… constants
	Until    time.Time // the end of StateOpen; zero in any other state
	InFlight int       // calls whose answer has not ended
	Requests int64     // attempts since the start, reloads included
	Failures int64     // how many of them counted against the channel
	// CircuitOpens is how often its circuit breaker opened since the start, reloads
	// included.
	CircuitOpens int64
	// Latency is how long the upstream lately took to the first content, or to the whole of an
	// answer that is not streamed. It is 0 if it is not known, and 10 ms for all that is
	// quicker.
	Latency time.Duration
	// LastError is the code and the upstream's status of the last failure; empty
	// if there was none.
	LastError string
	// Discovers says that the channel's vendor is asked for its models. Listed is when its
	// last good list came, and ListError why the last request for one failed. Package
	// discovery sets these two, not the Router.
	Discovers bool
	Listed    time.Time
	ListError string
}

// The states of a channel: those of its circuit breaker, and the operator's pause. The values
// are the words of metrics and of the admin API.
const (
	StateClosed   = "ready"
	StateOpen     = "resting" // or in cooldown: its vendor said of some model when to come back, or does not have it
	StateHalfOpen = "probing" // few calls at a time
	StatePaused   = "paused"  // by [Router.Pause]
)

// check refuses what cannot work, so that it is found at start-up.
func (c *Channel) check() error {
	switch {
	case c.Name == "", c.Name == ".", c.Name == "..": // the admin API has the name in its path
		return errors.New("a channel has no name")
	case c.Upstream == nil:
		return c.errorf("it has no upstream")
	case c.Weight < 0:
		return c.errorf("the weight %d is negative", c.Weight)
	case len(c.Models) == 0 && c.Discovered == nil:
		return c.errorf("it has no models")
	case c.MaxConcurrent < 0 || c.MaxConcurrent > math.MaxInt32:
		return c.errorf("%d calls at a time are too few or too many", c.MaxConcurrent)
	case c.RPM < 0:
		return c.errorf("the number %d of calls a minute is negative", c.RPM)
	case c.Timeout.Headers < 0 || c.Timeout.Idle < 0 || c.Timeout.Total < 0:
		return c.errorf("a time-out is negative")
	case c.Drain < 0 || c.Drain > MaxDrain:
		return c.errorf("the drain %s is negative or above %s", c.Drain, MaxDrain)
	case c.SessionHeader != "" && !isSessionHeader(http.CanonicalHeaderKey(c.SessionHeader)):
		return c.errorf("the session cannot be sent in a header %q; one for it is X-Session-Id", c.SessionHeader)
	}
	return errors.Join(c.checkModels(), c.checkEdits())
}

func (c *Channel) checkModels() error {
	for _, public := range slices.Sorted(maps.Keys(c.Models)) {
		id := c.Models[public]
		switch {
		case public == "" || id == "":
			return c.errorf("the model %q: %q has an empty id", public, id)
		case public == everyModel && id != everyModel:
			return c.errorf(`the model "*" leads to %q; it can only lead to "*"`, id)
		case id == everyModel && !strings.HasSuffix(public, everyModel):
			return c.errorf(`the model %q leads to "*", to which only "*" and ids that end in it can`, public)
		case id == everyModel:
		case !supportsAny(c.Upstream, id):
			return c.errorf("its upstream does not serve the model %q", id)
		}
	}
	return nil
}

func (c *Channel) checkEdits() error {
	// What the gateway itself sets, or needs to read and bill the answer.
	own := []string{"model", "messages", "stream", "stream_options"}
	for _, name := range c.Drop {
		if name == "" || slices.Contains(own, name) {
			return c.errorf("the field %q cannot be dropped", name)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(c.Rename)) {
		to := c.Rename[from]
		_, chained := c.Rename[to]
		if from == "" || to == "" || chained || slices.Contains(own, from) || slices.Contains(own, to) {
			return c.errorf("the field %q cannot be renamed %q", from, to)
		}
	}
	if slices.Contains(c.Pass, "") {
		return c.errorf("a field that it passes has no name")
	}
	return nil
}

// Model is the upstream's id for a public one; false if the channel does not serve it.
func (c *Channel) Model(public string) (id string, ok bool) {
	if id = c.Models[public]; id != "" && id != everyModel {
		return id, true
	}
	return cutPrefix(public, c.prefixes())
}

// prefixes are those of the public ids that the channel passes through without them, the
// longest first; an empty one means every id.
func (c *Channel) prefixes() (all []string) {
	for public, id := range c.Models {
		if id == everyModel {
			all = append(all, strings.TrimSuffix(public, everyModel))
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return all
}

// cutPrefix is the id without the first beginning that it has, and what is left is not
// empty; false if there is none.
func cutPrefix(id string, prefixes []string) (rest string, ok bool) {
	for _, with := range prefixes {
		if rest, ok = strings.CutPrefix(id, with); ok && rest != "" {
			return rest, true
		}
	}
	return "", false
}

func (c *Channel) errorf(format string, args ...any) error {
	return fmt.Errorf("channel %q: %w", c.Name, fmt.Errorf(format, args...))
}

// channel is a Channel of a Router.
type channel struct {
	Channel
	*channelState
	rate     *rateLimiter
	point    rendezvous.Point  // in the orders of sessions
	renames  []string          // the keys of Rename in a fixed order
	prefixes []string          // the prefixes of the ids that it passes through
	ids      map[string]string // Models, and those of Discovered that it serves
	names    []string          // the keys of ids, sorted
	peers    []*channel        // of its priority, itself included
}

// channelState is what a channel keeps over reloads: Routers that follow one another
// share it, by the channel's name.
type channelState struct {
	paused    atomic.Bool
	breaker   breaker.Breaker
	limiter   concurrencyLimiter
	requests  atomic.Int64
	failures  atomic.Int64
	lastUsed  atomic.Pointer[callStats] // the last that learnt something
	lastError atomic.Pointer[string]

	mu          sync.Mutex
	statsByKind map[callKind]*callStats
}

// newChannels are channels of a Router, with the state of their namesakes among
// those before. One whose upstream is another than before, with other keys for
// instance, forgets what its vendor said of those; other failures may go on.
func newChannels(list []Channel, before []*channel, accounts *breaker.AccountCount, now time.Time) []*channel {
	channels := make([]*channel, len(list))
	for i, c := range list {
		c.Weight = max(c.Weight, 1)
		c.Timeout = c.Timeout.withDefaults()
		c.SessionHeader = http.CanonicalHeaderKey(c.SessionHeader)
		at := &channel{Channel: c, point: rendezvous.PointOf(c.Name), renames: slices.Sorted(maps.Keys(c.Rename)), prefixes: c.prefixes()}
		if j := indexOf(before, c.Name); j >= 0 {
			was := before[j]
			at.channelState, at.rate = was.channelState, newRateLimiter(c.RPM, was.rate, now)
			if isOther(innermost(was.Upstream), innermost(c.Upstream)) {
				at.breaker.Reset(now)
			}
		} else {
			at.channelState = &channelState{statsByKind: make(map[callKind]*callStats)}
			at.breaker.Accounts, at.rate = accounts, newRateLimiter(c.RPM, nil, now)
		}
		channels[i] = at
	}
	for _, c := range channels {
		for _, peer := range channels {
			if peer.Priority == c.Priority {
				c.peers = append(c.peers, peer)
			}
		}
	}
	return channels
}

// indexOf is the position of the channel of a name; -1 if there is none.
func indexOf(channels []*channel, name string) int {
	return slices.IndexFunc(channels, func(c *channel) bool { return c.Name == name })
}

// innermost is what an upstream wraps: the vendor, whatever is filtered before it.
func innermost(up upstream.Upstream) upstream.Upstream {
	for {
		w, ok := up.(interface{ Unwrap() upstream.Upstream })
		if !ok {
			return up
		}
		up = w.Unwrap()
	}
}

// isOther reports whether b is another upstream than a. Functions cannot be compared.
func isOther(a, b upstream.Upstream) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a != b
}

// mayOpen reports whether the breaker of a channel that still answers at times may open. No
// more than half of a priority's channels are left out for that.
func (c *channel) mayOpen() bool {
	out := 0
	for _, p := range c.peers {
		if _, forAll := p.breaker.Tripped(); forAll {
			out++
		}
	}
	return 2*(out+1) <= len(c.peers)
}

// serves reports whether the channel serves a public id with any operation.
func (c *channel) serves(public string) bool { return c.id(public) != "" }

// id is the upstream's id for a public one; empty if the channel does not serve it.
func (c *channel) id(public string) string {
	if id := c.ids[public]; id != "" && id != everyModel {
		return id
	}
	rest, _ := cutPrefix(public, c.prefixes)
	return rest
}

// passesField reports whether the channel passes the request field called name.
func (c *channel) passesField(name string) bool {
	return slices.ContainsFunc(c.Pass, func(pass string) bool { return strings.EqualFold(pass, name) })
}

// states are a channel's by those of its circuit breaker.
var states = [...]string{breaker.Closed: StateClosed, breaker.HalfOpen: StateHalfOpen, breaker.Cooldown: StateOpen, breaker.Open: StateOpen}

func (c *channel) info(now time.Time) ChannelInfo {
	state, until := c.breaker.State(now)
	i := ChannelInfo{
		Name: c.Name, Models: c.names, Discovers: c.Discovered != nil, Priority: c.Priority, Weight: c.Weight,
		State: states[state], Until: until, Usable: state != breaker.Open,
		Requests: c.requests.Load(), Failures: c.failures.Load(), CircuitOpens: c.breaker.OpenCount(),
	}
	if last := c.lastError.Load(); last != nil {
		i.LastError = *last
	}
	if c.paused.Load() {
		i.State, i.Until, i.Usable = StatePaused, time.Time{}, false
	}
	if s := c.lastUsed.Load(); s != nil { // and has learnt something
		i.Latency = time.Duration(math.Exp2(s.at(now).latency))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.statsByKind {
		i.InFlight += s.at(now).running
	}
	return i
}

// maxRemovedPaused bounds how many removed channels are remembered as paused.
const maxRemovedPaused = 1000

// restorePauses pauses those of the next Router's channels that come back and were paused when
// they went. A file that lacks a channel for one reload is often a mistake, which must not end
// an operator's pause. It returns the paused channels that are removed from then on, the last
// to go last.
func (r *Router) restorePauses(next []*channel) (removed []string) {
	for _, name := range r.removedPaused {
		if i := indexOf(next, name); i >= 0 {
			next[i].paused.Store(true)
		} else {
			removed = append(removed, name)
		}
	}
	for _, c := range r.channels {
		if indexOf(next, c.Name) < 0 && c.paused.Load() {
			removed = append(removed, c.Name)
		}
	}
	return slices.Clone(removed[max(0, len(removed)-maxRemovedPaused):])
}
