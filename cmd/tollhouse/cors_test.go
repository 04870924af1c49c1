package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// preflight asks as a browser does whether a page may call, and gives the status and
// what the answer allows.
func (i *instance) preflight(url, origin, method string) (status int, allowed string) {
	i.t.Helper()
	r := read(i.t, servertest.Send(i.t, i.t.Context(), http.DefaultClient, http.MethodOptions, url, "", "Origin: "+origin, "Access-Control-Request-Method: "+method))
	return r.status, r.header.Get("Access-Control-Allow-Origin")
}

func TestThePagesThatMayCallChangeWithTheFile(t *testing.T) {
	const page, other = "https://app.example.com", "http://localhost:3000"
	name := file(t, simConfig("m")+"cors: ["+page+"]\n")
	i := start(t, acme, "--config", name)
	chats := i.api + "/v1/chat/completions"
	check := func(origin string, wantStatus int, want string) {
		t.Helper()
		if status, allowed := i.preflight(chats, origin, "POST"); status != wantStatus || allowed != want {
			t.Errorf("%s: status %d, allowed %q; want %d, %q", origin, status, allowed, wantStatus, want)
		}
	}
	check(page, 204, page)
	check(other, 403, "")
	write(t, name, simConfig("m")+"cors: ["+other+"]\n")
	i.tickTwice()
	check(page, 403, "")
	check(other, 204, other)
	write(t, name, simConfig("m"))
	i.tickTwice()
	check(other, 405, "")
}

// TestNoPageMayCallTheAdminAddress has every origin allowed, on the API alone.
func TestNoPageMayCallTheAdminAddress(t *testing.T) {
	i := start(t, acme, "--config", file(t, simConfig("m")+"cors: [\"*\"]\nmetrics: {public: true}\n"))
	const page = "https://app.example.com"
	for _, path := range []string{"/admin/v1/keys", "/admin/v1/server", "/metrics", "/debug/pprof/heap", "/"} {
		for _, method := range []string{"GET", "POST"} {
			if status, allowed := i.preflight("http://"+i.admin+path, page, method); status/100 != 4 || allowed != "" {
				t.Errorf("%s %s: status %d, allowed %q", method, path, status, allowed)
			}
		}
	}
	if status, allowed := i.preflight(i.api+mcpPath, page, "POST"); status != 403 || allowed != "" {
		t.Errorf("the tools for agents: status %d, allowed %q", status, allowed)
	}
	if !strings.Contains(i.stdout.String(), `Warning: cors: ["*"] lets every web page call`) {
		t.Errorf("the banner does not warn:\n%s", i.stdout)
	}
}
