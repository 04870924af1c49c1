package config

import (
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
)

// choosy is the upstream of a channel that does not let every id through.
type modelFilter struct {
	upstream.Upstream
	channel *Channel
}

// Unwrap is the upstream itself.
func (c *modelFilter) Unwrap() upstream.Upstream { return c.Upstream }

// Supports implements [upstream.Supporter].
func (c *modelFilter) Supports(op upstream.Op, model string) bool {
	return c.channel.allows(model) && upstream.Supports(c.Upstream, op, model)
}

// passes reports whether the channel's upstream may be asked for a model by the
// vendor's id.
func (c *Channel) allows(id string) bool {
	for public, theirs := range c.Models {
		if theirs == id && public != everyModel {
			return true
		}
	}
	for _, other := range c.Except {
		if begin, every := strings.CutSuffix(other, everyModel); id == other || every && strings.HasPrefix(id, begin) {
			return false
		}
	}
	return strings.HasPrefix(id, c.Begins)
}

// Shown is a public id of the channel as an operator reads it: "*" with how the
// ids begin that it lets through.
func (c *Channel) Shown(id string) string {
	if id == everyModel {
		return c.Begins + everyModel
	}
	return id
}
