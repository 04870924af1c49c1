package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// token is that of the admin APIs.
const token = "admin-0123456789"

// auditedAdmin is an admin API with the account acme, and its log.
func auditedAdmin(t *testing.T) (h http.Handler, log *bytes.Buffer) {
	t.Helper()
	ledger, log := memory.NewLedger(memory.LedgerOptions{}), new(bytes.Buffer)
	if err := ledger.CreateAccount(t.Context(), "acme", 0); err != nil {
		t.Fatal(err)
	}
	return NewAdmin(AdminOptions{
		Token: secret.New(token), Accounts: ledger, Keys: new(memory.Keys), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}), log
}

// askAdmin sends a request with a token.
func askAdmin(h http.Handler, method, path, body, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("User-Agent", "probe")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Whatever changes something leaves one line of who wanted what, and what came
// of it: done or refused.
func TestEveryAdminRequestThatChangesSomethingIsAudited(t *testing.T) {
	seen := map[string]bool{}
	for _, route := range adminTable {
		shows := strings.HasSuffix(route.path, "/webhook-secret")
		if changes := route.method != http.MethodGet; (changes || shows) != (route.action != "") {
			t.Errorf("%s %s has the action %q", route.method, route.path, route.action)
		}
		if route.action != "" && seen[route.action] {
			t.Errorf("the action %s is there twice", route.action)
		}
		seen[route.action] = true
		h, log := auditedAdmin(t)
		for _, given := range []string{"wrong", token} {
			askAdmin(h, route.method, strings.ReplaceAll(route.path, "{name}", "acme"), "{}", given)
			want := 0
			if given == token && route.action != "" {
				want = 1
			}
			if n := strings.Count(log.String(), "msg=audit"); n != want {
				t.Errorf("%s %s with %q: %d lines of audit:\n%s", route.method, route.path, given, n, log)
			}
		}
		for _, part := range []string{"action=" + route.action + " outcome=", `by="admin token" remote=192.0.2.1:1234 agent=probe`} {
			if route.action != "" && !strings.Contains(log.String(), part) {
				t.Errorf("%s: no %q in %s", route.action, part, log)
			}
		}
		if named := strings.Contains(route.path, "{name}"); route.action != "" && named && !strings.Contains(log.String(), "target=acme") {
			t.Errorf("%s names no target: %s", route.action, log)
		}
	}
}

func TestTheAuditLogTellsWhatCameOfIt(t *testing.T) {
	h, log := auditedAdmin(t)
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/accounts", `{"name":"beta","credit":"5"}`, `action=account.create outcome=done .* target=beta credit=5.00`},
		{"POST", "/accounts", `{"name":"beta"}`, `action=account.create outcome=invalid_request_error .* target=beta`},
		{"POST", "/accounts/acme/credit", `{"amount":"2","reference":"r"}`, `outcome=done .* target=acme amount=2.00 reference=r`},
		{"POST", "/keys", `{"account":"acme","name":"ci"}`, `action=key.create outcome=done .* account=acme target=key_`},
		{"DELETE", "/keys/key_none", "", `action=key.delete outcome=not_found .* target=key_none`},
		{"POST", "/reload", "", `action=reload outcome=invalid_request_error`},
		// A key in place of a name is the likeliest of mistakes.
		{"DELETE", "/keys/sk-hidden", "", `action=key.delete outcome=not_found .* target=\[secret\]`},
		{"POST", "/accounts", `{"name":"sk-hidden"}`, `action=account.create outcome=.* target=\[secret\]`},
		{"POST", "/keys", `{"account":"sk-hidden"}`, `action=key.create outcome=.* account=\[secret\]`},
	} {
		log.Reset()
		askAdmin(h, c.method, "/admin/v1"+c.path, c.body, token)
		if line := strings.ReplaceAll(log.String(), "\n", ""); !regexp.MustCompile(c.want).MatchString(line) || strings.Contains(line, "sk-hidden") {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, line)
		}
	}
}

func TestANameInThePathMayHoldASlash(t *testing.T) {
	for path, want := range map[string]string{
		"a": "a", "a%2Fb": "a/b", "%20": "\" \"", "%25": "%", "": "", "a/b": "", "a/": "", "..": "", "a//b": "",
	} {
		h, log := auditedAdmin(t)
		w := askAdmin(h, "POST", "/admin/v1/keys/"+path+"/enable", "", token)
		if w.Code != http.StatusNotFound || w.Header().Get("Location") != "" {
			t.Errorf("%s: %d, Location %q", path, w.Code, w.Header().Get("Location"))
		}
		got := ""
		if _, rest, ok := strings.Cut(log.String(), "target="); ok {
			got = strings.TrimSpace(rest)
		}
		if got != want {
			t.Errorf("%s: the name is %s, want %s", path, got, want)
		}
	}
}
