package config

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestTheServersBoundsAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]Server{
		"":                                     {},
		"server: {}":                           {},
		"server: {max_calls: 100}":             {MaxCalls: 100},
		"server: {max_waiting: 7}":             {MaxWaiting: 7},
		"server: {max_connections: 5000}":      {MaxConnections: 5000},
		"server: {max_connections_per_ip: 50}": {MaxConnectionsPerIP: 50},
		"server: {memory: 2GiB}":               {Memory: 2 << 30},
		"server: {memory: 512 MiB}":            {Memory: 512 << 20},
		"server: {trusted_proxies: [10.1.2.3/8, 192.0.2.1, '2001:db8::1']}": {TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
		}},
	} {
		got := read(t, sound+text).Server
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestABoundOfTheServerThatIsNoneIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"server: {max_calls: 0}":                      "max_calls: it must be a whole number, 1 or more",
		"server: {max_waiting: -1}":                   "max_waiting: it must be a whole number, 1 or more",
		"server: {max_connections: many}":             "max_connections: it must be a whole number, 1 or more",
		"server: {max_connections_per_ip: 1.5}":       "max_connections_per_ip: it must be a whole number, 1 or more",
		"server: {memory: 2}":                         "memory: write a size such as 512MiB or 2GiB",
		"server: {memory: 63MiB}":                     "memory: write a size such as 512MiB or 2GiB",
		"server: {memory: 9999999999TiB}":             "memory: write a size such as 512MiB or 2GiB",
		"server: {trusted_proxies: [example.com]}":    "trusted_proxies: write an address such as 10.0.0.7",
		"server: {trusted_proxies: ['fe80::1%eth0']}": "trusted_proxies: write an address such as 10.0.0.7",
		"server: {max_cals: 1}":                       `server has no field "max_cals"`,
	} {
		_, err := Read("t.yaml", []byte(sound+text), env)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

const observed = `
telemetry:
  otlp: http://127.0.0.1:4318/
  headers: {authorization: "Bearer ${VENDOR_KEY}"}
  service: toll
  sample: 0.25
  traces: true
  metrics: false
  callers: false
  trust_callers: true
metrics: {public: true}
`

func TestTheSectionsOfTelemetryAreRead(t *testing.T) {
	c := read(t, sound+observed)
	o := c.Telemetry
	if o.OTLP != "http://127.0.0.1:4318" || o.Service != "toll" || o.Sample != 250 || o.NoTraces || !o.NoMetrics || !o.NoCallers || !o.TrustCallers || !c.Metrics.Public {
		t.Errorf("they are %+v, %+v", o, c.Metrics)
	}
	if key := o.Headers["authorization"]; !strings.HasPrefix(key.Reveal(), "Bearer ") || strings.Contains(key.Reveal(), "$") {
		t.Errorf("the header is %q", key.Reveal())
	}
	if plain := read(t, sound); plain.Telemetry.NoTraces || plain.Telemetry.OTLP != "" || plain.Telemetry.TrustCallers || plain.Metrics.Public {
		t.Errorf("without a section they are %+v", plain.Telemetry)
	}
}

func TestASharesDecimalsAreRead(t *testing.T) {
	for text, want := range map[string]int{"1": 1000, "1.0": 1000, "0.5": 500, "0.001": 1, ".25": 250} {
		if got, err := parseShare(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0.0", "1.1", "2", "-1", "0.0001", "25%", "1e-1", "0.-5"} {
		if got, err := parseShare(text); err == nil {
			t.Errorf("%s is taken for %d", text, got)
		}
	}
}

func TestOnlyTheAddressOfACollectorIsTaken(t *testing.T) {
	for _, text := range []string{"http://127.0.0.1:4318", "https://otlp.example/base"} {
		if _, err := parseCollector(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "127.0.0.1:4318", "grpc://a", "https://user:key@a", "https://a?key=b", "https://a#b"} {
		if _, err := parseCollector(text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestTheSectionOfMCPIsRead(t *testing.T) {
	m := read(t, sound+"\nmcp: {enabled: false, origins: [https://app.example.com, \"http://10.0.0.1:3000\"]}\n").MCP
	if !m.Off || !slices.Equal(m.Origins, []string{"https://app.example.com", "http://10.0.0.1:3000"}) {
		t.Errorf("it is %+v", m)
	}
	plain := read(t, sound).MCP
	if plain.Off || plain.Origins != nil {
		t.Errorf("without a section it is %+v", plain)
	}
}

func TestAnOriginIsWhatABrowserSends(t *testing.T) {
	for _, wrong := range []string{"app.example.com", "https://app.example.com/", "https://app.example.com/path", "ftp://app.example.com", "https://", "https://user@app.example.com", "'*'", "null"} {
		_, err := Read("f", []byte(sound+"\nmcp: {origins: ["+wrong+"]}\n"), env)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "origin") {
			t.Errorf("%s gave %v", wrong, err)
		}
	}
}

func TestVideosAreKeptAsTheFileSays(t *testing.T) {
	usual := gateway.VideoOptions{Poll: 5 * time.Second, Retention: 168 * time.Hour, DuplicateWindow: 5 * time.Second}
	edited := func(edit func(*gateway.VideoOptions)) gateway.VideoOptions {
		o := usual
		edit(&o)
		return o
	}
	for text, want := range map[string]gateway.VideoOptions{
		"":                                 usual,
		"video:":                           usual,
		"video: {}":                        usual,
		"video: {poll: 1m}":                edited(func(o *gateway.VideoOptions) { o.Poll = time.Minute }),
		"video: {retention: 30d}":          edited(func(o *gateway.VideoOptions) { o.Retention = 720 * time.Hour }),
		"video: {duplicate_window: 1d}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = 24 * time.Hour }),
		"video: {duplicate_window: 0s}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 }), // off
		"video: {duplicate_window: 0d}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 }),
		"webhooks: {}":                     usual,
		"webhooks: {allow_private: false}": usual,
		"webhooks: {allow_private: true}":  edited(func(o *gateway.VideoOptions) { o.AllowPrivate = true }),
	} {
		if diff := cmp.Diff(want, read(t, sound+text).VideoOptions()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestResponsesAreKeptAsTheFileSays(t *testing.T) {
	const month = 30 * 24 * time.Hour
	for text, want := range map[string]gateway.ResponsesOptions{
		"":                                      {Mode: gateway.ResponsesOff, Retention: month},
		"responses: {}":                         {Mode: gateway.ResponsesOff, Retention: month},
		"responses: {store: off}":               {Mode: gateway.ResponsesOff, Retention: month},
		"responses: {store: native}":            {Mode: gateway.ResponsesNative, Retention: month},
		"responses: {store: on, retention: 7d}": {Mode: gateway.ResponsesOn, Retention: 7 * 24 * time.Hour},
		"responses: {store: 'on', retention: 90m}": {Mode: gateway.ResponsesOn, Retention: 90 * time.Minute},
	} {
		if diff := cmp.Diff(want, read(t, sound+text).ResponsesOptions()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestTheSecretsOfADeploymentAreReadInTheirOrder(t *testing.T) {
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 44)
	var got []string
	for _, s := range read(t, sound+"secrets: [{file: "+keyFile(t, first+"\n")+"}, '"+second+"', '"+first+"']\n").Secrets {
		got = append(got, s.Reveal())
	}
	if diff := cmp.Diff([]string{first, second}, got); diff != "" {
		t.Error(diff)
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

func TestTheOriginsOfPagesAreReadAsBrowsersSendThem(t *testing.T) {
	for text, want := range map[string][]string{
		"":               nil,
		"cors: []":       nil,
		`cors: ["*"]`:    {"*"},
		`cors: ["null"]`: {"null"},
		"cors: [https://app.example.com, 'http://localhost:3000', 'http://[::1]:5173', https://xn--bcher-kva.example]": {
			"https://app.example.com", "http://localhost:3000", "http://[::1]:5173", "https://xn--bcher-kva.example",
		},
		"cors: ['chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'app://obsidian.md', 'tauri://localhost']": {
			"chrome-extension://abcdefghijklmnopabcdefghijklmnop", "app://obsidian.md", "tauri://localhost",
		},
	} {
		if diff := cmp.Diff(want, read(t, sound+"\n"+text+"\n").CORS); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	for wrong, want := range map[string]string{
		"app.example.com": "exactly as browsers send it", "https://app.example.com/": "exactly as browsers send it", "https://App.example.com": "exactly as browsers send it",
		"https://app.example.com:443": "exactly as browsers send it", "http://app.example.com:80": "exactly as browsers send it", "https://bücher.example": "exactly as browsers send it",
		"https://user@app.example.com": "exactly as browsers send it", "https://": "exactly as browsers send it", "https://a.example?x": "exactly as browsers send it", "localhost:3000": "exactly as browsers send it",
		"'https://*.example.com'": "there are no patterns", "'*', https://app.example.com": "it must be the only one",
	} {
		_, err := Read("f", []byte(sound+"\ncors: ["+wrong+"]\n"), env)
		if err == nil || !strings.Contains(err.Error(), "cors: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
