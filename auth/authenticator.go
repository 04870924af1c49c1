package auth

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Keys is the [Authenticator] over a [KeyStore]. Set the fields before the
// first use; it is safe for concurrent use and must not be copied.
type Keys struct {
	Store KeyStore         // required
	Now   func() time.Time // the clock that keys expire by; nil means time.Now

	defaults atomic.Pointer[Limits]
}

// SetDefaults sets the limits of every key without limits of its own. It takes effect from the
// next Authenticate, and is safe to call while others run.
func (a *Keys) SetDefaults(l Limits) { a.defaults.Store(&l) }

// Authenticate implements [Authenticator]. A known and an unknown token cost the same:
// one hash and one look-up by it. So the time taken reveals nothing about the keys.
func (a *Keys) Authenticate(ctx context.Context, token string) (*Principal, error) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return nil, fault.New(fault.Unauthorized, `No API key was sent, or one that does not begin with sk-: send a key of this service as "Authorization: Bearer sk-…" or as "x-api-key: sk-…".`)
	}
	k, err := a.Store.Find(ctx, HashOf(token))
	if err != nil {
		return nil, unfound(ctx, err)
	}
	if k == nil {
		return nil, unknown()
	}
	if err := a.refusal(k); err != nil {
		return nil, err
	}
	return a.principal(k), nil
}

// refusal returns why a known key must not be used, or nil if it may be used.
func (a *Keys) refusal(k *Key) error {
	if k.Disabled {
		return fault.New(fault.PermissionDenied, "This API key is disabled.")
	}
	if k.expired(clock(a.Now)) {
		return fault.New(fault.PermissionDenied, "This API key expired at "+k.Expires.UTC().Format(time.RFC3339)+".")
	}
	return nil
}

// principal is the one allocation of an authentication. It is cheaper than a
// cache, which would have to notice every change of a key and of the defaults.
func (a *Keys) principal(k *Key) *Principal {
	limits := k.Limits
	if d := a.defaults.Load(); d != nil {
		limits = limits.or(*d)
	}
	return &Principal{Account: k.Account, Key: k.ID, Name: k.Name, Models: k.Models, Limits: limits}
}

// unfound turns a store's error into the caller's. Only the store's word that
// there is no such key is a 401: a client told so would throw its key away.
func unfound(ctx context.Context, err error) error {
	var known *fault.Error
	switch {
	case fault.Is(err, fault.NotFound):
		return unknown()
	case errors.As(err, &known):
		return known
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.From(ctx.Err())
	}
	e := fault.Wrap(fault.ServiceUnavailable, "API keys cannot be checked at the moment. Try again shortly.", err)
	return e.With(func(e *fault.Error) { e.RetryAfter = time.Second })
}

func unknown() error {
	return fault.New(fault.Unauthorized, `This API key is not known here: send the header "Authorization: Bearer sk-…" with a key of this service, whole and unchanged.`)
}
