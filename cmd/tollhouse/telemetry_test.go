package main

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// scrape asks the admin address for the metrics.
func (i *instance) scrape(token string) (status int, text string) {
	i.t.Helper()
	var header []string
	if token != "" {
		header = []string{"Authorization: Bearer " + token}
	}
	r := read(i.t, servertest.Send(i.t, i.t.Context(), http.DefaultClient, http.MethodGet, "http://"+i.admin+"/metrics", "", header...))
	return r.status, r.body
}

func TestTheAdminAddressHasTheMetrics(t *testing.T) {
	for _, c := range []struct {
		name, config string
		public       bool
		want         []string
	}{
		{"in memory, with the token", "store: memory\n", false, []string{
			`tollhouse_requests_total{model="m",op="chat",outcome="complete"} 1`, `tollhouse_time_to_first_chunk_seconds_count{model="m",op="chat"} 1`,
			`tollhouse_charged_total{currency="USD",model="m",op="chat"}`, `tollhouse_calls_running 0`, `tollhouse_channel_state{channel="`,
			`tollhouse_upstream_attempts_total{channel="`,
		}},
		{"of a database, public", "metrics: {public: true}\nstore: sqlite:" + filepath.Join(t.TempDir(), "b.db") + "\n", true, []string{
			"\ntollhouse_holds_open 0\n", "\ntollhouse_store_up 1\n", "\ntollhouse_store_queue 0\n", "\ntollhouse_store_commit_seconds_count ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := start(t, acme, "--config", file(t, simConfig("m")+c.config))
			if status, body := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", true)); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			status, text := i.scrape("")
			if public := status == 200; public != c.public || strings.Contains(text, "tollhouse_") != c.public {
				t.Errorf("without the token: %d %.200s", status, text)
			}
			token, err := readToken(i.data)
			if err != nil {
				t.Fatal(err)
			}
			_, text = i.scrape(token.Reveal())
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("the scrape has no %q", want)
				}
			}
			if strings.Contains(text, acme["ACME_KEY"]) {
				t.Error("the key is in the metrics")
			}
		})
	}
}

// collector takes what OpenTelemetry sends.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	paths map[string]int
	keys  map[string]bool
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	s := &collector{paths: map[string]int{}, keys: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.paths[r.URL.Path]++
		s.keys[r.Header.Get("X-Key")] = true
	}))
	t.Cleanup(s.Close)
	return s
}

func TestOpenTelemetryIsSentUntilTheServerStops(t *testing.T) {
	s := newCollector(t)
	for _, interval := range []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL"} {
		t.Setenv(interval, "3600000") // all is sent at the end, however long the test takes
	}
	env := environment{"COLLECTOR_KEY": "collector-0123456789"}
	maps.Copy(env, acme)
	i := start(t, env, "--config", file(t, simConfig("m")+"\ntelemetry: {otlp: "+s.URL+", headers: {x-key: \"${COLLECTOR_KEY}\"}}\n"))
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", false)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	i.signals <- syscall.SIGTERM
	if code := i.wait(); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, i.stderr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths["/v1/traces"] != 1 || s.paths["/v1/metrics"] != 1 || len(s.keys) != 1 || !s.keys["collector-0123456789"] {
		t.Errorf("the collector got %v with %v", s.paths, s.keys)
	}
	if strings.Contains(i.stderr.String(), "collector-0123456789") {
		t.Error("the collector's key is in the log")
	}
}

func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	s := newCollector(t)
	s.Close()
	i := start(t, acme, "--config", file(t, simConfig("m")+"\ntelemetry: {otlp: "+s.URL+"}\n"))
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", false)); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	i.signals <- syscall.SIGTERM
	if code := i.wait(); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, i.stderr)
	}
}

func TestOpenTelemetryIsOnWhereACollectorIsNamed(t *testing.T) {
	const base, own = "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_"
	for _, row := range []struct {
		env             environment
		file            config.Telemetry
		traces, metrics bool
	}{
		{environment{}, config.Telemetry{}, false, false},
		{environment{}, config.Telemetry{OTLP: base}, true, true},
		{environment{}, config.Telemetry{OTLP: base, NoTraces: true}, false, true},
		{environment{}, config.Telemetry{OTLP: base, NoMetrics: true}, true, false},
		{environment{own + "ENDPOINT": base}, config.Telemetry{}, true, true},
		{environment{own + "TRACES_ENDPOINT": base + "/v1/traces"}, config.Telemetry{}, true, false},
		{environment{own + "METRICS_ENDPOINT": base + "/v1/metrics"}, config.Telemetry{}, false, true},
		{environment{"OTEL_SDK_DISABLED": "TRUE"}, config.Telemetry{OTLP: base}, false, false},
		{environment{"OTEL_SERVICE_NAME": "x"}, config.Telemetry{}, false, false},
	} {
		if traces, metrics := exportEnabled(&row.file, row.env.lookup); traces != row.traces || metrics != row.metrics {
			t.Errorf("%v with %+v: traces %t, metrics %t", row.env, row.file, traces, metrics)
		}
	}
}

func TestAChannelsProviderIsThatOfItsAddress(t *testing.T) {
	h := new(app)
	if got := h.provider("a"); got != "" {
		t.Errorf("before there are channels it is %q", got)
	}
	h.components.Store(&config.Components{Config: &config.Config{Channels: []config.Channel{
		{Name: "a", Driver: "openai", BaseURL: "https://api.openai.com/v1"}, {Name: "b", Driver: "openai"}, {Name: "c", Driver: "anthropic"},
		{Name: "d", Driver: "openai", BaseURL: "https://api.moonshot.cn/v1"}, {Name: "e", Driver: "openai", BaseURL: "https://x.openai.azure.com/v1"},
		{Name: "f", Driver: "openai", BaseURL: "https://notx.ai/v1"}, {Name: "g", Driver: "ark"},
	}}})
	for channel, want := range map[string]string{
		"a": "openai", "b": "openai", "c": "anthropic", "d": "moonshot_ai", "e": "azure.ai.openai", "f": "openai", "g": "ark", "gone": "",
	} {
		if got := h.provider(channel); got != want {
			t.Errorf("%s is %q, want %q", channel, got, want)
		}
	}
}
