package gateway

import (
	"context"
	"slices"

	"github.com/tollhouse-ai/gateway/internal/session"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Affinity says which calls of a model belong to one session. The calls of a session
// are sent to the same channel with the same key, as long as both can serve: a vendor
// keeps a prompt cache for each of its accounts, and what it has there costs less.
type Affinity string

// The values of Affinity, as the configuration file spells them.
const (
	AffinitySession Affinity = "session" // those whose clients name the same session: the default
	AffinityPrefix  Affinity = "prefix"  // and, where no client names one, those that begin alike
	AffinityOff     Affinity = "off"     // none
)

// Affinities are all values, as the configuration file spells them.
func Affinities() []string {
	return []string{string(AffinitySession), string(AffinityPrefix), string(AffinityOff)}
}

func (a Affinity) known() bool { return slices.Contains(Affinities(), string(a)) }

// IsSessionName reports whether a text can name a session: it has from 1 to 256 visible
// ASCII characters. Others are taken for none.
func IsSessionName(name string) bool { return session.IsName(name) }

type sessionContext struct{}

// WithSession returns a context in which requests for text belong to a session of the
// caller's account, as [Caller.Session] does: in process, where there are no headers.
func WithSession(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, sessionContext{}, name)
}

// sessionName is what the caller names the request's session beside its body; empty for
// none.
func (c *Caller) sessionName(ctx context.Context) string {
	name := c.Session
	if !session.IsName(name) {
		name, _ = ctx.Value(sessionContext{}).(string)
	}
	if !session.IsName(name) {
		return ""
	}
	return name
}

// session returns the session that the call belongs to; zero for none.
func (e *Entry) session() (none upstream.Session) {
	if e.info.Session == nil || e.model.Affinity == AffinityOff {
		return none
	}
	r := session.Request{Name: e.sessionName, User: e.info.User, Body: e.info.Session}
	return upstream.Session(session.Of(r, &e.g.sessionKey, e.principal.Account, e.model.Affinity == AffinityPrefix))
}

// The values of [RequestEvent.Affinity].
const (
	affinityHit   = "hit"
	affinityMoved = "moved"
	affinityNone  = "none"
)

// affinity is what became of a call's session when it was answered.
func affinity(s upstream.Session, reply *upstream.Reply) string {
	switch {
	case s == upstream.Session{}:
		return affinityNone
	case reply.Moved:
		return affinityMoved
	}
	return affinityHit
}
