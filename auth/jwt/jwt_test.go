package jwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/auth/jwt"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/server"
)

const issuer = "https://login.example.com"

// provider is an identity provider that is asked in process.
type provider struct {
	oidctest.Server
	down    atomic.Bool
	fetched atomic.Int64 // requests for keys
}

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/keys") {
		p.fetched.Add(1)
	}
	if p.down.Load() {
		return nil, errors.New("no route to host")
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

// key is a new key of the provider, which it publishes from now on.
func (p *provider) key(t *testing.T, id string) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.PublicKeys = append(p.PublicKeys, oidctest.PublicKey{PublicKey: k.Public(), KeyID: id, Algorithm: oidc.ES256})
	return k
}

// newProvider is a provider with one key, "k1", and an authenticator of it.
func newProvider(t *testing.T, c jwt.Claims) (*provider, *ecdsa.PrivateKey, *jwt.Authenticator) {
	t.Helper()
	p := &provider{}
	p.SetIssuer(issuer)
	k := p.key(t, "k1")
	a, err := jwt.New(t.Context(), jwt.Options{Issuer: issuer, Audience: "tollhouse", Claims: c, Client: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	return p, k, a
}

// claimsOf are the claims of a good token, with others behind them.
func claimsOf(more string) string {
	return fmt.Sprintf(`{"iss":%q,"aud":"tollhouse","exp":%d,"sub":"user-1"%s}`, issuer, time.Now().Add(time.Hour).Unix(), more)
}

func TestATokenIsAPrincipal(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims jwt.Claims
		token  string // its own claims
		want   *auth.Principal
		denied string // what the refusal names
	}{
		{"without a mapping", jwt.Claims{}, ``, &auth.Principal{Account: "user-1", Key: "user-1"}, ""},
		{"with all", jwt.Claims{Account: "org", Name: "email", Group: "team", Models: "models"},
			`,"org":"acme","email":"ann@acme.example","team":"research","models":["a","b"]`,
			&auth.Principal{Account: "acme", Key: "user-1", Name: "ann@acme.example", Group: "research", Models: []string{"a", "b"}}, ""},
		{"by paths", jwt.Claims{Account: "https://acme.example/org", Group: "groups", Models: "access.tollhouse.models"},
			`,"https://acme.example/org":"acme","groups":["research"],"access":{"tollhouse":{"models":"a b"}}`,
			&auth.Principal{Account: "acme", Key: "user-1", Group: "research", Models: []string{"a", "b"}}, ""},
		{"without what is optional", jwt.Claims{Name: "email", Group: "team"}, ``, &auth.Principal{Account: "user-1", Key: "user-1"}, ""},
		{"without an account", jwt.Claims{Account: "org"}, `,"org":""`, nil, `"org"`},
		{"with an account that is no text", jwt.Claims{Account: "org"}, `,"org":["a"]`, nil, `"org"`},
		{"in two groups", jwt.Claims{Group: "groups"}, `,"groups":["a","b"]`, nil, `"groups"`},
		{"without models", jwt.Claims{Models: "models"}, ``, nil, `"models"`},
		{"with an empty list of models", jwt.Claims{Models: "models"}, `,"models":[]`, nil, `"models"`},
		{"with a long name", jwt.Claims{Name: "email"}, `,"email":"` + strings.Repeat("x", 256) + `"`, nil, "255"},
		{"with a control character", jwt.Claims{Name: "email"}, `,"email":"a\nb"`, nil, "printable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, k, a := newProvider(t, c.claims)
			got, err := a.Authenticate(t.Context(), oidctest.SignIDToken(k, "k1", oidc.ES256, claimsOf(c.token)))
			if c.denied != "" {
				if !errors.Is(err, fault.PermissionDenied) || !strings.Contains(fault.From(err).Message, c.denied) {
					t.Errorf("got %v, want a 403 that names %s", err, c.denied)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v: %s", err, diff)
			}
		})
	}
}

func TestOtherTokensAreRefused(t *testing.T) {
	_, k, a := newProvider(t, jwt.Claims{})
	_, stranger, _ := newProvider(t, jwt.Claims{})
	edwards, err := func() (crypto.PrivateKey, error) { _, k, err := ed25519.GenerateKey(rand.Reader); return k, err }()
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := oidctest.SignIDToken(k, "k1", oidc.ES256, claimsOf(``))
	plain := func(header string) string {
		e := base64.RawURLEncoding.EncodeToString
		return e([]byte(header)) + "." + e([]byte(claimsOf(``))) + "."
	}
	hour := time.Now().Add(time.Hour).Unix()
	for name, token := range map[string]string{
		"none":                           "",
		"an API key":                     "sk-1234567890",
		"three words":                    "a.b.c",
		"too long":                       good + strings.Repeat("x", 20_000),
		"cut":                            good[:len(good)-2],
		"another issuer":                 oidctest.SignIDToken(k, "k1", oidc.ES256, fmt.Sprintf(`{"iss":"https://evil.example","aud":"tollhouse","exp":%d,"sub":"a"}`, hour)),
		"another audience":               oidctest.SignIDToken(k, "k1", oidc.ES256, fmt.Sprintf(`{"iss":%q,"aud":"shop","exp":%d,"sub":"a"}`, issuer, hour)),
		"no audience":                    oidctest.SignIDToken(k, "k1", oidc.ES256, fmt.Sprintf(`{"iss":%q,"exp":%d,"sub":"a"}`, issuer, hour)),
		"expired":                        oidctest.SignIDToken(k, "k1", oidc.ES256, fmt.Sprintf(`{"iss":%q,"aud":"tollhouse","exp":%d,"sub":"a"}`, issuer, hour-7_200)),
		"no expiry":                      oidctest.SignIDToken(k, "k1", oidc.ES256, fmt.Sprintf(`{"iss":%q,"aud":"tollhouse","sub":"a"}`, issuer)),
		"another key with the id":        oidctest.SignIDToken(stranger, "k1", oidc.ES256, claimsOf(``)),
		"a key that is not known":        oidctest.SignIDToken(stranger, "k9", oidc.ES256, claimsOf(``)),
		"no algorithm":                   plain(`{"alg":"none"}`),
		"a shared secret":                plain(`{"alg":"HS256","kid":"k1"}`) + "AAAA",
		"an algorithm that is not taken": oidctest.SignIDToken(rsaKey, "k1", oidc.PS256, claimsOf(``)),
		"Ed25519":                        oidctest.SignIDToken(edwards, "k1", oidc.EdDSA, claimsOf(``)),
	} {
		if p, err := a.Authenticate(t.Context(), token); !errors.Is(err, fault.Unauthorized) || p != nil {
			t.Errorf("%s: got %+v, %v, want a 401", name, p, err)
		}
	}
	if _, err := a.Authenticate(t.Context(), good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestTokensOfRSAAreTaken(t *testing.T) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{}
	p.PublicKeys = []oidctest.PublicKey{{PublicKey: k.Public(), KeyID: "r1", Algorithm: oidc.RS256}}
	p.SetIssuer(issuer)
	a, err := jwt.New(t.Context(), jwt.Options{JWKS: issuer + "/keys", Audience: "tollhouse", Client: &http.Client{Transport: p}})
	if err != nil || p.fetched.Load() != 0 {
		t.Fatalf("%v, after %d requests", err, p.fetched.Load())
	}
	if got, err := a.Authenticate(t.Context(), oidctest.SignIDToken(k, "r1", oidc.RS256, claimsOf(``))); err != nil || got.Account != "user-1" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestKeysAreFetchedSeldomAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k, a := newProvider(t, jwt.Claims{})
		stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		try := func(k *ecdsa.PrivateKey, id string) error {
			token := oidctest.SignIDToken(k, id, oidc.ES256, fmt.Sprintf(`{"iss":%q,"aud":"tollhouse","exp":%d,"sub":"a"}`, issuer, time.Now().Add(100*time.Hour).Unix()))
			_, err := a.Authenticate(t.Context(), token)
			return err
		}
		expect := func(what string, err error, code fault.Code, fetched int64) {
			t.Helper()
			if code == "" && err != nil || code != "" && !errors.Is(err, code) {
				t.Errorf("%s: got %v, want %q", what, err, code)
			}
			if n := p.fetched.Load(); n != fetched {
				t.Errorf("%s: the keys were fetched %d times, want %d", what, n, fetched)
			}
		}
		expect("the first token", try(k, "k1"), "", 1)
		expect("a known key", try(k, "k1"), "", 1)
		for range 100 {
			expect("an unknown key at once", try(stranger, "k9"), fault.Unauthorized, 1)
		}
		time.Sleep(time.Second)
		expect("an unknown key later", try(stranger, "k9"), fault.Unauthorized, 2)
		time.Sleep(time.Second)
		second := p.key(t, "k2")
		expect("a new key", try(second, "k2"), "", 3)

		p.down.Store(true)
		time.Sleep(time.Second)
		expect("an unknown key while the provider is away", try(stranger, "k9"), fault.ServiceUnavailable, 4)
		expect("a known key then", try(k, "k1"), "", 4)
		expect("no new attempt at once", try(stranger, "k9"), fault.ServiceUnavailable, 4)
		for range 100 {
			time.Sleep(time.Second)
			_ = try(stranger, "k9")
		}
		if n := p.fetched.Load(); n < 8 || n > 12 {
			t.Errorf("%d fetches in 100 s while the provider is away, want them to become rare", n)
		}
		time.Sleep(2 * time.Hour)
		if err := try(k, "k1"); err != nil {
			t.Errorf("a known key, after hours: %v", err)
		}

		p.down.Store(false)
		p.PublicKeys = p.PublicKeys[1:] // k1 is withdrawn
		time.Sleep(time.Minute)
		if err := try(second, "k2"); err != nil {
			t.Errorf("after the provider is back: %v", err)
		}
		if err := try(k, "k1"); !errors.Is(err, fault.Unauthorized) {
			t.Errorf("a key that was withdrawn: %v", err)
		}
	})
}

