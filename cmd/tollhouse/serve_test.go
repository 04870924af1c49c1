package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// The data directory shows whose word counts: the token is made there.
func TestAFlagBeatsTheEnvironmentAndThatTheFile(t *testing.T) {
	base := t.TempDir()
	dir := func(name string) string { return filepath.Join(base, name) }
	config := file(t, simConfig("m")+"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndata: "+dir("file")+"\n")
	for _, c := range []struct {
		want string
		env  environment
		args []string
	}{
		{"file", nil, nil},
		{"env", environment{"TOLLHOUSE_DATA": dir("env")}, nil},
		{"flag", environment{"TOLLHOUSE_DATA": dir("env")}, []string{"--data", dir("flag")}},
	} {
		t.Run(c.want, func(t *testing.T) {
			env := environment{"ACME_KEY": acme["ACME_KEY"], "TOLLHOUSE_CONFIG": config}
			maps.Copy(env, c.env)
			stdout := new(servertest.Output)
			p := &program{env: env.lookup, stdout: stdout, stderr: new(servertest.Output), signals: make(chan os.Signal, 1)}
			ended := make(chan int, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- p.run(ctx, append([]string{"serve"}, c.args...)); _ = stdout.Close() }()
			if stdout.Await("API") == nil {
				t.Fatalf("serve ended with %d: %s", <-ended, p.stderr)
			}
			cancel()
			if code := <-ended; code != exitOK {
				t.Errorf("exit code %d", code)
			}
			info, err := os.Stat(filepath.Join(dir(c.want), tokenFile))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the token: %v, %v", info, err)
			}
			if err := os.RemoveAll(dir(c.want)); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(base); len(left) > 0 {
				t.Errorf("something was written to %s too", left[0].Name())
			}
		})
	}
}

const vendorAnswer = `{"id":"c1","object":"chat.completion","created":1,"model":"kimi-k3","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

// vendorAnswerOf is vendorAnswer from another model.
func vendorAnswerOf(model string) string {
	return strings.Replace(vendorAnswer, "kimi-k3", model, 1)
}

func TestTheBannerWarnsOfWhatIsUnsafe(t *testing.T) {
	quiet := start(t, acme, "--config", file(t, simConfig("m")))
	if strings.Contains(quiet.stdout.String(), "Warning") {
		t.Errorf("a warning for nothing:\n%s", quiet.stdout)
	}
	keyless := strings.Replace(simConfig("m"), ", keys: [{env: ACME_KEY}]", "", 1)
	keyless += "webhooks: {allow_private: true}\n"
	i := start(t, nil, "--config", file(t, keyless), "--listen", "0.0.0.0:0", "--admin", "[::]:0")
	for _, want := range []string{
		"there are no API keys yet: `tollhouse key create --account acme --config ", "plain HTTP on [::]:", "admin token travels in plain HTTP", "webhooks.allow_private lets every key",
	} {
		if !strings.Contains(i.stdout.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, i.stdout)
		}
	}
	if !strings.Contains(i.stdout.String(), "http://127.0.0.1:") {
		t.Errorf("the banner names no address to go to:\n%s", i.stdout)
	}
	refusing := newFakeVendor(t, 401, `{"error":{"message":"no","code":"invalid_api_key"}}`)
	i = start(t, environment{"OPENAI_API_KEY": "sk-wrong-0123456789", "OPENAI_BASE_URL": refusing.url})
	const want = "Warning: the vendor of channel openai refuses its key (status 401), so calls through it fail: set OPENAI_API_KEY to a valid one."
	if !strings.Contains(i.stdout.String(), want) || strings.Contains(i.stdout.String(), "sk-wrong") {
		t.Errorf("a key that is refused:\n%s", i.stdout)
	}
}

