package deploy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// proxy is a proxy whose block in docs/guides/deployment.md is run.
type proxy struct {
	language string // of the block
	program  string
	// config is the whole configuration: the block at an address, in front of a gateway.
	config func(block, dir, at, gateway string) string
	args   func(file, dir string) []string
}

var proxies = map[string]proxy{
	"nginx": {
		"nginx", "nginx",
		func(block, dir, at, gateway string) string {
			var lines []string
			for line := range strings.SplitSeq(block, "\n") {
				if !strings.Contains(line, "ssl_certificate") { // plain HTTP will do for what is tested
					lines = append(lines, strings.ReplaceAll(line, "listen 443 ssl http2", "listen "+at))
				}
			}
			temporary := ""
			for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				temporary += what + "_temp_path " + dir + "/" + what + ";\n"
			}
			return "daemon off; pid " + dir + "/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off;\n" + temporary +
				strings.ReplaceAll(strings.Join(lines, "\n"), "127.0.0.1:8080", gateway) + "\n}\n"
		},
		func(file, dir string) []string { return []string{"-c", file, "-p", dir, "-e", "stderr"} },
	},
	"Caddy": {
		"caddyfile", "caddy",
		func(block, dir, at, gateway string) string {
			return "{\n\tadmin off\n}\n" + strings.NewReplacer("llm.example.com", "http://"+at, "127.0.0.1:8080", gateway).Replace(block)
		},
		func(file, _ string) []string { return []string{"run", "--adapter", "caddyfile", "--config", file} },
	},
}

// block is the block of a language in the page about deployment.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/guides/deployment.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "```"+language+"\n")
	text, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatalf("docs/guides/deployment.md has no block of %s", language)
	}
	return text
}

// start runs the proxy in front of a gateway, and returns its address.
func (p *proxy) start(t *testing.T, gateway string) string {
	t.Helper()
	program, err := exec.LookPath(p.program)
	if err != nil {
		t.Skipf("there is no %s: its block in docs/guides/deployment.md was not run; apt-get install %s", p.program, p.program)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, dir := free.Addr().String(), t.TempDir()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(p.config(block(t, p.language), dir, at, gateway)), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c := exec.Command(program, p.args(file, dir)...)
	c.Stdout, c.Stderr, c.Env = &said, &said, append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		<-ended
	})
	for { // until it listens, or has ended
		if conn, err := net.Dial("tcp", at); err == nil {
			_ = conn.Close()
			return "http://" + at
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", p.program, err, said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestTheProxiesInTheDocsPassAnswersOnAsTheyCome runs the blocks of docs/guides/deployment.md.
func TestTheProxiesInTheDocsPassAnswersOnAsTheyCome(t *testing.T) {
	const upload = 40 << 20
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			next, left := make(chan struct{}), make(chan struct{}, 1)
			gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/audio/edits":
					n, _ := io.Copy(io.Discard, r.Body)
					_, _ = fmt.Fprint(w, n)
				case "/v1/stream", "/v1/audio/speech", "/v1/leave":
					w.Header().Set("Content-Type", map[string]string{"/v1/audio/speech": "audio/mpeg"}[r.URL.Path])
					if r.URL.Path != "/v1/audio/speech" {
						w.Header().Set("Content-Type", "text/event-stream")
						w.Header().Set("X-Accel-Buffering", "no")
					}
					for n := range 3 { // each when the client has the one before
						_, _ = fmt.Fprintf(w, "data: %d\n", n)
						_ = http.NewResponseController(w).Flush()
						select {
						case <-next:
						case <-r.Context().Done():
							left <- struct{}{}
							return
						}
					}
				default:
					_, _ = io.WriteString(w, "admin")
				}
			}))
			defer gateway.Close()
			at := p.start(t, strings.TrimPrefix(gateway.URL, "http://"))

			for _, path := range []string{"/v1/stream", "/v1/audio/speech"} {
				resp, err := http.Get(at + path)
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(resp.Body)
				for n := range 3 {
					if got, err := lines.ReadString('\n'); got != fmt.Sprintf("data: %d\n", n) {
						t.Fatalf("%s: piece %d is %q, %v", path, n, got, err)
					}
					next <- struct{}{}
				}
				_ = resp.Body.Close()
			}

			ctx, leave := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, at+"/v1/leave", nil)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			leave()
			<-left // the gateway notices that the client has disconnected
			_ = resp.Body.Close()

			resp, err = http.Post(at+"/v1/audio/edits", "application/octet-stream", bytes.NewReader(make([]byte, upload)))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(resp.Body); string(got) != fmt.Sprint(upload) {
				t.Errorf("of an upload of %d bytes the gateway got %s (%s)", upload, got, resp.Status)
			}
			_ = resp.Body.Close()

			if resp, err = http.Get(at + "/admin/v1/keys"); err != nil || resp.StatusCode != http.StatusNotFound {
				t.Errorf("/admin: %+v, %v", resp, err)
			}
			_ = resp.Body.Close()
		})
	}
}
