package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/breaker"
)

// everyModel is the public id under which a channel passes every id through.
const everyModel = "*"

// MaxDrain is the longest that a stream is read on after its client left.
const MaxDrain = 30 * time.Second

// Channel is one way to an upstream: which models it serves, when it is asked
// and which fields its upstream does not take.
type Channel struct {
	// Name is the channel's name in logs and receipts; unique in a Router.
	Name string
	// Upstream answers the channel's calls. The caller of New closes it.
	Upstream upstream.Upstream
	// Models leads from public to upstream ids. The public id "*" (with the
	// upstream id "*") passes every id through as it is.
	Models map[string]string
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
	// Drain is for how long a stream is read on after its client left, so that it is
	// charged as the vendor reports: for a vendor whose bill cancelling does not stop.
	// 0 cancels at once; at most [MaxDrain].
	Drain time.Duration
	// Drop names the top-level request fields that the upstream refuses. A call
	// for several candidates is refused rather than sent without its n.
	Drop []string
	// Rename leads from top-level request fields to the upstream's names for
	// them. A field that has the new name already wins.
	Rename map[string]string
	// Pass names the request fields that cost money without a price, or choose
	// another model or account, which the channel takes all the same where
	// billing is prepaid.
	Pass []string
}

// ChannelInfo describes a channel for a banner or a health page.
type ChannelInfo struct {
	Name     string
	Models   []string // public ids, sorted; "*" for all
	Priority int
	Weight   int       // at least 1
	Usable   bool      // false while its circuit breaker is open or it is paused
	State    string    // Ready, Resting, Probing or Paused
	Until    time.Time // the end of Resting; zero in any other state
	InFlight int       // calls whose answer has not ended
	Requests int64     // attempts since the start, reloads included
	Failures int64     // how many of them counted against the channel
	// Latency is how long the upstream lately took to the first content, or to
	// the whole of an answer that is not streamed; 0 if it is not known, and 10 ms
	// for all that is quicker.
	Latency time.Duration
	// LastError is the code and the upstream's status of the last failure; empty
	// if there was none.
	LastError string
}

// The states of a channel.
const (
	Ready   = "ready"
	Resting = "resting" // its circuit breaker is open, or a vendor said of some model when to come back
	Probing = "probing" // its circuit breaker is half-open: few calls at a time
	Paused  = "paused"  // by [Router.Pause]
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
	case len(c.Models) == 0:
		return c.errorf("it has no models")
	case c.MaxConcurrent < 0 || c.MaxConcurrent > math.MaxInt32:
		return c.errorf("%d calls at a time are too few or too many", c.MaxConcurrent)
	case c.RPM < 0:
		return c.errorf("the number %d of calls a minute is negative", c.RPM)
	case c.Timeout.Headers < 0 || c.Timeout.Idle < 0 || c.Timeout.Total < 0:
		return c.errorf("a time-out is negative")
	case c.Drain < 0 || c.Drain > MaxDrain:
		return c.errorf("the drain %s is negative or above %s", c.Drain, MaxDrain)
	}
	return errors.Join(c.checkModels(), c.checkEdits())
}

