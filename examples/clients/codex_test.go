package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/scripted"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// codexConfig is that of a Codex whose provider is a gateway, and which has the tools of
// the demo as an MCP server.
const codexConfig = `model_provider = "tollhouse"
[model_providers.tollhouse]
name = "tollhouse"
base_url = %q
env_key = "TOLLHOUSE_KEY"
wire_api = "responses"
[mcp_servers.probe]
command = %q
args = ["mcp", "--demo", "--data", %q]
`

// codexEvent is a line that Codex prints.
type codexEvent struct {
	Type string
	Item struct {
		Type, Text, Status, Server, Tool string
	}
	Error struct{ Message string }
}

// runCodex has Codex answer a prompt, and returns what it printed.
func runCodex(t *testing.T, url, key, prompt string, args ...string) (events []codexEvent) {
	t.Helper()
	home, work := t.TempDir(), t.TempDir()
	config := fmt.Sprintf(codexConfig, url+"/v1", os.Getenv("TOLLHOUSE"), filepath.Join(home, "data"))
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	codex := exec.CommandContext(t.Context(), os.Getenv("CODEX"), append([]string{
		"exec", "--skip-git-repo-check", "--json", "-C", work, "-s", "danger-full-access",
	}, append(args, prompt)...)...)
	codex.Env = append(os.Environ(), "CODEX_HOME="+home, "TOLLHOUSE_KEY="+key)
	out, err := codex.Output() // it exits with 1 where the turn fails
	for line := range bytes.Lines(out) {
		var e codexEvent
		if json.Unmarshal(line, &e) == nil {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return events
}

func TestCodexWorksThroughTheGateway(t *testing.T) {
	if os.Getenv("CODEX") == "" {
		t.Skip("CODEX is not set: examples/clients/codex/run does it")
	}
	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		prompt string
		args   []string
		credit billing.Money
		// How many requests it makes, and how many of them are charged for a part.
		requests, broken int
		saw              func(e codexEvent) bool // an event that has to be there
	}{
		{"a word", "say Hello there.", nil, 0, 1, 0, func(e codexEvent) bool { return e.Item.Text == "Hello there." }},
		{"thoughts", "think Let me see. | say Hello there.", nil, 0, 1, 0, func(e codexEvent) bool {
			return e.Item.Type == "reasoning" && e.Item.Text == "Let me see."
		}},
		{"a command", `think Hm. | call exec_command {"cmd":"echo shell-$((40+2))"}`, nil, 0, 2, 0, func(e codexEvent) bool {
			return e.Item.Type == "agent_message" && strings.HasPrefix(e.Item.Text, "The tool said: ") && strings.Contains(e.Item.Text, "shell-42")
		}},
		{"two commands at once", `call exec_command {"cmd":"echo one-$((1+1))"} | call exec_command {"cmd":"echo two-$((2+2))"}`, nil, 0, 2, 0, func(e codexEvent) bool {
			return e.Item.Type == "agent_message" && strings.Contains(e.Item.Text, "one-2") && strings.Contains(e.Item.Text, "two-4")
		}},
		{"a tool of an MCP server", "call mcp__probe.list_models {}", nil, 0, 2, 0, func(e codexEvent) bool {
			return e.Item.Type == "mcp_tool_call" && e.Item.Server == "probe" && e.Item.Tool == "list_models" && e.Item.Status == "completed"
		}},
		{"a custom tool in a namespace", `custom functions.exec text("code-42")`, []string{"-m", "gpt-5.6-sol"}, 0, 2, 0, func(e codexEvent) bool {
			return e.Item.Type == "agent_message" && strings.Contains(e.Item.Text, "code-42")
		}},
		{"a schema", `say {"word":"toll"}`, []string{"--output-schema", schema}, 0, 1, 0, func(e codexEvent) bool { return e.Item.Text == `{"word":"toll"}` }},
		{"an answer that is too long", "say Not all | length", nil, 0, 1, 0, func(e codexEvent) bool {
			return strings.Contains(e.Error.Message, "max_output_tokens")
		}},
		// It repeats both. Each try that the vendor broke off is charged for what was delivered.
		{"no money", "say Hello there.", nil, 1, 6, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "402 Payment Required") }},
		{"a stream that is cut", "say Not yet | cut", nil, 0, 6, 6, func(e codexEvent) bool { return e.Type == "turn.failed" && e.Error.Message != "" }},
		// So is each that the vendor never ended; of one that it never began nothing was.
		{"a vendor that falls silent", "say Not yet | silent", nil, 0, 6, 6, func(e codexEvent) bool { return e.Type == "turn.failed" && e.Error.Message != "" }},
		{"a vendor that says nothing", "silent", nil, 0, 6, 0, func(e codexEvent) bool { return e.Type == "turn.failed" && e.Error.Message != "" }},
		// What the vendor refuses is charged nothing, however often Codex repeats it.
		{"a request that the vendor refuses", "status 400", nil, 0, 1, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "The vendor says 400.") }},
		{"a conversation that is too long", "status 400 context_length_exceeded", nil, 0, 1, 0, func(e codexEvent) bool {
			return strings.Contains(e.Error.Message, "ran out of room")
		}},
		{"a vendor's rate limit", "status 429", nil, 0, 1, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "429 Too Many Requests") }},
		{"a vendor that is overloaded", "status 503", nil, 0, 5, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "at capacity") }},
		{"a vendor that fails", "status 500", nil, 0, 30, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "high demand") }},
		{"an unknown model", "say Hello there.", []string{"-m", "unknown"}, 0, 1, 0, func(e codexEvent) bool { return strings.Contains(e.Error.Message, "unknown") }},
	} {
		for channel := range channels {
			if channel == "messages" && strings.Contains(tt.prompt, "context_length_exceeded") {
				continue // a word that Messages does not have
			}
			t.Run(tt.name+"/"+channel, func(t *testing.T) {
				t.Parallel()
				o := options{credit: tt.credit}
				if strings.Contains(tt.prompt, "silent") {
					o.timeout = router.Timeouts{Headers: 2 * time.Second, Idle: 2 * time.Second}
				}
				requests := tt.requests
				if tt.prompt == "silent" && channel == "chat" {
					requests = 30 // not a byte came: a 504, which Codex repeats as any 5xx
				}
				s := newResponsesFixture(t, channel, o, tt.broken)
				args := tt.args
				if len(args) == 0 || args[0] != "-m" {
					args = append([]string{"-m", "model"}, args...)
				}
				found := false
				events := runCodex(t, s.url, s.Key.Reveal(), tt.prompt, args...)
				for _, e := range events {
					found = found || tt.saw(e)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if !found || len(s.ended) != requests {
					t.Errorf("%d requests, want %d; it printed %+v", len(s.ended), requests, events)
				}
				answered := slices.DeleteFunc(s.vendor.Calls(), func(c scripted.Call) bool { return c.Output == 0 })
				if keys := keysOf(answered); len(keys) > 1 {
					t.Errorf("one conversation used the keys %q, and the vendor caches prompts for each", keys)
				}
			})
		}
	}
}

