package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server/telemetry/metrics"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

// scrape is what Prometheus would get.
func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape was answered with %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// want demands lines of a scrape.
func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the scrape has no line %q", line)
		}
	}
	if t.Failed() {
		var ours strings.Builder
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "tollhouse_") && !strings.Contains(line, "_bucket{") {
				ours.WriteString(line)
			}
		}
		t.Logf("it has\n%s", ours.String())
	}
}

// settled are the facts of a chat that cost half a unit.
func settled() *gateway.RequestEvent {
	return &gateway.RequestEvent{
		ID: "req_1", Account: "acme", Key: "key_1", Op: upstream.ChatCompletion, Model: "m", Listed: true, Stream: true, Channel: "two", Outcome: "complete",
		Affinity: "moved", Duration: 2 * time.Second, First: 20 * time.Millisecond,
		Phases:   gateway.Phases{Auth: time.Microsecond, Hold: time.Millisecond, Upstream: time.Second},
		Attempts: []gateway.AttemptEvent{{Channel: "one", Code: fault.ServiceUnavailable}, {Channel: "two"}},
		Receipt: &billing.Receipt{
			Charge: billing.One / 2, Overrun: billing.One / 4,
			Usage: billing.Usage{Input: 10, CachedInput: 20, Output: 30, Reasoning: 5, Images: 2, Anomaly: true},
		},
	}
}

// fill has every metric counted once.
func fill(m *metrics.Metrics) {
	o, ctx := m.Observer(), context.Background()
	o.End(ctx, settled())
	o.Attempted(ctx, gateway.AttemptEvent{Op: upstream.ChatCompletion, Channel: "one", Duration: time.Second, Code: "overloaded"})
	o.Attempted(ctx, gateway.AttemptEvent{Op: upstream.ChatCompletion, Channel: "two", Duration: time.Second, Again: true})
	o.Event(ctx, gateway.TaskMoved{
		Model: "film", Listed: true, From: video.Running, To: video.Succeeded, Age: time.Minute, Late: true,
		Receipt: &billing.Receipt{Charge: billing.One, Usage: billing.Usage{Seconds: 5}},
	})
	o.Event(ctx, gateway.DeliveryTried{Outcome: "retry"})
	o.Event(ctx, gateway.DeliveryTried{Outcome: "retry", Final: true})
	o.Event(ctx, gateway.DeliveryTried{Outcome: "delivered", Final: true})
	o.Event(ctx, gateway.CaptureRetried{State: gateway.CaptureQueued})
	m.Commit(7, time.Millisecond, nil)
	m.Commit(7, time.Millisecond, errors.New("the disk is full"))
}

