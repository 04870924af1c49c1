package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The sections of a configuration that the rows of TestEverySectionIsReadAsWritten compare.
var (
	ofServer    = func(c *Config) any { return c.Server }
	ofVideo     = func(c *Config) any { return c.VideoOptions() }
	ofResponses = func(c *Config) any { return c.ResponsesOptions() }
	ofTelemetry = func(c *Config) any { return c.Telemetry }
	ofMCP       = func(c *Config) any { return c.MCP }
	ofCORS      = func(c *Config) any { return c.CORS }
	ofSecrets   = func(c *Config) any { return c.Secrets }
	ofStore     = func(c *Config) any { return c.Store }
)

func TestEverySectionIsReadAsWritten(t *testing.T) {
	video := func(edit func(*gateway.VideoOptions)) gateway.VideoOptions {
		o := gateway.VideoOptions{Poll: 5 * time.Second, Retention: 168 * time.Hour, DuplicateWindow: 5 * time.Second}
		edit(&o)
		return o
	}
	usual := video(func(*gateway.VideoOptions) {})
	off := gateway.ResponsesOptions{Mode: gateway.ResponsesOff, Retention: 720 * time.Hour}
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 44)
	for _, row := range []struct {
		text string
		of   func(*Config) any
		want any
	}{
		{"", ofServer, Server{}},
		{"server: {}", ofServer, Server{}},
		{"server: {max_calls: 100, max_waiting: 7}", ofServer, Server{MaxCalls: 100, MaxWaiting: 7}},
		{"server: {max_connections: 5000, max_connections_per_ip: 50}", ofServer, Server{MaxConnections: 5000, MaxConnectionsPerIP: 50}},
		{"server: {memory: 2GiB}", ofServer, Server{Memory: 2 << 30}},
		{"server: {memory: 512 MiB}", ofServer, Server{Memory: 512 << 20}},
		{"server: {trusted_proxies: [10.1.2.3/8, 192.0.2.1, '2001:db8::1']}", ofServer, Server{TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
		}}},
		{"", ofVideo, usual},
		{"video:", ofVideo, usual},
		{"video: {}", ofVideo, usual},
		{"video: {poll: 1m}", ofVideo, video(func(o *gateway.VideoOptions) { o.Poll = time.Minute })},
		{"video: {retention: 30d}", ofVideo, video(func(o *gateway.VideoOptions) { o.Retention = 720 * time.Hour })},
		{"video: {duplicate_window: 1d}", ofVideo, video(func(o *gateway.VideoOptions) { o.DuplicateWindow = 24 * time.Hour })},
		{"video: {duplicate_window: 0s}", ofVideo, video(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 })}, // off
		{"video: {duplicate_window: 0d}", ofVideo, video(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 })},
		{"webhooks: {}", ofVideo, usual},
		{"webhooks: {allow_private: false}", ofVideo, usual},
		{"webhooks: {allow_private: true}", ofVideo, video(func(o *gateway.VideoOptions) { o.AllowPrivate = true })},
		{"", ofResponses, off},
		{"responses: {}", ofResponses, off},
		{"responses: {store: off}", ofResponses, off},
		{"responses: {store: native}", ofResponses, gateway.ResponsesOptions{Mode: gateway.ResponsesNative, Retention: off.Retention}},
		{"responses: {store: on, retention: 7d}", ofResponses, gateway.ResponsesOptions{Mode: gateway.ResponsesOn, Retention: 168 * time.Hour}},
		{"responses: {store: 'on', retention: 90m}", ofResponses, gateway.ResponsesOptions{Mode: gateway.ResponsesOn, Retention: 90 * time.Minute}},
		{"", ofTelemetry, Telemetry{}},
		{"telemetry: {otlp: 'http://127.0.0.1:4318/', headers: {authorization: 'Bearer ${VENDOR_KEY}'}, service: toll, sample: 0.25, traces: true, metrics: false, callers: false, trust_callers: true}", ofTelemetry, Telemetry{
			OTLP: "http://127.0.0.1:4318", Headers: map[string]secret.String{"authorization": secret.New("Bearer sk-vendor")}, Service: "toll", Sample: 250,
			NoMetrics: true, NoCallers: true, TrustCallers: true,
		}},
		{"telemetry: {sample: 1}", ofTelemetry, Telemetry{Sample: 1000}},
		{"telemetry: {sample: 1.0}", ofTelemetry, Telemetry{Sample: 1000}},
		{"telemetry: {sample: 0.001}", ofTelemetry, Telemetry{Sample: 1}},
		{"telemetry: {sample: .25}", ofTelemetry, Telemetry{Sample: 250}},
		{"telemetry: {otlp: 'https://otlp.example/base'}", ofTelemetry, Telemetry{OTLP: "https://otlp.example/base"}},
		{"metrics: {public: true}", func(c *Config) any { return c.Metrics }, Metrics{Public: true}},
		{"", ofMCP, MCP{}},
		{"mcp: {enabled: false, origins: [https://app.example.com, 'http://10.0.0.1:3000']}", ofMCP, MCP{Off: true, Origins: []string{"https://app.example.com", "http://10.0.0.1:3000"}}},
		{"", ofCORS, []string(nil)},
		{"cors: []", ofCORS, []string(nil)},
		{`cors: ["*"]`, ofCORS, []string{"*"}},
		{`cors: ["null"]`, ofCORS, []string{"null"}},
		{"cors: [https://app.example.com, 'http://[::1]:5173', https://xn--bcher-kva.example]", ofCORS, []string{"https://app.example.com", "http://[::1]:5173", "https://xn--bcher-kva.example"}},
		{"cors: ['chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'app://obsidian.md']", ofCORS, []string{"chrome-extension://abcdefghijklmnopabcdefghijklmnop", "app://obsidian.md"}},
		{"secrets: [{file: " + keyFile(t, first+"\n") + "}, '" + second + "', '" + first + "']", ofSecrets, VendorKeys{secret.New(first), secret.New(second)}}, // in their order, each once
		{"store: memory", ofStore, Memory},
		{"store: 'memory:'", ofStore, Memory},
	} {
		same := cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b secret.String) bool { return a.Reveal() == b.Reveal() }), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(row.want, row.of(read(t, sound+row.text)), same); diff != "" {
			t.Errorf("%q: %s", row.text, diff)
		}
	}
}

