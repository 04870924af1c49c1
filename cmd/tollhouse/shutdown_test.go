package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// recital is a server with one stream, of which the test says every word: it goes
// on for as long as the test likes, however slow the machine is. The server's
// other model answers at once.
type recital struct {
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

// recite starts the server and opens the stream, of which the client has the
// first word.
func recite(t *testing.T, args ...string) *recital {
	t.Helper()
	r := &recital{words: make(chan string, 10)}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.file = file(t, fmt.Sprintf(recited, s.URL))
	r.instance = start(t, acme, append([]string{"--config", r.file}, args...)...)
	r.words <- "once"
	resp := r.open(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", true))
	t.Cleanup(func() { _ = resp.Body.Close() })
	r.events = bufio.NewReader(resp.Body)
	r.hear("once")
	return r
}

// ServeHTTP is the vendor. A word of four letters is a token, to it and to the
// estimate of a stream that is cut.
func (r *recital) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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

// hear reads the stream until there is a word.
func (r *recital) hear(word string) {
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
func (r *recital) rest() string {
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
func (r *recital) refuses() {
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
func (r *recital) ends(words int, cut bool) {
	r.t.Helper()
	if code := r.wait(); code != exitOK {
		r.t.Errorf("exit code %d:\n%s", code, r.stderr)
	}
	if line := r.stderr.await(`msg=request .*stream=true .*charge=(\S+)`); line == nil || line[1] != fmt.Sprintf("0.%06d", words) {
		r.t.Errorf("the stream of %d words was not settled:\n%s", words, r.stderr)
	}
	if strings.Contains(r.stderr.String(), "cut short") != cut {
		r.t.Errorf("calls were cut short: %t, and the log says\n%s", cut, r.stderr)
	}
	books := tollhouse(r.t, acme, "account", "show", "acme", "--config", r.file, "--data", r.data, "--admin", adminOff)
	posted := fmt.Sprintf("24.%06d", 1_000_000-words)
	if got := strings.Fields(books.stdout); books.code != exitOK || !strings.Contains(strings.Join(got, " "), "acme "+posted+" 0.00 "+posted) {
		r.t.Errorf("the books after %d words: %d\n%s%s", words, books.code, books.stdout, books.stderr)
	}
}

func TestAStreamMayEndAfterTheFirstSignal(t *testing.T) {
	r := recite(t, "--drain", "1h")
	r.signals <- syscall.SIGTERM
	r.stderr.await("shutting down")
	r.refuses()
	r.words <- "more"
	r.hear("more")
	close(r.words)
	if body := r.rest(); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %q", body[max(0, len(body)-200):])
	}
	r.ends(2, false)
}

func TestAServerThatDrainsIsNotReadyAndTakesNoCalls(t *testing.T) {
	r := recite(t, "--drain", "1h")
	r.cancel()
	r.stderr.await("shutting down")
	r.refuses()
	if status, body := r.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("other", false)); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("a new call got %d %s", status, body)
	}
	resp := r.open(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("other", false))
	_ = resp.Body.Close()
	if got := resp.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
	close(r.words)
	if body := r.rest(); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %q", body)
	}
	r.ends(1, false)
}

// What was delivered is charged, whichever way the time ran out.
func TestAStreamThatOutlastsTheDrainIsSettled(t *testing.T) {
	for name, end := range map[string]func(*recital){
		"time is up": func(r *recital) { r.cancel() },
		"a second signal": func(r *recital) {
			r.signals <- os.Interrupt
			r.stderr.await("shutting down")
			r.signals <- syscall.SIGTERM
		},
	} {
		t.Run(name, func(t *testing.T) {
			drain := "1h"
			if name == "time is up" {
				drain = "0s"
			}
			r := recite(t, "--drain", drain)
			r.words <- "more"
			r.hear("more")
			end(r)
			body := r.rest()
			if !strings.Contains(body, `data: {"error":{"message":"The gateway is shutting down`) || strings.Contains(body, "[DONE]") {
				t.Errorf("the stream ended with %q", body[max(0, len(body)-300):])
			}
			r.ends(2, true)
		})
	}
}

func TestWithoutADrainRunningCallsHaveHalfAMinute(t *testing.T) {
	i := start(t, nil, "--demo")
	i.stop()
	if i.stderr.await("shutting down.* drain=30s") == nil {
		t.Errorf("the log is\n%s", i.stderr)
	}
}

func TestAHangUpDoesNotEndTheServer(t *testing.T) {
	i := start(t, nil, "--demo")
	i.signals <- syscall.SIGHUP
	if i.stderr.await("there is no config file to reload") == nil {
		t.Fatalf("the server ended:\n%s", i.stderr)
	}
	if code := i.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
