package server_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// pausingVendor is the simulator, whose streams of one model end only when they may.
type pausingVendor struct {
	*sim.Upstream
	next chan struct{}
}

// Do implements [upstream.Upstream].
func (v *pausingVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Model != "delta-k3" {
		return v.Upstream.Do(ctx, call)
	}
	const chunk = `data: {"id":"u","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"`
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, chunk+`begins"},"finish_reason":null}]}`+"\n\n")
		select {
		case <-v.next:
		case <-ctx.Done():
		}
		_, _ = io.WriteString(out, chunk+`ends"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		_ = out.Close()
	}()
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in}, nil
}

// TestAPageOfAnotherOriginCallsFromABrowser opens a page in Chromium from an address
// that is not the gateway's, once under the origin that may call and once under another
// name of the same address.
func TestAPageOfAnotherOriginCallsFromABrowser(t *testing.T) {
	dir := os.Getenv("BROWSER_CHECKS")
	if dir == "" {
		t.Skip("BROWSER_CHECKS is not set: .ci/browser/run does it")
	}
	vendor := &pausingVendor{sim.New(sim.Options{}), make(chan struct{}, 1)}
	s := newFixture(t, fixtureOptions{upstream: vendor, key: auth.KeyOptions{Limits: auth.Limits{RPM: 1000}}})
	saw := make(chan map[string]string, 1)
	pages := http.NewServeMux()
	pages.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><script type="module" src="/page.js"></script>`)
	})
	pages.HandleFunc("GET /page.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(dir, "page.js")) })
	pages.HandleFunc("GET /case.json", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"gateway": s.url, "key": s.key.Reveal(), "refused": strings.HasPrefix(r.Host, "localhost")})
	})
	pages.HandleFunc("POST /next", func(http.ResponseWriter, *http.Request) { vendor.next <- struct{}{} })
	pages.HandleFunc("POST /saw", func(_ http.ResponseWriter, r *http.Request) {
		var cases map[string]string
		_ = json.NewDecoder(r.Body).Decode(&cases)
		saw <- cases
	})
	app := httptest.NewServer(pages)
	defer app.Close()
	s.h.SetCORS([]string{app.URL})

	for name, c := range map[string]struct {
		page string
		want map[string]string
	}{
		"the page that may call": {app.URL, map[string]string{
			"whole":                     "200, true, x-request-id, x-gateway-charge, x-ratelimit-remaining-requests",
			"streamed":                  "200, text/event-stream, true, true",
			"another key":               "401, unauthorized",
			"no such path":              "404",
			"a header of a proxy":       "TypeError",
			"the browser's credentials": "TypeError",
			"openai, whole":             "true, true",
			"openai, streamed":          "true",
			"openai, another key":       "AuthenticationError, 401, unauthorized",
			"anthropic, whole":          "true, true",
			"anthropic, streamed":       "true",
		}},
		"another page": {strings.Replace(app.URL, "127.0.0.1", "localhost", 1), map[string]string{
			"whole": "TypeError", "openai, whole": "APIConnectionError",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := openPage(t, c.page, saw)
			for _, name := range slices.Sorted(maps.Keys(c.want)) {
				if got[name] != c.want[name] {
					t.Errorf("%s: the page saw %q, want %q", name, got[name], c.want[name])
				}
			}
		})
	}
}

// openPage opens a page in Chromium, and returns what it saw.
func openPage(t *testing.T, url string, saw <-chan map[string]string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	profile, err := os.MkdirTemp("", "tollhouse-browser-*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(profile) }() // into which a process of the browser may still write
	// The checks may run as root, for whom Chromium has no sandbox. The page is ours.
	browser := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--no-proxy-server", "--disable-background-networking", "--user-data-dir="+profile, "--remote-debugging-port=0", url)
	browser.Env = append(os.Environ(), "HOME="+profile)
	browser.Cancel = func() error { return browser.Process.Signal(syscall.SIGTERM) } // which ends its other processes too
	browser.WaitDelay = 10 * time.Second
	ended := make(chan error, 1)
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- browser.Wait() }()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case cases := <-saw:
		return cases
	case err := <-ended:
		ended <- err
		t.Fatalf("the browser ended: %v", err)
	case <-ctx.Done():
		t.Fatal("the page did not say what it saw")
	}
	return nil
}
