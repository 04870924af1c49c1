package main

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// ways are the channels of the house, whichever router has them at the moment.
type ways struct{ *house }

var _ server.Channels = ways{}

// Channels implements [server.Channels].
func (w ways) Channels() []router.ChannelInfo { return w.channels() }

// Pause implements [server.Channels].
func (w ways) Pause(name string) error { return w.router().Pause(name) }

// Resume implements [server.Channels].
func (w ways) Resume(name string) error { return w.router().Resume(name) }

func (h *house) router() *router.Router { return h.parts.Load().Router }

func (h *house) channels() []router.ChannelInfo { return h.router().Channels() }

// usable is a check of /readyz.
func (h *house) usable() error {
	why := "every channel rests after failures"
	for _, c := range h.channels() {
		if c.Usable {
			return nil
		}
		if c.State == router.Paused {
			why = "every channel is paused or rests after failures"
		}
	}
	return errors.New(why)
}

// doubtful is what /readyz warns of: somebody may have forgotten a channel, or
// some model gets no answer though no channel is out for all.
func (h *house) doubtful() error {
	var doubts []string
	if names := h.paused(); names != nil {
		doubts = append(doubts, plural(len(names), "paused channel")) // their names are for the admin address
	}
	if h.usable() == nil && !slices.ContainsFunc(h.channels(), takesCalls) {
		doubts = append(doubts, "every channel in use rests, or its vendor told it to wait with some model")
	}
	if doubts == nil {
		return nil
	}
	return errors.New(strings.Join(doubts, "; "))
}

// takesCalls reports whether a channel takes calls for all of its models.
func takesCalls(c router.ChannelInfo) bool {
	return c.State == router.Ready || c.State == router.Probing
}

// doubts are what /readyz tells without being unready for it.
func (h *house) doubts() map[string]func() error {
	w := map[string]func() error{"channels": h.doubtful}
	maps.Copy(w, h.storage.warnings())
	return w
}

// paused are the names of the channels that get no new calls.
func (h *house) paused() (names []string) {
	for _, c := range h.channels() {
		if c.State == router.Paused {
			names = append(names, c.Name)
		}
	}
	return names
}
