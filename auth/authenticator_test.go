package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// named is a key of the account acme whose secret is "sk-" and its id.
func named(id string) auth.Key {
	return auth.Key{ID: id, Account: "acme", Hash: auth.HashOf("sk-" + id), Created: noon}
}

func stored(t *testing.T, keys ...auth.Key) *memory.Keys {
	t.Helper()
	m := new(memory.Keys)
	for _, k := range keys {
		if err := m.Add(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

var _ auth.Authenticator = (*auth.Keys)(nil)

// storeFunc is a store of one function.
type storeFunc func(ctx context.Context, hash [32]byte) (*auth.Key, error)

func (f storeFunc) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) { return f(ctx, hash) }

func TestAKnownKeyIsItsPrincipal(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme", Name: "ci", Models: []string{"delta-k3"}, Limits: auth.Limits{RPM: 5}})
	a := &auth.Keys{Store: stored(t, k)}
	p, err := a.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	want := &auth.Principal{Account: "acme", Key: k.ID, Name: "ci", Models: []string{"delta-k3"}, Limits: auth.Limits{RPM: 5}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
}

func TestATokenThatIsNoKeyIsRefused(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme"})
	a := &auth.Keys{Store: stored(t, k)}
	for name, bad := range map[string]string{
		"none":          "",
		"no prefix":     strings.TrimPrefix(token, "sk-"),
		"other prefix":  "pk-" + strings.TrimPrefix(token, "sk-"),
		"capitals":      strings.ToUpper(token),
		"only a prefix": "sk-",
		"cut":           token[:len(token)-1],
		"longer":        token + "a",
		"with a space":  token + " ",
		"its id":        k.ID,
		"very long":     "sk-" + strings.Repeat("a", 1<<16),
		"another's":     "sk-" + strings.Repeat("a", 48),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := a.Authenticate(t.Context(), bad)
			if p != nil || !fault.Is(err, fault.Unauthorized) {
				t.Fatalf("Authenticate = %v, %v", p, err)
			}
			f := fault.From(err)
			if !strings.Contains(f.Message, "Authorization: Bearer sk-") || f.RetryAfter != 0 {
				t.Errorf("message %q, retry after %s", f.Message, f.RetryAfter)
			}
			if len(bad) > 10 && strings.Contains(err.Error(), bad) {
				t.Error("the error repeats the token")
			}
		})
	}
}

func TestAStoreIsNotAskedForATokenWithoutThePrefix(t *testing.T) {
	a := &auth.Keys{Store: storeFunc(func(context.Context, [32]byte) (*auth.Key, error) {
		t.Error("the store was asked")
		return nil, nil
	})}
	_, _ = a.Authenticate(t.Context(), "password")
}

func TestADisabledKeyIsForbiddenAtOnce(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme"})
	m := stored(t, k)
	a := &auth.Keys{Store: m}
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	_ = m.SetDisabled(t.Context(), k.ID, true)
	_, err := a.Authenticate(t.Context(), token)
	if !fault.Is(err, fault.PermissionDenied) || fault.From(err).Message != "This API key is disabled." {
		t.Errorf("error = %v", err)
	}
	_ = m.Delete(t.Context(), k.ID)
	if _, err := a.Authenticate(t.Context(), token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("after its deletion: %v", err)
	}
}

func TestAKeyExpiresAtItsTime(t *testing.T) {
	clock := newClock(noon)
	k, token := mint(t, auth.KeyOptions{Account: "acme", Expires: noon.Add(time.Hour), Now: clock.Now})
	a := &auth.Keys{Store: stored(t, k), Now: clock.Now}
	clock.Advance(time.Hour - 1)
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Errorf("a nanosecond before: %v", err)
	}
	clock.Advance(1)
	_, err := a.Authenticate(t.Context(), token)
	if !fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), "expired at 2026-03-01T13:00:00Z") {
		t.Errorf("at its time: %v", err)
	}
}

func TestAKeysOwnLimitsWinOverTheDefaults(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme", Limits: auth.Limits{RPM: 5, MaxConcurrentVideos: 1}})
	a := &auth.Keys{Store: stored(t, k)}
	for _, c := range []struct{ defaults, want auth.Limits }{
		{auth.Limits{}, auth.Limits{RPM: 5, MaxConcurrentVideos: 1}},
		{auth.Limits{RPM: 100, TPM: 200, MaxConcurrent: 3, MaxConcurrentVideos: 4}, auth.Limits{RPM: 5, TPM: 200, MaxConcurrent: 3, MaxConcurrentVideos: 1}},
		{auth.Limits{TPM: 300}, auth.Limits{RPM: 5, TPM: 300, MaxConcurrentVideos: 1}},
	} {
		a.SetDefaults(c.defaults)
		p, err := a.Authenticate(t.Context(), token)
		if err != nil || p.Limits != c.want {
			t.Errorf("with the defaults %+v: %+v, %v; want %+v", c.defaults, p, err, c.want)
		}
	}
}

func TestAStoreThatCannotSayIsNeverA401(t *testing.T) {
	_, token := mint(t, auth.KeyOptions{Account: "acme"})
	own := &fault.Error{Code: fault.ServiceUnavailable, Message: "Back soon.", RetryAfter: 3 * time.Second}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		key   *auth.Key
		err   error
		code  fault.Code
		after time.Duration
	}{
		"any error":          {t.Context(), nil, errors.New("connection refused"), fault.ServiceUnavailable, time.Second},
		"its own time-out":   {t.Context(), nil, context.DeadlineExceeded, fault.ServiceUnavailable, time.Second},
		"its own fault":      {t.Context(), nil, own, fault.ServiceUnavailable, 3 * time.Second},
		"the client is gone": {gone, nil, context.Canceled, fault.ClientGone, 0},
		"there is no key":    {t.Context(), nil, fault.New(fault.NotFound, "none"), fault.Unauthorized, 0},
		"neither":            {t.Context(), nil, nil, fault.Unauthorized, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &auth.Keys{Store: storeFunc(func(context.Context, [32]byte) (*auth.Key, error) { return c.key, c.err })}
			p, err := a.Authenticate(c.ctx, token)
			if p != nil || !fault.Is(err, c.code) || fault.From(err).RetryAfter != c.after {
				t.Errorf("Authenticate = %v, %#v; want %s after %s", p, err, c.code, c.after)
			}
			if strings.Contains(fault.From(err).Message, "refused") {
				t.Errorf("the caller is told of the inside: %q", fault.From(err).Message)
			}
		})
	}
}

func TestAnAuthenticationCostsOneAllocation(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme", Models: []string{"delta-k3"}, Expires: time.Now().Add(time.Hour)})
	a := &auth.Keys{Store: stored(t, k)}
	a.SetDefaults(auth.Limits{RPM: 10})
	if n := testing.AllocsPerRun(100, func() { _, _ = a.Authenticate(context.Background(), token) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
