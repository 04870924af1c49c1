package main

import (
	"errors"
	"maps"
	"slices"
	"strings"

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
