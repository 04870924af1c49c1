package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
)

// watcher stands in for a collector of OpenTelemetry, and keeps all that it gets.
type watcher struct {
	*httptest.Server
	mu  sync.Mutex
	all bytes.Buffer
}

func newWatcher(t testing.TB) *watcher {
	t.Helper()
	w := new(watcher)
	w.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = fmt.Fprintln(&w.all, r.URL, r.Header)
		_, _ = io.Copy(&w.all, r.Body)
	}))
	t.Cleanup(w.Close)
	return w
}

// section is what a configuration says of it.
func (w *watcher) section() string { return "telemetry: {otlp: \"" + w.URL + "\"}\n" }

func (w *watcher) got() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// metrics is a scrape, which is no part of the API that its document tells of.
func (n *node) metrics() string {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.admin+"/metrics", http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+n.token())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("the scrape was answered with %d (%v): %s", resp.StatusCode, err, text)
	}
	return string(text)
}

// stop ends the node as an operator does.
func (n *node) stop() {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-n.ended
}
