package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
)

// stranger adds an account with a key and gives the header of it.
func (s *fixture) stranger(t *testing.T) string {
	t.Helper()
	if err := s.ledger.CreateAccount(t.Context(), "other", billing.One); err != nil {
		t.Fatal(err)
	}
	key, token, err := auth.NewKey(auth.KeyOptions{Account: "other"})
	if err == nil {
		err = s.keys.Add(t.Context(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + token.Reveal()
}

// spellings of an id are what might be taken for it by a careless reader.
func spellings(id string) []string {
	return []string{
		id, strings.ToLower(id), strings.ToUpper(id), id + "/", "/" + id, "./" + id, "x/../" + id, id + "%00", id + "%20", "%20" + id, id + "?account=1", id + ";account=1", id + "%2f..%2f" + id,
		url.QueryEscape("' OR '1'='1"), url.QueryEscape(`" OR ""="`), "%25", "_", "*", id[:len(id)-1] + "%25", id[:len(id)-1] + "_", id + "%27--", "0", "-1", "null", strings.Repeat("x", 3000),
	}
}

// TestNoIdOfAnotherAccountLeadsAnywhere is docs/faults.md, row 35: two tenants at
// every endpoint that takes an id.
func TestNoIdOfAnotherAccountLeadsAnywhere(t *testing.T) {
	c := newVideoFixture(t, fixtureOptions{}, nil, nil)
	foreign := c.stranger(t)
	_, beta := c.submit(t, boat)
	_, gamma := c.submit(t, gammaBoat)
	done := c.do(t, "POST", "/v1/chat/completions", strings.Replace(small, `"m"`, `"delta-k3"`, 1))
	if done.status != 200 {
		t.Fatalf("%d %s", done.status, done.body)
	}
	ids := map[string]string{"a receipt": done.header.Get("X-Request-Id"), "beta": beta.ID, "gamma": gamma.ID}
	tried := 0
	for _, r := range c.h.Routes() {
		prefix, has := strings.CutSuffix(r.Path, "{id}")
		if !has || prefix == "/v1/models/" { // which belong to nobody
			continue
		}
		tried++
		for name, id := range ids {
			for _, spelled := range spellings(id) {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					a := c.do(t, method, prefix+spelled, "", foreign)
					if a.status != 404 && a.status != 400 || strings.Contains(a.body, "acme") || len(a.body) > 1000 {
						t.Errorf("%s %s%.100s (%s): %d %.500s", method, prefix, spelled, name, a.status, a.body)
					}
				}
				if spelled == id {
					continue
				}
				// Not even the owner is understood in another spelling.
				if a := c.do(t, "GET", prefix+spelled, ""); a.status == 200 && !strings.HasPrefix(spelled, id+"?") {
					t.Errorf("%s%s: %d %s", prefix, spelled, a.status, a.body)
				}
			}
		}
	}
	if tried != 2 {
		t.Errorf("%d routes take an id", tried)
	}
	for _, id := range []string{ids["beta"], ids["gamma"]} {
		if a := c.do(t, "GET", videos+"/"+id, ""); a.status != 200 {
			t.Errorf("its owner: %d %s", a.status, a.body)
		}
	}
	c.finish(t, beta.ID)
	c.finish(t, gamma.ID)
}

// TestAnIdempotencyKeyIsItsAccountsOwn is docs/faults.md, row 35: the same key and
// body of another account is another request.
func TestAnIdempotencyKeyIsItsAccountsOwn(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	foreign := s.stranger(t)
	first := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k")
	again := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k")
	other := s.do(t, "POST", "/v1/chat/completions", small, "Idempotency-Key: k", foreign)
	clash := s.do(t, "POST", "/v1/chat/completions", strings.Replace(small, "hi", "ho", 1), "Idempotency-Key: k", foreign)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("X-Request-Id") != first.header.Get("X-Request-Id") {
		t.Errorf("its own: %v", again.header)
	}
	if other.status != 200 || other.header.Get("Idempotent-Replayed") != "" || other.header.Get("X-Request-Id") == first.header.Get("X-Request-Id") {
		t.Errorf("another account's: %d %v", other.status, other.header)
	}
	if clash.status != 409 || strings.Contains(clash.body, first.header.Get("X-Request-Id")) {
		t.Errorf("another account's second: %d %s", clash.status, clash.body)
	}
	if a := s.do(t, "GET", "/v1/receipts/"+other.header.Get("X-Request-Id"), ""); a.status != 404 {
		t.Errorf("the receipt of another account's call: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/v1/balance", "/v1/usage", "/v1/usage?account=acme", "/v1/balance?account=acme"} {
		if a := s.do(t, "GET", path, "", foreign); a.status == 200 && (strings.Contains(a.body, "acme") || strings.Contains(a.body, `"requests":2`)) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