func TestServeRefusesToStartAndSaysWhy(t *testing.T) {
	i := serving(t) // whose addresses and store are taken
	taken, free := strings.TrimPrefix(i.api, "http://"), []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	with := func(line string) []string { return []string{"--config", file(t, simConfig("m")+line+"\n")} }
	for _, c := range []struct {
		name string
		env  environment
		args []string
		want string
	}{
		{"nothing to serve", nil, nil, "`tollhouse serve --demo`"},
		{"a wrong address of a preset", environment{"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "nowhere"}, nil, `channel "openai"`},
		{"the API's address is taken", nil, []string{"--demo", "--listen", taken}, "choose another address with --listen"},
		{"the admin address is taken", nil, []string{"--demo", "--admin", taken}, "choose another address with --admin"},
		{"an address without a host", nil, []string{"--demo", "--listen", "8080"}, "serve: --listen takes HOST:PORT, such as 127.0.0.1:8080\n"},
		{"an admin address without a port", nil, []string{"--demo", "--admin", "localhost"}, "serve: --admin takes HOST:PORT, such as 127.0.0.1:8081\n"},
		{"both addresses are taken", nil, []string{"--demo", "--listen", taken, "--admin", i.admin}, "in use); cannot listen on " + i.admin + ": choose another address with --admin"},
		{"one address for both", nil, []string{"--demo", "--listen", "0.0.0.0:8080", "--admin", "127.0.0.1:8080"}, "--listen and --admin are both 0.0.0.0:8080: give one of them another address\n"},
		{"the database is open elsewhere", acme, append(with(""), "--data", i.data), "Another process has this database open"},
		{"a database that cannot be reached", acme, with("store: 'postgres://tollhouse:hunter2@127.0.0.1:1/books'"), "postgres://tollhouse@127.0.0.1:1/books cannot be opened"},
		{"a path that is no file", acme, with("store: sqlite:/dev/null/x.db"), "sqlite:/dev/null/x.db cannot be opened"},
		{"an address that cannot be read", acme, with("store: 'postgres://[::1'"), "postgres: cannot be opened"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--data", t.TempDir()}, free...)
			r := tollhouse(t, c.env, append(args, c.args...)...)
			if r.code != exitFailed || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.stderr, "hunter2") || strings.Count(r.stderr, "connection refused") > 1 {
				t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
			}
		})
	}
}

func TestLogsAreOneJSONObjectALine(t *testing.T) {
	i := start(t, acme, "--config", file(t, simConfig("m")), "--log-format", "json")
	calls(i, "m")
	i.stop()
	n := 0
	for line := range strings.Lines(i.stderr.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if fields["msg"] == "request" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d lines for one request:\n%s", n, i.stderr)
	}
}

// slowStream is a server with one stream, of which the test says every word: it goes
// on for as long as the test likes, however slow the machine is. The server's
// other model answers at once.
type slowStream struct {
	*instance
	words  chan string // for the vendor; closed, it ends the stream
	file   string
	events *bufio.Reader // what the client gets
}

const recited = `billing: prepaid
channels:
  - {name: main, driver: openai, base_url: "%s/v1", keys: [vendor-key-0123], models: {m: m}, timeout: {headers: 1h, idle: 1h, total: 1h}}
  - {name: other, driver: sim, models: {other: x}}
prices:
  m: {input: "0", output: "1"}
  other: {input: "1", output: "1"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
`

