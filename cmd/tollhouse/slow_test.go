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
	do := func(patience time.Duration, args ...string) result {
		var stdout, stderr bytes.Buffer
		p := &program{env: environment{}.lookup, stdout: &stdout, stderr: &stderr, patience: patience}
		code := p.run(t.Context(), append(args, "--data", data, "--admin", host))
		return result{code, stdout.String(), stderr.String()}
	}
	verified := make(chan result, 1)
	go func() { verified <- do(2*time.Second, "ledger", "verify") }()
	<-verifying
	r := do(2*time.Second, "usage")
	if want := "tollhouse usage: the server at " + host + " did not answer in 2s\n"; r.code != exitRefused || r.stderr != want {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	if r := do(100*time.Millisecond, "account", "create", "a"); !strings.Contains(r.stderr, "did not answer in 100ms: look whether the change was made") {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	close(release)
	if r := <-verified; r.code != exitDone || !strings.Contains(r.stdout, "sound") {
		t.Errorf("verify: %d %q", r.code, r.stderr)
	}
}
