package upstream

import (
	"context"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// spared is a channel's upstream, which gets its own id of the model and none of
// the fields that its channel spares it.
type fieldFilter struct {
	*channel
	model []byte // the upstream's id as JSON; nil for the public one
}

// Unwrap lets the upstream itself say what it supports.
func (s *fieldFilter) Unwrap() Upstream { return s.Upstream }

// Do asks the upstream, unless what it refuses may not be left out.
func (s *fieldFilter) Do(ctx context.Context, call *Call) (*Reply, error) {
	if !call.Body.Editable() || s.model == nil && len(s.Drop) == 0 && len(s.renames) == 0 {
		return s.Upstream.Do(ctx, call)
	}
	edited := *call
	dropped, refusal := s.edit(&edited)
	if refusal != nil {
		return nil, NotSent(refusal)
	}
	if s.model != nil {
		edited.Body = edited.Body.Set("model", s.model)
	}
	reply, err := s.Upstream.Do(ctx, &edited)
	if err == nil && reply != nil && len(dropped) > 0 {
		told := *reply
		told.Dropped = slices.Concat(dropped, reply.Dropped)
		reply = &told
	}
	return reply, err
}

// NotSent marks the refusal of a call that never went to its upstream, because
// it cannot be put into the upstream's words. It says nothing of the upstream's
// health.
func NotSent(refusal *fault.Error) error { return &notSentError{refusal} }

type notSentError struct{ fault *fault.Error }

func (u *notSentError) Error() string { return u.fault.Error() }
func (u *notSentError) Unwrap() error { return u.fault }

// edit makes the changes that the channel's upstream needs, and lists what a
// caller asked for and will not get. It fails where that may not be left out.
func (c *channel) edit(call *Call) (dropped []string, err *fault.Error) {
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

// several reports whether n asks for anything but one candidate.
func wantsSeveral(n []byte) bool {
	count, ok := rawjson.Int(n)
	return !rawjson.IsNull(n) && (!ok || count != 1)
}
