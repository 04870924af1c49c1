package config

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{
		"VENDOR_KEY": "sk-vendor", "ACME_KEY": "sk-acme-0123456789abcdef", "RPM": "60", "SHORT_KEY": "sk-short", "EMPTY": "",
		"LINE": "sk-vendor\r\n", "ACME_LINE": " sk-acme-0123456789abcdef\n", "BLANK": "\n",
	}[name]
	return v, ok
}

// complete uses the fields of docs/reference/configuration.md.
const complete = `# a comment with ${NOTHING}
listen: 127.0.0.1:8080
store: "memory:"
billing: prepaid
currency: EUR
channels:
  - name: main
    driver: openai
    base_url: http://127.0.0.1:9/v1
    wire: [responses, messages]
    messages: {base_url: http://127.0.0.1:9/anthropic, auth: header:x-api-key}
    keys: ["${VENDOR_KEY}", 'sk-other']
    weight: 3
    priority: -1
    max_concurrent: 8
    rpm: 600
    timeout: {connect: 5s, headers: 10m, idle: 60s, total: 30m}
    cache: auto
    thinking: enabled
    session_header: x-session-id
    auth: header:api-key
    headers: {HTTP-Referer: "https://shop.example"}
    done: optional
    usage: {stream_options: no}
    drop: [temperature]
    rename: {max_tokens: max_completion_tokens}
    models:
      delta-k3: kimi-k3
  - {name: spare, driver: sim, begins: [gemini-, gemma-], except: [gemma-1*], models: {"*": "*"}}
prices:
  delta-k3: {input: "0.60", cached_input: 0.15, output: "2.50"}
  beta2.6-t2v: {second: {720p: "0.10", "720p@9:16": "0.15"}}
models:
  my-chat: {kind: chat, max_output: 65536, hold_tokens: 4096, withdrawn: 2027-01-31, reasoning: hidden}
  my-agent: {affinity: off}
  my-embed: {kind: embeddings, batch: 25, dimensions: [256, 1024]}
  my-film: {kind: video, ratios: ["16:9", adaptive], priorities: [low]}
affinity: prefix
accounts:
  - name: acme
    credit: 25.00
    rpm: 600
    keys:
      - {env: ACME_KEY, models: [delta-k3], rpm: "${RPM}"}
      - hash: sha256:6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090
limits: {rpm: 0, tpm: 1000, max_concurrent: 2, max_concurrent_videos: 0}
video: {retention: 7d, poll: 2s, duplicate_window: 0s}
webhooks: {allow_private: true}
`

func read(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Read("t.yaml", []byte(text), env)
	if err != nil {
		for _, line := range lines(err) {
			t.Error(line)
		}
		t.FailNow()
	}
	return c
}

func lines(err error) []string {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	return e.Lines()
}

func TestEveryFieldOfTheContractIsRead(t *testing.T) {
	c := read(t, complete)
	main := c.Channels[0]
	for _, s := range []struct {
		what      string
		got, want any
	}{
		{"listen", []any{c.Listen, c.Positions["listen"]}, []any{"127.0.0.1:8080", Pos{2, 9}}},
		{"currency", c.Currency, "EUR"},
		{"weight and priority", []int{main.Weight, main.Priority}, []int{3, -1}},
		{"limits of the channel", []int{main.MaxConcurrent, main.RPM}, []int{8, 600}},
		{"keys", []string{main.Keys[0].Reveal(), main.Keys[1].Reveal()}, []string{"sk-vendor", "sk-other"}},
		{"wire", main.Wire, []upstream.Op{upstream.Responses, upstream.Messages}},
		{"messages", main.Messages, MessagesWire{"http://127.0.0.1:9/anthropic", upstream.Auth{By: upstream.ByHeader, Name: "x-api-key"}}},
		{"timeouts", []time.Duration{main.Timeout.Connect, main.Timeout.Headers, main.Timeout.Idle, main.Timeout.Total}, []time.Duration{5 * time.Second, 10 * time.Minute, time.Minute, 30 * time.Minute}},
		{"cache", main.CachePrompts, true},
		{"thinking", main.Thinking, "enabled"},
		{"affinity", []any{c.Affinity, c.Models[0].Affinity, c.Models[1].Affinity, main.SessionHeader}, []any{gateway.AffinityPrefix, gateway.Affinity(""), gateway.AffinityOff, "x-session-id"}},
		{"auth and headers", []any{main.Auth, main.Headers}, []any{upstream.Auth{By: upstream.ByHeader, Name: "api-key"}, map[string]string{"HTTP-Referer": "https://shop.example"}}},
		{"done and usage", []bool{main.DoneOptional, main.Usage.NoStreamOptions}, []bool{true, true}},
		{"begins", c.Channels[1].Begins, []string{"gemini-", "gemma-"}},
		{"except", c.Channels[1].Except, []string{"gemma-1*"}},
		{"drop", main.Drop, []string{"temperature"}},
		{"rename", main.Rename, map[string]string{"max_tokens": "max_completion_tokens"}},
		{"models of the channel", main.Models, map[string]string{"delta-k3": "kimi-k3"}},
		{"wildcards", c.Wildcards(), []string{"spare"}},
		{"an unquoted price", c.Prices["delta-k3"].Rates[1], billing.Rate{Unit: billing.CachedInput, Amount: "0.15"}},
		{"a variant", c.Prices["beta2.6-t2v"].Rates[1], billing.Rate{Unit: billing.Second, Variant: "720p@9:16", Amount: "0.15"}},
		{"facts", []any{c.Models[0].ID, c.Models[0].MaxOutput, c.Models[0].HoldTokens, c.Models[0].Withdrawn}, []any{"my-chat", int64(65536), int64(4096), time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)}},
		{"credit", c.Accounts[0].Credit, 25 * billing.One},
		{"limits of accounts", c.AccountLimits(), map[string]auth.Limits{"acme": {RPM: 600}}},
		{"a key's limit", c.Accounts[0].Keys[0].Limits, auth.Limits{RPM: 60}},
		{"a key's hash", c.Accounts[0].Keys[0].Hash, auth.HashOf("sk-acme-0123456789abcdef")},
		{"limits", c.Limits, auth.Limits{TPM: 1000, MaxConcurrent: 2}},
		{"reasoning", c.Models[0].Reasoning, gateway.ReasoningHidden},
		{"ratios and priorities", []any{c.Models[3].Kind, c.Models[3].Ratios, c.Models[3].Priorities}, []any{gateway.KindVideo, []string{"16:9", "adaptive"}, []string{"low"}}},
		{"video", c.Video, Video{7 * 24 * time.Hour, 2 * time.Second, -1}},
		{"positions of sections", []Pos{c.Positions["video"], c.Positions["webhooks"], c.Positions["mcp"]}, []Pos{{47, 8}, {48, 11}, {}}},
		{"webhooks", c.Webhooks, Webhooks{true}},
	} {
		if diff := cmp.Diff(s.want, s.got); diff != "" {
			t.Errorf("%s: %s", s.what, diff)
		}
	}
}