func TestEveryMistakeInASectionIsFoundWhereItStands(t *testing.T) {
	const asBrowsers = "cors: write the origin of a page, exactly as browsers send it"
	for _, row := range []struct {
		text   string // in which each value stands for %
		want   string
		values []string
	}{
		{"server: {max_calls: %}", "4:21: max_calls: it must be a whole number, 1 or more", []string{"0", "-1", "many", "1.5"}},
		{"server: {max_waiting: %}", "4:23: max_waiting: it must be a whole number, 1 or more", []string{"0"}},
		{"server: {max_connections: %}", "4:27: max_connections: it must be a whole number, 1 or more", []string{"0"}},
		{"server: {max_connections_per_ip: %}", "4:34: max_connections_per_ip: it must be a whole number, 1 or more", []string{"0"}},
		{"server: {memory: %}", "4:18: memory: write a size such as 512MiB or 2GiB", []string{"2", "63MiB", "9999999999TiB"}},
		{"server: {trusted_proxies: [%]}", "4:28: an item of trusted_proxies: write an address such as 10.0.0.7", []string{"example.com", "'fe80::1%eth0'"}},
		{"server: {%: 1}", `4:10: server has no field "max_cals"; did you mean max_calls?`, []string{"max_cals"}},
		{"telemetry: {sample: %}", "4:21: sample: write a share of traces from 0.001 to 1", []string{"''", "0", "0.0", "1.1", "2", "-1", "0.0001", "25%", "1e-1", "0.-5"}},
		{"telemetry: {otlp: %}", "4:19: otlp: write a collector's address", []string{"''", "127.0.0.1:4318", "grpc://a", "https://user:key@a", "https://a?key=b", "'https://a#b'"}},
		{"mcp: {origins: [%]}", "4:17: an item of origins: write the origin of a page", []string{"app.example.com", "https://app.example.com/", "https://app.example.com/path", "ftp://app.example.com", "https://", "https://user@app.example.com", "'*'", "'null'"}},
		{"cors: [%]", asBrowsers, []string{
			"app.example.com", "https://app.example.com/", "https://App.example.com", "https://app.example.com:443", "http://app.example.com:80",
			"https://bücher.example", "https://user@app.example.com", "https://", "https://a.example?x", "localhost:3000",
		}},
		{"cors: [%]", "cors: each origin is written out, there are no patterns", []string{"'https://*.example.com'"}},
		{"cors: [%]", `cors: "*" stands for every origin, so that it must be the only one`, []string{"'*', https://app.example.com"}},
	} {
		for _, value := range row.values {
			refuses(t, sound+strings.Replace(row.text, "%", value, 1), row.want)
		}
	}
}