func (c *Channel) checkModels() error {
	for _, public := range sorted(c.Models) {
		id := c.Models[public]
		switch {
		case public == "" || id == "":
			return c.errorf("the model %q: %q has an empty id", public, id)
		case public == everyModel && id != everyModel:
			return c.errorf(`the model "*" leads to %q; it can only lead to "*"`, id)
		case public == everyModel:
		case !slices.ContainsFunc(upstream.Ops(), func(op upstream.Op) bool { return upstream.Supports(c.Upstream, op, id) }):
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
	for _, from := range sorted(c.Rename) {
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

func (c *Channel) errorf(format string, args ...any) error {
	return fmt.Errorf("channel %q: %w", c.Name, fmt.Errorf(format, args...))
}

// channel is a Channel of a Router.
type channel struct {
	Channel
	*channelState
	rate    *rateLimiter
	renames []string   // the keys of Rename in a fixed order
	peers   []*channel // of its priority, itself included
}

// channelState is what a channel keeps over reloads: Routers that follow one another
// share it, by the channel's name.
type channelState struct {
	epoch     time.Time // of the statistics
	paused    atomic.Bool
	breaker   breaker.Breaker
	cooldowns breaker.Cooldowns[routeKey]
	limiter   concurrencyLimiter
	requests  atomic.Int64
	failures  atomic.Int64
	lastUsed  atomic.Pointer[callStats] // the last that learnt something
	lastError atomic.Pointer[lastError]

	mu    sync.Mutex
	calls map[callKind]*callStats
}

func newChannelState(base time.Time, c *breaker.Accounts) *channelState {
	return &channelState{epoch: base, breaker: breaker.Breaker{Accounts: c}, calls: make(map[callKind]*callStats)}
}

// reset ends what kept calls from the channel for the sake of its keys, which are
// others now: the vendor's cooldowns, and that the keys were refused. Other failures
// may go on, so that the breaker stays open for those.
func (s *channelState) reset(now time.Time) {
	s.cooldowns.Reset()
	s.breaker.Reset(now)
}

// callStats are the statistics of a kind of call.
func (s *channelState) callStats(k callKind) *callStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.calls[k]
	if g == nil {
		g = &callStats{epoch: s.epoch}
		s.calls[k] = g
	}
	return g
}

// inFlight is how many calls have not ended.
func (s *channelState) inFlight() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.calls {
		sum += g.running()
	}
	return sum
}

// latency is that of the calls that the channel had last.
func (s *channelState) latency() time.Duration {
	if g := s.lastUsed.Load(); g != nil {
		return g.latencyDuration()
	}
	return 0
}

// takes reports whether the channel passes the request field called name.
func (c *channel) takes(name string) bool {
	return slices.ContainsFunc(c.Pass, func(pass string) bool { return strings.EqualFold(pass, name) })
}

// newChannels are channels of a Router, with the state of their namesakes among
// those before.
func newChannels(list []Channel, before []*channel, who *breaker.Accounts, now time.Time) []*channel {
	known := make(map[string]*channel, len(before))
	for _, c := range before {
		known[c.Name] = c
	}
	channels := make([]*channel, len(list))
	peers := make(map[int][]*channel)
	for i, c := range list {
		c.Weight = max(c.Weight, 1)
		c.Timeout = c.Timeout.withDefaults()
		at := &channel{Channel: c, renames: sorted(c.Rename)}
		if b := known[c.Name]; b != nil {
			at.channelState, at.rate = b.channelState, newRateLimiter(c.RPM, b.rate, now)
			if replaced(b.Upstream, c.Upstream) {
				at.channelState.reset(now)
			}
		} else {
			at.channelState, at.rate = newChannelState(now, who), newRateLimiter(c.RPM, nil, now)
		}
		channels[i] = at
		peers[c.Priority] = append(peers[c.Priority], at)
	}
	for _, c := range channels {
		c.peers = peers[c.Priority]
	}
	return channels
}

// replaced reports whether b is another upstream than a, with other keys for
// instance. Functions cannot be compared.
func replaced(a, b upstream.Upstream) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a != b
}

// mayOpen reports whether the channel's breaker may open though it answers at times:
// no more than half of a priority's channels are left out for that.
func (c *channel) mayOpen() bool {
	out := 0
	for _, p := range c.peers {
		if p.breaker.TrippedForAll() {
			out++
		}
	}
	return 2*(out+1) <= len(c.peers)
}

func (c *channel) info(now time.Time) ChannelInfo {
	i := ChannelInfo{
		Name: c.Name, Models: sorted(c.Models), Priority: c.Priority, Weight: c.Weight,
		InFlight: int(c.inFlight()), Requests: c.requests.Load(), Failures: c.failures.Load(),
		Latency: c.latency(), LastError: c.lastError.Load().String(),
	}
	state, until := c.breaker.State(now)
	i.State, i.Until = [...]string{breaker.Closed: Ready, breaker.Open: Resting, breaker.HalfOpen: Probing}[state], until
	i.Usable = state != breaker.Open
	if until := c.cooldowns.Latest(now); until.After(i.Until) {
		i.State, i.Until = Resting, until
	}
	if c.paused.Load() {
		i.State, i.Until, i.Usable = Paused, time.Time{}, false
	}
	return i
}

// sorted are the keys of m in order.
func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// fieldFilter is a channel's upstream, which gets its own id of the model and none of
// the fields that its channel drops.
type fieldFilter struct {
	*channel
	model []byte // the upstream's id as JSON; nil for the public one
}

// Unwrap lets the upstream itself say what it supports.
func (s *fieldFilter) Unwrap() upstream.Upstream { return s.Upstream }

// Do asks the upstream, unless what it refuses may not be left out.
func (s *fieldFilter) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if !call.Body.Editable() || s.model == nil && len(s.Drop) == 0 && len(s.renames) == 0 {
		return s.Upstream.Do(ctx, call)
	}
	edited := *call
	dropped, refusal := s.edit(&edited)
	if refusal != nil {
		return nil, upstream.NotSent(refusal)
	}
	if s.model != nil {
		edited.Body = edited.Body.Set("model", s.model)
	}
	reply, err := s.Upstream.Do(ctx, &edited)
	if err == nil && reply != nil && len(dropped) > 0 {
		noted := *reply
		noted.Dropped = slices.Concat(dropped, reply.Dropped)
		reply = &noted
	}
	return reply, err
}

// edit makes the changes that the channel's upstream needs, and lists what a
// caller asked for and will not get. It fails where that may not be left out.
func (c *channel) edit(call *upstream.Call) (dropped []string, err *fault.Error) {
	for _, name := range c.Drop {
		v := call.Body.Raw(name)
		if v == nil {
			continue
		}
		if name == "n" && wantsSeveral(v) {
			return nil, fault.Invalid("n", "This model's upstream gives one candidate only: leave n out or send 1.")
		}
		call.Body = call.Body.Delete(name)
		if !rawjson.IsNull(v) {
			dropped = append(dropped, name)
		}
	}
	for _, from := range c.renames {
		if call.Body.Has(from) {
			call.Body = call.Body.Rename(from, c.Rename[from])
		}
	}
	return dropped, nil
}

// wantsSeveral reports whether n asks for anything but one candidate.
func wantsSeveral(n []byte) bool {
	count, ok := rawjson.Int(n)
	return !rawjson.IsNull(n) && (!ok || count != 1)
}

// maxRemovedPaused bounds how many removed channels are remembered as paused.
const maxRemovedPaused = 1000

// keepPaused pauses those of the next Router's channels that come back and were
// paused when they went: a file that lacks a channel for one reload is often a
// mistake, which must not end an operator's pause. It returns
// the paused channels that are removed from then on, the last to go last.
func (r *Router) keepPaused(next []*channel) (removed []string) {
	now := make(map[string]*channel, len(next))
	for _, c := range next {
		now[c.Name] = c
	}
	for _, name := range r.removedPaused {
		if c := now[name]; c != nil {
			c.paused.Store(true)
		} else {
			removed = append(removed, name)
		}
	}
	for _, c := range r.channels {
		if now[c.Name] == nil && c.paused.Load() {
			removed = append(removed, c.Name)
		}
	}
	return slices.Clone(removed[max(0, len(removed)-maxRemovedPaused):])
}