// filled has something of every metric, the open work included.
func filled(t *testing.T) *metrics.Metrics {
	t.Helper()
	m := metrics.New(metrics.Options{})
	fill(m)
	m.Watch(sources(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = m.Run(ctx)
	return m
}

func TestWhatHappensIsCounted(t *testing.T) {
	m := metrics.New(metrics.Options{Version: "1.2.3", Currency: "EUR"})
	fill(m)
	want(t, scrape(t, m),
		`tollhouse_requests_total{model="m",op="chat",outcome="complete"} 1`,
		`tollhouse_request_duration_seconds_sum{model="m",op="chat"} 2`,
		`tollhouse_time_to_first_chunk_seconds_sum{model="m",op="chat"} 0.02`,
		`tollhouse_request_phase_seconds_sum{phase="upstream"} 1`,
		`tollhouse_tokens_total{kind="input",model="m",op="chat"} 10`,
		`tollhouse_tokens_total{kind="cached_input",model="m",op="chat"} 20`,
		`tollhouse_tokens_total{kind="output",model="m",op="chat"} 30`,
		`tollhouse_tokens_total{kind="reasoning",model="m",op="chat"} 5`,
		`tollhouse_media_units_total{model="m",op="chat",unit="image"} 2`,
		`tollhouse_media_units_total{model="film",op="video",unit="second"} 5`,
		`tollhouse_charged_total{currency="EUR",model="m",op="chat"} 0.5`,
		`tollhouse_charged_total{currency="EUR",model="film",op="video"} 1`,
		`tollhouse_overrun_total{currency="EUR"} 0.25`,
		`tollhouse_usage_reports_total{source="upstream"} 1`,
		`tollhouse_usage_reports_total{source="anomaly"} 1`,
		`tollhouse_upstream_attempts_total{channel="one",op="chat",outcome="upstream_error"} 1`,
		`tollhouse_upstream_attempts_total{channel="two",op="chat",outcome="ok"} 1`,
		`tollhouse_upstream_latency_seconds_count{channel="two",op="chat"} 1`,
		`tollhouse_upstream_retries_total{op="chat"} 1`,
		`tollhouse_affinity_total{result="moved"} 1`,
		`tollhouse_task_moves_total{state="succeeded"} 1`,
		`tollhouse_task_duration_seconds_sum{state="succeeded"} 60`,
		`tollhouse_task_late_total{model="film"} 1`,
		`tollhouse_webhook_tries_total{outcome="retry"} 1`,
		`tollhouse_webhook_tries_total{outcome="given_up"} 1`,
		`tollhouse_webhook_tries_total{outcome="delivered"} 1`,
		`tollhouse_capture_retries_total{state="queued"} 1`,
		`tollhouse_store_commit_operations_sum 7`,
		`tollhouse_store_commit_seconds_count 1`,
		`tollhouse_store_commit_failures_total 1`,
	)
	if text := scrape(t, m); !strings.Contains(text, `tollhouse_build_info{goversion="go`) || !strings.Contains(text, `version="1.2.3"} 1`) || !strings.Contains(text, "\ngo_goroutines ") {
		t.Error("the build or the runtime is not told of")
	}
}

func TestWhatIsCountedOfAnEvent(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		events func(o gateway.Observer)
		lines  []string
		absent []string // beginnings of lines
	}{
		{
			"before the first event the metrics of alerts are 0", func(gateway.Observer) {},
			[]string{`tollhouse_capture_retries_total{state="given_up"} 0`, `tollhouse_capture_retries_total{state="lost"} 0`, `tollhouse_overrun_total{currency="USD"} 0`}, nil,
		},
		{
			"a refused request", func(o gateway.Observer) {
				o.End(ctx, &gateway.RequestEvent{Outcome: "unauthorized", Code: fault.Unauthorized})
			},
			[]string{`tollhouse_requests_total{model="none",op="none",outcome="unauthorized"} 1`},
			[]string{"tollhouse_time_to_first", "tollhouse_tokens", "tollhouse_charged", "tollhouse_request_phase", "tollhouse_upstream"},
		},
		{
			"a model that is not listed", func(o gateway.Observer) {
				f := settled()
				f.Listed = false
				o.End(ctx, f)
			},
			[]string{`tollhouse_requests_total{model="other",op="chat",outcome="complete"} 1`}, nil,
		},
		{
			"a task of a model that is not listed", func(o gateway.Observer) {
				o.Event(ctx, gateway.TaskMoved{Model: "anything", To: video.Succeeded, Receipt: &billing.Receipt{Usage: billing.Usage{Seconds: 5}}})
			},
			[]string{`tollhouse_media_units_total{model="other",op="video",unit="second"} 5`}, nil,
		},
		{
			"a late capture", func(o gateway.Observer) {
				o.Event(ctx, gateway.CaptureRetried{
					State: gateway.CaptureSettled, Listed: true,
					Receipt: &billing.Receipt{Operation: "chat", Model: "m", Charge: billing.One, Usage: billing.Usage{Output: 7}},
				})
			},
			[]string{
				`tollhouse_charged_total{currency="USD",model="m",op="chat"} 1`, `tollhouse_tokens_total{kind="output",model="m",op="chat"} 7`,
				`tollhouse_usage_reports_total{source="upstream"} 1`,
			}, nil,
		},
		{
			"the parts of a batch are no retries", func(o gateway.Observer) {
				f := settled()
				f.Attempts = []gateway.AttemptEvent{{Channel: "one"}, {Channel: "one"}, {Channel: "one"}}
				for _, a := range f.Attempts {
					o.Attempted(ctx, a)
				}
				o.End(ctx, f)
			},
			nil, []string{"tollhouse_upstream_retries_total{"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := metrics.New(metrics.Options{})
			c.events(m.Observer())
			text := scrape(t, m)
			want(t, text, c.lines...)
			for _, line := range c.absent {
				if strings.Contains(text, "\n"+line) {
					t.Errorf("there is a line %s…", line)
				}
			}
		})
	}
}

// sources tell something of everything.
func sources(t testing.TB) metrics.Sources {
	t.Helper()
	g, err := gateway.New(gateway.Options{Upstream: upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, errors.New("nobody is here")
	})})
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Sources{
		Gateway: g,
		Channels: func() []router.ChannelInfo {
			return []router.ChannelInfo{
				{Name: "one", State: router.StateClosed, InFlight: 3, Requests: 20, Failures: 4, CircuitOpens: 2, Latency: 250 * time.Millisecond},
				{Name: "two", State: router.StateOpen, Models: []string{"a", "b"}, Discovers: true, Listed: time.Unix(1_700_000_000, 0), ListError: "html"},
			}
		},

		Store: func() metrics.Store { return metrics.Store{Holds: 5, Waiting: 6, Down: true} },
		OpenWork: func(context.Context) (metrics.OpenWork, error) {
			return metrics.OpenWork{Tasks: map[string]int64{"running": 8}, Webhooks: 9, Oldest: time.Now().Add(-time.Hour)}, nil
		},
	}
}

func TestWhatIsOpenIsReadAtTheScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Options{})
		if strings.Contains(scrape(t, m), "tollhouse_calls_running") {
			t.Error("something is told of a gateway that nobody watches")
		}
		m.Watch(sources(t))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = m.Run(ctx) }()
		synctest.Wait()
		defer cancel()
		want(t, scrape(t, m),
			`tollhouse_calls_running 0`, `tollhouse_calls_waiting 0`, `tollhouse_calls_full 0`, `tollhouse_calls_shed_total 0`, `tollhouse_request_body_bytes 0`, `tollhouse_answer_bytes 0`, `tollhouse_memory_short 0`,
			`tollhouse_streams_open 0`, `tollhouse_captures_pending 0`, `tollhouse_video_steps_pending 0`, `tollhouse_tasks_watched 0`, `tollhouse_video_waiters 0`, `tollhouse_draining 0`,
			`tollhouse_holds_open 5`, `tollhouse_store_queue 6`, `tollhouse_store_up 0`,
			`tollhouse_tasks_open{state="running"} 8`, `tollhouse_webhooks_waiting 9`, `tollhouse_webhook_oldest_seconds 3600`,
			`tollhouse_channel_state{channel="one",state="ready"} 1`, `tollhouse_channel_state{channel="one",state="resting"} 0`,
			`tollhouse_channel_state{channel="two",state="resting"} 1`,
			`tollhouse_channel_in_flight{channel="one"} 3`, `tollhouse_channel_requests_total{channel="one"} 20`,
			`tollhouse_channel_rests_total{channel="one"} 2`,
			`tollhouse_channel_failures_total{channel="one"} 4`, `tollhouse_channel_recent_latency_seconds{channel="one"} 0.25`,
		)
	})
}

func TestOpenWorkThatCannotBeReadIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Options{})
		var away atomic.Bool
		m.Watch(metrics.Sources{OpenWork: func(context.Context) (metrics.OpenWork, error) {
			if away.Load() {
				return metrics.OpenWork{}, errors.New("the database is away")
			}
			return metrics.OpenWork{Webhooks: 1}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = m.Run(ctx) }()
		defer cancel()
		synctest.Wait()
		want(t, scrape(t, m), `tollhouse_webhooks_waiting 1`)
		away.Store(true)
		time.Sleep(time.Minute)
		if strings.Contains(scrape(t, m), "tollhouse_webhooks_waiting") {
			t.Error("an old number is told still")
		}
		away.Store(false)
		time.Sleep(time.Minute)
		want(t, scrape(t, m), `tollhouse_webhooks_waiting 1`)
	})
}

func TestAnyNumberOfModelsKeysAndWordsMakesFewSeries(t *testing.T) {
	m := metrics.New(metrics.Options{MaxModels: 50, MaxChannels: 10})
	o, ctx, r := m.Observer(), context.Background(), rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		word := fmt.Sprintf("w%d", r.Uint64())
		f := settled()
		f.ID, f.ClientID, f.Account, f.Key, f.Model, f.Listed = word, word, word, word, word, r.IntN(2) == 0
		f.Outcome, f.Code, f.Channel, f.Op = word, fault.Code(word), word, upstream.Op(word)
		if r.IntN(2) == 0 {
			f.Op, f.Outcome = upstream.ChatCompletion, "complete"
		}
		o.End(ctx, f)
		o.Attempted(ctx, gateway.AttemptEvent{RequestID: word, Op: f.Op, Channel: word, Model: word, Code: f.Code, Error: word})
		o.Event(ctx, gateway.TaskMoved{Task: word, Account: word, Model: word, To: video.Failed, Late: true, Receipt: &billing.Receipt{Usage: billing.Usage{Seconds: 1}}})
		o.Event(ctx, gateway.DeliveryTried{ID: word, Account: word, Outcome: "retry"})
		o.Event(ctx, gateway.CaptureRetried{RequestID: word, Account: word, State: gateway.CaptureFailed})
	}
	text := scrape(t, m)
	n := strings.Count(text, "\ntollhouse_")
	t.Logf("%d series", n)
	if n > 7000 {
		t.Errorf("there are %d series", n)
	}
	for _, some := range []string{`model="other"`, `outcome="upstream_error"`, `channel="other"`, `op="none"`} {
		if !strings.Contains(text, some) {
			t.Errorf("nothing is counted as %s", some)
		}
	}
}

func TestPromtoolHasNothingToSay(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT DONE: promtool is not installed (Debian's package prometheus has it)")
	}
	m := filled(t)
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, m))
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	rules := exec.CommandContext(t.Context(), promtool, "check", "rules", alertsFile)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func TestAScrapeIsNotCompressed(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept-Encoding", "gzip, zstd")
	w := httptest.NewRecorder()
	metrics.New(metrics.Options{}).ServeHTTP(w, r)
	if coding := w.Header().Get("Content-Encoding"); coding != "" || !strings.Contains(w.Body.String(), "tollhouse_build_info") {
		t.Errorf("encoded as %q", coding)
	}
}

// BenchmarkEnd is what the counters cost a request.
func BenchmarkEnd(b *testing.B) {
	o := metrics.New(metrics.Options{}).Observer()
	f := settled()
	b.ReportAllocs()
	for b.Loop() {
		o.End(context.Background(), f)
	}
}
