// Package jwt lets callers in by JSON Web Tokens that an identity provider has signed, such as
// Keycloak, Auth0, Entra ID or Google:
//
//	a, err := jwt.New(ctx, jwt.Options{
//		Issuer: "https://login.example.com/realms/main", Audience: "tollhouse",
//		Claims: jwt.Claims{Account: "org", Name: "email"},
//	})
//	…
//	g, err := gateway.New(gateway.Options{Authenticator: a, …})
//
// A claim of the token names the account that pays. The account has to exist: see
// billing.Accounts.EnsureAccount.
package jwt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Options say whose tokens are taken, and what they say of a caller.
type Options struct {
	// Issuer is the provider: the "iss" that tokens must have. Its keys are found by OIDC
	// discovery, unless JWKS is set.
	Issuer string
	// JWKS is the address of the provider's keys. With it, Issuer can be empty, and is then
	// not checked.
	JWKS string
	// Audience is the "aud" that tokens must have. Required.
	Audience string
	// Claims are the names of the claims that make a principal.
	Claims Claims
	// Client asks the provider; nil means a client with a time-out of 10 s.
	Client *http.Client
	// Now is the clock that tokens expire by; nil means time.Now.
	Now func() time.Time
}

// Claims are names of claims. One within another is named by a path: "resource.role". An empty
// name reads nothing, but for Account.
type Claims struct {
	Account string // whose balance pays; empty means "sub". A token without it is refused
	Name    string // the label of the key, in logs and reports
	Group   string // the key's group: a string, or a list of one
	// Models are the public model ids that the caller may use: a list, or a text with spaces
	// between. A token without them is refused.
	Models string
}

// Authenticator takes tokens. It is safe for concurrent use.
type Authenticator struct {
	verifier *oidc.IDTokenVerifier
	claims   Claims
}

// New returns an Authenticator. It asks the provider where its keys are, unless Options.JWKS
// says so, and fails if that fails. ctx bounds only this request.
//
// Tokens are signed by RS256, RS384, RS512, ES256, ES384 or ES512. The provider's keys are
// fetched when a token names one that is not known: at most once a second, and less often while
// that fails. Known keys are kept while it fails, and are asked for again once an hour.
func New(ctx context.Context, o Options) (*Authenticator, error) {
	if o.Audience == "" {
		return nil, errors.New("jwt: Options.Audience is empty: tokens for other services would be taken")
	}
	if o.Issuer == "" && o.JWKS == "" {
		return nil, errors.New("jwt: Options.Issuer and Options.JWKS are empty: set one of them")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Claims.Account == "" {
		o.Claims.Account = "sub"
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if o.JWKS == "" {
		provider, err := oidc.NewProvider(oidc.ClientContext(ctx, o.Client), o.Issuer)
		if err != nil {
			return nil, fmt.Errorf("jwt: discovery of %s: %w", o.Issuer, err)
		}
		var found struct {
			JWKS string `json:"jwks_uri"`
		}
		if err := provider.Claims(&found); err != nil || found.JWKS == "" {
			return nil, errors.Join(fmt.Errorf("jwt: %s names no keys (jwks_uri)", o.Issuer), err)
		}
		o.JWKS = found.JWKS
	}
	return &Authenticator{claims: o.Claims, verifier: oidc.NewVerifier(o.Issuer, newKeys(o.JWKS, o.Client, o.Now), &oidc.Config{
		ClientID: o.Audience, SkipIssuerCheck: o.Issuer == "", Now: o.Now,
		SupportedSigningAlgs: []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512},
	})}, nil
}

// Authenticate implements [auth.Authenticator]. It fails with fault.Unauthorized for a token that
// is malformed, expired, or not of this issuer and audience. It fails with
// fault.PermissionDenied for one whose claims make no principal, and with
// fault.ServiceUnavailable while a key that is not known cannot be fetched. Principal.Key is the
// token's "sub".
func (a *Authenticator) Authenticate(ctx context.Context, token string) (*auth.Principal, error) {
	const longest = 16 << 10
	if strings.Count(token, ".") != 2 || len(token) > longest {
		return nil, fault.New(fault.Unauthorized, `No token was sent, or one that is no JSON Web Token: send "Authorization: Bearer" with a token of your login.`)
	}
	var fetch error // why the keys could not be fetched, if they had to
	verified, err := a.verifier.Verify(context.WithValue(ctx, fetchError{}, &fetch), token)
	var expired *oidc.TokenExpiredError
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, fault.From(ctx.Err())
	case fetch != nil:
		e := fault.Wrap(fault.ServiceUnavailable, "Tokens cannot be checked at the moment. Try again shortly.", fetch)
		return nil, e.With(func(e *fault.Error) { e.RetryAfter = time.Second })
	case errors.As(err, &expired):
		return nil, fault.Wrap(fault.Unauthorized, "The token has expired, or has no time at which it does. Log in again.", err)
	case err != nil:
		return nil, fault.Wrap(fault.Unauthorized, "The token is not valid here: it is malformed, not signed by this login, or meant for another service.", err)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return nil, fault.Wrap(fault.Unauthorized, "The token's claims cannot be read.", err)
	}
	return a.principal(verified.Subject, claims)
}

// principal makes a principal of claims.
func (a *Authenticator) principal(subject string, claims map[string]any) (*auth.Principal, error) {
	p := &auth.Principal{Key: subject}
	for _, c := range []struct {
		to             *string
		claim          string
		list, required bool
	}{
		{&p.Account, a.claims.Account, false, true}, {&p.Name, a.claims.Name, false, false}, {&p.Group, a.claims.Group, true, false},
	} {
		v := lookup(claims, c.claim)
		if list, ok := v.([]any); ok && c.list && len(list) == 1 {
			v = list[0]
		}
		text, ok := v.(string)
		if !ok && v != nil || text == "" && c.required {
			return nil, fault.New(fault.PermissionDenied, fmt.Sprintf("The token's claim %q is missing, or not a text.", c.claim))
		}
		*c.to = text
	}
	if a.claims.Models != "" {
		switch v := lookup(claims, a.claims.Models).(type) {
		case string:
			p.Models = strings.Fields(v)
		case []any:
			for _, one := range v {
				if id, ok := one.(string); ok {
					p.Models = append(p.Models, id)
				}
			}
		}
		if len(p.Models) == 0 {
			return nil, fault.New(fault.PermissionDenied, fmt.Sprintf("The token's claim %q names no model.", a.claims.Models))
		}
	}
	const longest = 255
	for _, text := range []string{p.Account, p.Key, p.Name, p.Group} {
		if len(text) > longest || !safetext.IsPrintable(text) {
			return nil, fault.New(fault.PermissionDenied, "A claim of the token is longer than 255 bytes, or not printable.")
		}
	}
	return p, nil
}

// lookup is a claim by its name, or by a path of names; nil if there is none.
func lookup(claims map[string]any, name string) any {
	if name == "" {
		return nil
	}
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, path := strings.Cut(name, ".")
	inner, ok := claims[first].(map[string]any)
	if !path || !ok {
		return nil
	}
	return lookup(inner, rest)
}