func TestOptionsThatTakeTooMuchAreRefused(t *testing.T) {
	down := &provider{}
	down.down.Store(true)
	for name, o := range map[string]jwt.Options{
		"no audience":           {Issuer: issuer},
		"neither":               {Audience: "a"},
		"a provider that fails": {Issuer: issuer, Audience: "a", Client: &http.Client{Transport: down}},
	} {
		if _, err := jwt.New(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A login of a web page calls the gateway over HTTP with its own token.
func TestATokenIsTakenOverHTTP(t *testing.T) {
	_, k, a := newProvider(t, jwt.Claims{Account: "org"})
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Authenticator = a })
	client := server.Client(server.New(g, server.Options{}))
	for token, want := range map[string]int{
		oidctest.SignIDToken(k, "k1", oidc.ES256, claimsOf(`,"org":"local"`)): 200,
		oidctest.SignIDToken(k, "k1", oidc.ES256, claimsOf(``)):               403,
		"sk-unknown": 401,
	} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://x/v1/chat/completions",
			strings.NewReader(`{"model":"test-model","messages":[{"role":"user","content":"Hi."}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("got %d, want %d", answer.StatusCode, want)
		}
	}
	if got := gatewaytest.Charges(t); len(got) != 1 || got[0].Key != "user-1" {
		t.Errorf("receipts %+v", got)
	}
}
