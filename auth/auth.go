// Package auth says who makes a request and how much they may use: principals, API keys and
// their limits.
package auth

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Principal is who a request belongs to. It is immutable once handed out.
type Principal struct {
	Account string   // whose balance pays
	Key     string   // the key's id, safe to log; never the key itself
	Name    string   // the key's label
	Group   string   // the key's group within the account; empty for none
	Models  []string // public model ids that the key may use; empty means all
	Limits  Limits
}

// MayUse reports whether the key may use a public model id.
func (p *Principal) MayUse(model string) bool {
	return len(p.Models) == 0 || slices.Contains(p.Models, model)
}

// Limits of one key; zero means none (docs/reference/limits.md).
type Limits struct {
	RPM                 int64 `json:"rpm,omitzero"`                   // requests in a minute of the clock
	TPM                 int64 `json:"tpm,omitzero"`                   // tokens in a minute of the clock
	MaxConcurrent       int64 `json:"max_concurrent,omitzero"`        // requests at once
	MaxConcurrentVideos int64 `json:"max_concurrent_videos,omitzero"` // unfinished video tasks
}

// or returns l with every unset limit taken from other.
func (l Limits) or(other Limits) Limits {
	return Limits{
		RPM:                 cmp.Or(l.RPM, other.RPM),
		TPM:                 cmp.Or(l.TPM, other.TPM),
		MaxConcurrent:       cmp.Or(l.MaxConcurrent, other.MaxConcurrent),
		MaxConcurrentVideos: cmp.Or(l.MaxConcurrentVideos, other.MaxConcurrentVideos),
	}
}

// Authenticator finds the principal behind a bearer token.
//
// It fails with fault.Unauthorized if the token is missing or unknown, and with
// fault.PermissionDenied if its key is disabled or expired. It fails with
// fault.ServiceUnavailable if the store cannot answer. Any other error counts as
// fault.ServiceUnavailable. It is safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (*Principal, error)
}

// Limiter admits requests by the limits of their principal. Implementations
// are safe for concurrent use.
type Limiter interface {
	// Request counts one request of p against its requests per minute. The
	// State is valid also when it fails with fault.RateLimitExceeded.
	Request(ctx context.Context, p *Principal) (State, error)
	// Acquire takes a concurrency slot and counts tokens, an upper bound,
	// against the tokens per minute; both or neither. It fails with
	// fault.RateLimitExceeded. requestID names the slot.
	Acquire(ctx context.Context, p *Principal, requestID string, tokens int64) (Lease, State, error)
}

// Lease is a running request's concurrency slot. Release it exactly once, with
// the tokens that were consumed in the end; later calls do nothing.
type Lease interface {
	Release(tokens int64)
}

// State is what is left of a key's limits, for the x-ratelimit-* headers.
type State struct {
	Requests, Tokens Window
}

// Window is one limit in the current minute of the clock. Limit 0 means unlimited.
type Window struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until the minute ends
}

type contextKey struct{}

// NewContext returns a context that carries p. Calls made in process with it
// belong to p.
func NewContext(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext returns the principal that ctx carries.
func FromContext(ctx context.Context) (*Principal, bool) {
	p, ok := ctx.Value(contextKey{}).(*Principal)
	return p, ok && p != nil
}