// A reload that changes no vendor must not cost its connections.
func TestAChannelKeepsItsConnectionsWhereItsVendorAndItsKeysAreTheSame(t *testing.T) {
	const before = "billing: count\nchannels: [{name: a, driver: openai, base_url: 'http://h/v1', keys: [k, l], models: {m: m}}]\n"
	old, err := read(t, before).Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"", "", true},
		{"m: m", "n: m", true},
		{"models", "weight: 5, timeout: {idle: 5s}, drop: [x], models", true},
		{"k, l", "l, k", false},
		{"k, l", "k", false},
		{"http://h", "http://i", false},
		{"models", "timeout: {connect: 1s}, models", false},
		{"models", "wire: [responses], models", false},
		{"models", "wire: [chat, messages], messages: {base_url: 'http://i'}, models", false},
		{"driver: openai", "driver: ark", false},
		{"name: a", "name: b", false},
	} {
		now, err := read(t, strings.Replace(before, c.from, c.to, 1)).Build(old)
		if err != nil {
			t.Fatal(err)
		}
		name := now.Config.Channels[0].Name
		if got := now.instances[name].Upstream == old.instances["a"].Upstream; got != c.same {
			t.Errorf("%q in the place of %q: the same is %v", c.to, c.from, got)
		}
		now.CloseExcept(old)
	}
}

func TestAChannelLetsThroughWhatItIsToldTo(t *testing.T) {
	every := map[string]string{"*": "*"}
	for _, row := range []struct {
		c    Channel
		id   string
		pass bool
	}{
		{Channel{Models: every}, "any", true},
		{Channel{Models: every, Begins: []string{"gemini-", "claude-"}}, "claude-a", true},
		{Channel{Models: every, Begins: []string{"gemini-", "claude-"}}, "gpt-5", false},
		{Channel{Models: every, Begins: []string{"gemini-", "claude-"}}, "my-claude-a", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "kimi", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "kimi-2", true},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "claude-a", false},
		{Channel{Models: every, Except: []string{"kimi", "claude-*"}}, "gpt-5", true},
		{Channel{Models: map[string]string{"*": "*", "mine": "gpt-5"}, Begins: []string{"gemini-", "claude-"}}, "gpt-5", true},
		{Channel{Models: map[string]string{"*": "*", "kimi": "k"}, Except: []string{"kimi", "k"}}, "k", true},
	} {
		row.c.Name, row.c.Driver = "a", "sim"
		made, err := row.c.instance(nil)
		if err != nil {
			t.Fatal(err)
		}
		built := row.c.routerChannel(made.Upstream, nil)
		if got := upstream.Supports(built.Upstream, upstream.ChatCompletion, row.id); got != row.pass {
			t.Errorf("%+v: %s passes: %v", row.c, row.id, got)
		}
		if upstream.Supports(built.Upstream, "paint", row.id) {
			t.Errorf("%+v supports what its upstream does not", row.c)
		}
		closeUpstream(made.Upstream)
	}
	for _, row := range []struct {
		begins []string
		want   string
	}{{nil, "* m"}, {[]string{"gemini-", "claude-"}, "claude-* gemini-* m"}} {
		c := Channel{Begins: row.begins, Models: map[string]string{"*": "*", "m": "n"}}
		if got := strings.Join(c.Shown(), " "); got != row.want {
			t.Errorf("%+v is shown as %s", row, got)
		}
	}
}