// startSlowStream starts the server and opens the stream, of which the client has the
// first word.
func startSlowStream(t *testing.T, args ...string) *slowStream {
	t.Helper()
	r := &slowStream{words: make(chan string, 10)}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.file = file(t, fmt.Sprintf(recited, s.URL))
	r.instance = start(t, acme, append([]string{"--config", r.file}, args...)...)
	r.words <- "once"
	resp := r.open(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", true))
	t.Cleanup(func() { _ = resp.Body.Close() })
	r.events = bufio.NewReader(resp.Body)
	r.readUntil("once")
	return r
}

// ServeHTTP is the vendor. A word of four letters is a token, to it and to the
// estimate of a stream that is cut.
func (r *slowStream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // before its end the server does not see that the client is gone
	w.Header().Set("Content-Type", "text/event-stream")
	const chunk = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]%s}` + "\n\n"
	for n := 0; ; n++ {
		select {
		case <-req.Context().Done():
			return
		case word, more := <-r.words:
			if !more {
				_, _ = fmt.Fprintf(w, chunk, `{"index":0,"delta":{},"finish_reason":"stop"}`, "")
				_, _ = fmt.Fprintf(w, chunk+"data: [DONE]\n\n", "", fmt.Sprintf(`,"usage":{"prompt_tokens":3,"completion_tokens":%d,"total_tokens":%d}`, n, n+3))
				return
			}
			_, _ = fmt.Fprintf(w, chunk, fmt.Sprintf(`{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}`, word), "")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// readUntil reads the stream until there is a word.
func (r *slowStream) readUntil(word string) {
	r.t.Helper()
	for {
		line, err := r.events.ReadString('\n')
		if err != nil {
			r.t.Fatalf("%q is not to be heard: %v", word, err)
		}
		if strings.Contains(line, `"content":"`+word+`"`) {
			return
		}
	}
}

// rest reads the stream to its end.
func (r *slowStream) rest() string {
	r.t.Helper()
	var data []byte
	ended := make(chan error, 1)
	go func() {
		var err error
		data, err = io.ReadAll(r.events)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			r.t.Fatalf("the stream broke off: %v after %q", err, data)
		}
		return string(data)
	case <-time.After(time.Minute):
		r.t.Fatal("the stream goes on")
		return ""
	}
}

// refuses waits until the gateway takes no calls: the log says so a moment before
// it does.
func (r *slowStream) refuses() {
	r.t.Helper()
	status, body := 0, ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if status, body = r.ask(http.MethodGet, "/readyz", "", ""); status == http.StatusServiceUnavailable {
			return
		}
	}
	r.t.Fatalf("a server that drains is ready: %d %s", status, body)
}

// ends waits for the end of the server, and looks at its log and its books: every
// word that was heard is charged, and nothing is held any more.
func (r *slowStream) ends(words int, cut bool) {
	r.t.Helper()
	if code := r.wait(); code != exitOK {
		r.t.Errorf("exit code %d:\n%s", code, r.stderr)
	}
	if line := r.stderr.Await(`msg=request .*stream=true .*charge=(\S+)`); line == nil || line[1] != fmt.Sprintf("0.%06d", words) {
		r.t.Errorf("the stream of %d words was not settled:\n%s", words, r.stderr)
	}
	if strings.Contains(r.stderr.String(), "were cancelled") != cut {
		r.t.Errorf("calls were cancelled: %t, and the log says\n%s", cut, r.stderr)
	}
	books := tollhouse(r.t, acme, "account", "show", "acme", "--config", r.file, "--data", r.data, "--admin", adminOff)
	posted := fmt.Sprintf("24.%06d", 1_000_000-words)
	if got := strings.Fields(books.stdout); books.code != exitOK || !strings.Contains(strings.Join(got, " "), "acme "+posted+" 0.00 "+posted) {
		r.t.Errorf("the books after %d words: %d\n%s%s", words, books.code, books.stdout, books.stderr)
	}
}

func TestAServerThatDrainsTakesNoCallsAndLetsAStreamEnd(t *testing.T) {
	r := startSlowStream(t, "--drain", "1h")
	r.signals <- syscall.SIGTERM
	if r.stderr.Await(`shutting down: .*to cancel them" running=1 drain=1h0m0s`) == nil {
		t.Errorf("the log is\n%s", r.stderr)
	}
	r.refuses()
	if status, body := r.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("other", false)); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("a new call got %d %s", status, body)
	}
	resp := r.open(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("other", false))
	_ = resp.Body.Close()
	if got := resp.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
	r.words <- "more"
	r.readUntil("more")
	close(r.words)
	if body := r.rest(); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %q", body)
	}
	r.ends(2, false)
}

// What was delivered is charged, whichever way the time ran out.
func TestAStreamThatOutlastsTheDrainIsSettled(t *testing.T) {
	for name, end := range map[string]func(*slowStream){
		"time is up": func(r *slowStream) { r.cancel() },
		"a second signal": func(r *slowStream) {
			r.signals <- os.Interrupt
			r.stderr.Await("shutting down")
			r.signals <- syscall.SIGTERM
		},
	} {
		t.Run(name, func(t *testing.T) {
			drain := "1h"
			if name == "time is up" {
				drain = "0s"
			}
			r := startSlowStream(t, "--drain", drain)
			r.words <- "more"
			r.readUntil("more")
			end(r)
			body := r.rest()
			if !strings.Contains(body, `data: {"error":{"message":"The gateway is shutting down`) || strings.Contains(body, "[DONE]") {
				t.Errorf("the stream ended with %q", body[max(0, len(body)-300):])
			}
			r.ends(2, true)
		})
	}
}

func TestAHangUpDoesNotEndTheServer(t *testing.T) {
	i := start(t, nil, "--demo")
	i.signals <- syscall.SIGHUP
	if i.stderr.Await("there is no configuration file to reload") == nil {
		t.Fatalf("the server ended:\n%s", i.stderr)
	}
	if code := i.stop(); code != exitOK || i.stderr.Await("shutting down.* drain=30s") == nil {
		t.Errorf("exit code %d, the log is\n%s", code, i.stderr)
	}
}
