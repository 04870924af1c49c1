package upstream

import (
	"errors"
	"fmt"
	"slices"
)

// everyModel is the public id under which a channel passes every id through.
const everyModel = "*"

// Channel is one way to an upstream: which models it serves, when it is asked
// and what its upstream must be spared.
type Channel struct {
	// Name is the channel's name in logs and receipts; unique in a Router.
	Name string
	// Upstream answers the channel's calls. Whoever made it closes it.
	Upstream Upstream
	// Models leads from public to upstream ids. The public id "*" (with the
	// upstream id "*") passes every id through as it is.
	Models map[string]string
	// Priority orders channels: the lowest number is asked first.
	Priority int
	// Weight is the channel's share among those of its priority; 0 counts as 1.
	Weight int
	// Timeout bounds the channel's answers.
	Timeout Timeouts
	// Drop names the top-level request fields that the upstream refuses. A call
	// for several candidates is refused rather than sent without its n.
	Drop []string
	// Rename leads from top-level request fields to the upstream's names for
	// them. A field that has the new name already wins.
	Rename map[string]string
}

// ChannelInfo describes a channel for a banner or a health page.
type ChannelInfo struct {
	Name     string
	Models   []string // public ids, sorted; "*" for all
	Priority int
	Weight   int  // at least 1
	Usable   bool // false while it rests after failures
}

// check refuses what cannot work, so that it is found at start-up.
func (c *Channel) check() error {
	switch {
	case c.Name == "":
		return errors.New("a channel has no name")
	case c.Upstream == nil:
		return c.errorf("it has no upstream")
	case c.Weight < 0:
		return c.errorf("the weight %d is negative", c.Weight)
	case len(c.Models) == 0:
		return c.errorf("it has no models")
	case c.Timeout.Headers < 0 || c.Timeout.Idle < 0 || c.Timeout.Total < 0:
		return c.errorf("a time-out is negative")
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
		case !slices.ContainsFunc(Ops(), func(op Op) bool { return Supports(c.Upstream, op, id) }):
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
	return nil
}

func (c *Channel) errorf(format string, args ...any) error {
	return fmt.Errorf("channel %q: %w", c.Name, fmt.Errorf(format, args...))
}

// channel is a Channel at work.
type channel struct {
	Channel
	renames []string // the keys of Rename in a fixed order
	streak  streak
}

func newChannel(c Channel) *channel {
	c.Weight = max(c.Weight, 1)
	c.Timeout = c.Timeout.withDefaults()
	return &channel{Channel: c, renames: sorted(c.Rename)}
}

func (c *channel) info(usable bool) ChannelInfo {
	return ChannelInfo{c.Name, sorted(c.Models), c.Priority, c.Weight, usable}
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
