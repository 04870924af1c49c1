package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A check of the ledger begins, then another command runs out of time: the check
// has had more time than that, and still gets its answer.
func TestACommandThatWaitsInVainSaysSoAndACheckOfTheLedgerMayLast(t *testing.T) {
	verifying, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/admin/v1/server", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	mux.HandleFunc("/admin/v1/ledger/verify", func(w http.ResponseWriter, _ *http.Request) {
		close(verifying)
		<-release
		fmt.Fprint(w, `{}`)
	})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before its end the server does not see that the client is gone
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	host, data := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	if _, err := ensureToken(data); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) <-chan result {
		ended := make(chan result, 1)
		go func() {
			var stdout, stderr bytes.Buffer
			// In that time the server has to be found.
			p := &program{env: environment{}.lookup, stdout: &stdout, stderr: &stderr, timeout: 5 * time.Second}
			code := p.run(t.Context(), append(args, "--data", data, "--admin", host))
			ended <- result{code, stdout.String(), stderr.String()}
		}()
		return ended
	}
	verified := do("ledger", "verify")
	<-verifying
	used, created := do("usage"), do("account", "create", "a")
	if r, want := <-used, "tollhouse usage: the server at "+host+" did not answer in 5s\n"; r.code != exitFailed || r.stderr != want {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	if r := <-created; !strings.Contains(r.stderr, "did not answer in 5s: look whether the change was made") {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	close(release)
	if r := <-verified; r.code != exitOK || !strings.Contains(r.stdout, "sound") {
		t.Errorf("verify: %d %q", r.code, r.stderr)
	}
}
