package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// stream opens a stream of the demo and reads until there is output.
func stream(t *testing.T, i *instance) *bufio.Reader {
	t.Helper()
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	resp := i.open(http.MethodPost, "/v1/chat/completions", key, chatBody("delta-k3", true))
	t.Cleanup(func() { _ = resp.Body.Close() })
	events := bufio.NewReader(resp.Body)
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"reasoning_content":"`) {
			return events
		}
	}
}

func rest(t *testing.T, events *bufio.Reader) string {
	t.Helper()
	data, err := io.ReadAll(events)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAStreamMayEndAfterTheFirstSignal(t *testing.T) {
	i := start(t, nil, "--demo")
	events := stream(t, i)
	i.signals <- syscall.SIGTERM
	i.stderr.await("shutting down")
	if body := rest(t, events); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %q", body[max(0, len(body)-200):])
	}
	if code := i.wait(); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, i.stderr)
	}
}

func TestAServerThatDrainsIsNotReadyAndTakesNoCalls(t *testing.T) {
	i := start(t, nil, "--demo")
	events := stream(t, i)
	i.cancel()
	i.stderr.await("shutting down")
	// The log line comes a moment before the gateway closes its door; a call
	// that fails shows that it has.
	for {
		if status, _ := i.ask(http.MethodGet, "/readyz", "", ""); status == 503 {
			break
		}
	}
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("sim-chat", false)); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("a new call got %d %s", status, body)
	}
	resp := i.open(http.MethodPost, "/v1/chat/completions", key, chatBody("sim-chat", false))
	_ = resp.Body.Close()
	if got := resp.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
	rest(t, events)
}

// What was delivered is charged, whichever way the time ran out.
func TestAStreamThatOutlastsTheDrainIsSettled(t *testing.T) {
	for name, end := range map[string]func(*instance){
		"time is up": func(i *instance) { i.cancel() },
		"a second signal": func(i *instance) {
			i.signals <- os.Interrupt
			i.stderr.await("shutting down")
			i.signals <- syscall.SIGTERM
		},
	} {
		t.Run(name, func(t *testing.T) {
			drain := "1h"
			if name == "time is up" {
				drain = "0s"
			}
			i := start(t, nil, "--demo", "--drain", drain)
			events := stream(t, i)
			end(i)
			body := rest(t, events)
			if !strings.Contains(body, `data: {"error":{"message":"The gateway is shutting down`) || strings.Contains(body, "[DONE]") {
				t.Errorf("the stream ended with %q", body[max(0, len(body)-300):])
			}
			if code := i.wait(); code != exitDone {
				t.Errorf("exit code %d", code)
			}
			line := i.stderr.await(`msg=request .*stream=true .*charge=(\S+)`)
			if line == nil || line[1] == "0.00" {
				t.Errorf("the stream was not settled:\n%s", i.stderr)
			}
			if !strings.Contains(i.stderr.String(), "cut short") {
				t.Errorf("the log does not say that calls were cut short:\n%s", i.stderr)
			}
		})
	}
}

func TestAHangUpDoesNotEndTheServer(t *testing.T) {
	i := start(t, nil, "--demo")
	i.signals <- syscall.SIGHUP
	if i.stderr.await("there is no config file to reload") == nil {
		t.Fatalf("the server ended:\n%s", i.stderr)
	}
	if code := i.stop(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}