// TestCodexKeepsItsPromptCacheWarm has a conversation of many tool turns, whose outputs grow:
// each prompt is the one before and more, byte for byte as the vendor gets it, by one key.
func TestCodexKeepsItsPromptCacheWarm(t *testing.T) {
	if os.Getenv("CODEX") == "" {
		t.Skip("CODEX is not set: examples/clients/codex/run does it")
	}
	const turns = 30
	var script []string
	for turn := range turns {
		script = append(script, fmt.Sprintf(`think Step %d. | call exec_command {"cmd":"seq %d %d"}`, turn+1, turn+1, 40*(turn+1)))
	}
	for channel := range channels {
		t.Run(channel, func(t *testing.T) {
			t.Parallel()
			s := newResponsesFixture(t, channel, options{}, 0)
			events := runCodex(t, s.url, s.Key.Reveal(), strings.Join(script, " || "), "-m", "model")
			if last := events[len(events)-1]; last.Type != "turn.completed" {
				t.Errorf("it printed %+v", events)
			}
			calls := s.vendor.Calls()
			if keys := keysOf(calls); len(calls) != turns+1 || len(keys) != 1 {
				t.Fatalf("%d calls by the keys %q", len(calls), keys)
			}
			for i := 1; i < len(calls); i++ {
				before, now := promptOf(t, calls[i-1]), promptOf(t, calls[i])
				if !strings.HasPrefix(now, before) || len(now) == len(before) {
					at := 0
					for at < min(len(before), len(now)) && before[at] == now[at] {
						at++
					}
					t.Errorf("call %d is not the one before and more: from %d on it has %.200q, where that has %.200q", i+1, at, now[at:], before[at:])
				}
			}
		})
	}
}

// promptOf is what of a call a vendor's cache knows it by: the tools, the instructions and the
// turns, without the end of their list.
func promptOf(t *testing.T, c scripted.Call) string {
	t.Helper()
	var body struct{ Tools, System, Instructions, Input, Messages json.RawMessage }
	if err := json.Unmarshal(c.Body, &body); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s %s%s", body.Tools, body.System, body.Instructions, bytes.TrimSuffix(body.Input, []byte("]")), bytes.TrimSuffix(body.Messages, []byte("]")))
}