func TestTheWholeFileCanBeBuilt(t *testing.T) {
	p, err := read(t, complete).Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if diff := cmp.Diff([]string{"delta-k3"}, p.Router.Models()); diff != "" {
		t.Error(diff)
	}
	if len(p.Keys) != 2 || p.Keys[0].ID != auth.IDOf(p.Keys[0].Hash) || p.Keys[0].Account != "acme" {
		t.Errorf("keys: %+v", p.Keys)
	}
	if got := p.Prices.Models(); !slices.Equal(got, []string{"beta2.6-t2v", "delta-k3"}) {
		t.Errorf("prices: %v", got)
	}
}

func TestTheSameFileMayBeWrittenInOtherForms(t *testing.T) {
	const plain = "billing: count\nchannels:\n  - {name: a, driver: sim, timeout: {idle: 5s}, models: {x: x}}\n  - {name: b, driver: sim, timeout: {idle: 5s}, models: {x: x}}\naccounts: [{name: c, keys: [{env: ACME_KEY}]}]\n"
	want := read(t, plain)
	for name, text := range map[string]string{
		"JSON":                      `{"billing": "count", "channels": [{"name": "a", "driver": "sim", "timeout": {"idle": "5s"}, "models": {"x": "x"}}, {"name": "b", "driver": "sim", "timeout": {"idle": "5s"}, "models": {"x": "x"}}], "accounts": [{"name": "c", "keys": [{"env": "ACME_KEY"}]}]}`,
		"aliases":                   strings.NewReplacer("a, driver: sim, timeout: ", "a, driver: sim, timeout: &t ", "b, driver: sim, timeout: {idle: 5s}", "b, driver: sim, timeout: *t").Replace(plain),
		"lines of Windows":          strings.ReplaceAll(plain, "\n", "\r\n"),
		"a byte order mark":         "\ufeff" + plain,
		"a line end behind the key": strings.Replace(plain, "ACME_KEY", "ACME_LINE", 1),
	} {
		same := cmp.Options{cmpopts.IgnoreFields(Config{}, "Positions"), cmpopts.IgnoreTypes(Pos{}), cmpopts.IgnoreUnexported(Config{}, Channel{}, secret.String{})}
		if diff := cmp.Diff(want, read(t, text), same); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestThePlacesNeedNoVariables(t *testing.T) {
	text := "\ufeffadmin: 127.0.0.1:1\ndata: /x\nstore: sqlite:/y.db\nbilling: count\nchannels: [{keys: ['${NOT_SET}']}]\nbogus: 1\n"
	p, err := ReadLocations("t.yaml", []byte(text), env)
	if err != nil || p.Admin != "127.0.0.1:1" || p.Data != "/x" || p.Store != "sqlite:/y.db" || p.Billing != Count {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range []string{"admin: [1", "store: redis"} {
		if _, err := ReadLocations("t.yaml", []byte(bad), env); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// Ten times the accounts, keys and models may take ten times the memory, and a little more
// for tables that grow.
func TestReadingTakesMemoryInProportionToTheFile(t *testing.T) {
	file := func(n int) []byte {
		var models, prices, accounts strings.Builder
		for i := range n {
			fmt.Fprintf(&models, "m%d: m%[1]d, ", i)
			fmt.Fprintf(&prices, "m%d: {input: '1', output: '2'}, ", i)
			fmt.Fprintf(&accounts, "  - {name: a%d, keys: [{hash: \"sha256:%064x\"}, {hash: \"sha256:%064x\"}]}\n", i, 2*i+1, 2*i+2)
		}
		return []byte("channels: [{name: main, driver: sim, models: {" + models.String() + "}}]\nprices: {" + prices.String() + "}\naccounts:\n" + accounts.String())
	}
	allocated := func(n int) uint64 {
		var before, after runtime.MemStats
		data := file(n)
		runtime.ReadMemStats(&before)
		c, err := Read("t.yaml", data, env)
		if err == nil {
			_, err = c.Build(nil)
		}
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(400), allocated(4000); many > 16*few {
		t.Errorf("400 accounts take %d bytes, and 4,000 of them %d", few, many)
	}
}
