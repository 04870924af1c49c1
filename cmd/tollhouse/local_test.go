package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestRealServersOfModelsBehindTheirPresets makes calls to servers of models that run on
// this machine, each through a gateway that has its variable alone. Their model says nine
// words and a stop, or ticks until a bound where it is asked for endless ones.
func TestRealServersOfModelsBehindTheirPresets(t *testing.T) {
	servers := strings.Fields(os.Getenv("LOCAL_SERVERS"))
	if len(servers) == 0 {
		t.Skip("LOCAL_SERVERS is not set: .ci/models/run does it")
	}
	const (
		text    = "Hello from a model of some few words."
		asks    = `"messages":[{"role":"user","content":"hi"}]`
		endless = `"messages":[{"role":"system","content":"endless"},{"role":"user","content":"endless"}]`
	)
	for _, server := range servers {
		variable, address, _ := strings.Cut(server, "=")
		t.Run(variable, func(t *testing.T) {
			i := start(t, environment{variable: address})
			key := firstKey(t, i.stdout.String())
			if _, list := i.ask(http.MethodGet, "/v1/models", key, ""); !strings.Contains(list, `"id":"few-words`) {
				t.Errorf("the list is %s", list)
			}
			for _, row := range []struct {
				name, path, body string
				output           int // tokens
				want             string
			}{
				{"chat", "/v1/chat/completions", asks, 10, text},
				{"chat streamed", "/v1/chat/completions", `"stream":true,` + asks, 10, " words"},
				{"chat with a bound", "/v1/chat/completions", `"max_completion_tokens":6,` + endless, 6, " tick tock tick tock tick tock"},
				{"responses", "/v1/responses", `"input":"hi"`, 10, text},
				{"responses streamed", "/v1/responses", `"stream":true,"input":"hi"`, 10, text},
				{"messages", "/v1/messages", `"max_tokens":30,` + asks, 10, text},
				{"messages streamed", "/v1/messages", `"max_tokens":30,"stream":true,` + asks, 10, `"end_turn"`},
			} {
				t.Run(row.name, func(t *testing.T) {
					resp := i.open(http.MethodPost, row.path, key, `{"model":"few-words",`+row.body+"}")
					answer := new(strings.Builder)
					_, err := bufio.NewReader(resp.Body).WriteTo(answer)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(answer.String(), row.want) {
						t.Fatalf("%d %s, error %v", resp.StatusCode, answer, err)
					}
					var r receipt
					_, paid := i.ask(http.MethodGet, "/v1/receipts/"+resp.Header.Get("X-Request-Id"), key, "")
					if err := json.Unmarshal([]byte(paid), &r); err != nil || r.Units.Output != row.output || r.Units.Input+r.Units.Cached == 0 || r.Estimated {
						t.Errorf("the receipt is %s, error %v, want %d tokens", paid, err, row.output)
					}
				})
			}
			// What a server was not started for, or its model cannot do, is no failure of the channel.
			for range 6 {
				i.ask(http.MethodPost, "/v1/rerank", key, `{"model":"few-words","query":"a","documents":["b"]}`)
			}
			if list := i.good("channel", "list"); !strings.Contains(list, "ready") {
				t.Errorf("after refusals the channel is\n%s", list)
			}
			resp := i.open(http.MethodPost, "/v1/chat/completions", key, `{"model":"few-words","stream":true,`+endless+"}")
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
				t.Errorf("the stream begins with %q, error %v", line, err)
			}
			_ = resp.Body.Close()
			if i.stderr.Await("outcome=client_gone") == nil {
				t.Error("the log does not say that the client left")
			}
			if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", key, `{"model":"few-words",`+asks+"}"); status != http.StatusOK {
				t.Errorf("after a client that left: %d %s", status, answer)
			}
		})
	}
}
