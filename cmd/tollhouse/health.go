package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ways are the channels of the house, whichever router has them at the moment.
type channelAdmin struct{ *app }

var _ server.Channels = channelAdmin{}

// Channels implements [server.Channels].
func (w channelAdmin) Channels() []upstream.ChannelInfo { return w.channels() }

// Pause implements [server.Channels].
func (w channelAdmin) Pause(name string) error { return w.router().Pause(name) }

// Resume implements [server.Channels].
func (w channelAdmin) Resume(name string) error { return w.router().Resume(name) }

func (h *app) router() *upstream.Router { return h.components.Load().Router }

func (h *app) channels() []upstream.ChannelInfo { return h.router().Channels() }

// usable is a check of /readyz.
func (h *app) channelsUsable() error {
	why := "every channel rests after failures"
	for _, c := range h.channels() {
		if c.Usable {
			return nil
		}
		if c.State == upstream.Paused {
			why = "every channel is paused or rests after failures"
		}
	}
	return errors.New(why)
}

// doubtful is what /readyz warns of: somebody may have forgotten a channel, or
// some model gets no answer though no channel is out for all.
func (h *app) channelsDegraded() error {
	var doubts []string
	if names := h.pausedChannels(); names != nil {
		doubts = append(doubts, plural(len(names), "paused channel")) // their names are for the admin address
	}
	if h.channelsUsable() == nil && !slices.ContainsFunc(h.channels(), servesAllModels) {
		doubts = append(doubts, "every channel in use rests, or its vendor told it to wait with some model")
	}
	if doubts == nil {
		return nil
	}
	return errors.New(strings.Join(doubts, "; "))
}

// takesCalls reports whether a channel takes calls for all of its models.
func servesAllModels(c upstream.ChannelInfo) bool {
	return c.State == upstream.Ready || c.State == upstream.Probing
}

// doubts are what /readyz tells without being unready for it.
func (h *app) readyWarnings() map[string]func() error {
	w := map[string]func() error{"channels": h.channelsDegraded}
	maps.Copy(w, h.storage.warnings())
	return w
}

// paused are the names of the channels that get no new calls.
func (h *app) pausedChannels() (names []string) {
	for _, c := range h.channels() {
		if c.State == upstream.Paused {
			names = append(names, c.Name)
		}
	}
	return names
}

// probeAge is how long the result of a probe stands for those who ask after it.
const checkMaxAge = time.Second

// probe is a check of the database for /readyz, to which no key is needed: those
// who ask at one time, and within probeAge, share one query. It is safe for
// concurrent use.
type cachedCheck struct {
	check func(context.Context) error
	now   func() time.Time

	mu  sync.Mutex
	at  time.Time // of the result; zero if there is none
	err error
}

func cacheCheck(check func(context.Context) error) func() error {
	p := &cachedCheck{check: check, now: time.Now}
	return p.result
}

// result is the last one if it is young, else that of a query, which is ended
// after a second. It keeps from the world what the database said.
func (p *cachedCheck) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && p.now().Sub(p.at) < checkMaxAge {
		return p.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.err = nil
	if err := p.check(ctx); err != nil {
		p.err = errors.New(fault.From(err).Message)
	}
	p.at = p.now()
	return p.err
}
