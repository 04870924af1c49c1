// Package metrics counts what a gateway does for Prometheus: an Observer, the
// collectors of what is open, and the handler that a scrape asks.
package metrics

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Options are of a Metrics. The zero value is the default.
type Options struct {
	// Version is the program's, for tollhouse_build_info.
	Version string
	// Currency is that of amounts; empty means USD.
	Currency string
	// MaxModels and MaxChannels are how many names of each a label may have in the life of the
	// process. Later names count as "other". Zero means 500 models and 200 channels.
	MaxModels, MaxChannels int
}

// Metrics are the counters of one gateway, with a registry of their own. Make
// them with [New], give [Metrics.Observer] to the gateway's options, then
// [Metrics.Watch] the gateway. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	counters *counters
	handler  http.Handler
	sources  atomic.Pointer[Sources]
	openWork atomic.Pointer[OpenWork] // as they were last read
	models   labelValues
	channels labelValues
}

// Sources are what a scrape asks besides the counters. Fields that are nil are
// left out.
type Sources struct {
	Gateway *gateway.Gateway
	// Channels are those in force; it must be quick.
	Channels func() []router.ChannelInfo
	// Store reports the state of the store's writes; it must be quick.
	Store func() Store
	// OpenWork counts what the store has open. [Metrics.Run] asks it.
	OpenWork func(ctx context.Context) (OpenWork, error)
}

// Store is what a store is about at one moment.
type Store struct {
	Holds   int  // open ones of this process
	Waiting int  // operations that wait to be committed
	Down    bool // the database did not take the last transaction
}

// OpenWork is what a store has not brought to an end.
type OpenWork struct {
	Tasks    map[string]int64 // open tasks of videos, by state
	Webhooks int64            // webhooks that wait
	Oldest   time.Time        // when the oldest of them was written; zero if none waits
}

// New returns counters that stand at zero.
func New(o Options) *Metrics {
	o.Currency = cmp.Or(o.Currency, "USD")
	o.MaxModels, o.MaxChannels = cmp.Or(o.MaxModels, 500), cmp.Or(o.MaxChannels, 200)
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry: registry, counters: newCounters(registry, o.Currency),
		models: labelValues{limit: o.MaxModels, known: make(map[string]bool)}, channels: labelValues{limit: o.MaxChannels, known: make(map[string]bool)},
	}
	registry.MustRegister(
		collector{m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollhouse_build_info", Help: "Always 1; the labels say which program this is.",
	}, []string{"version", "goversion"}).WithLabelValues(o.Version, runtime.Version()).Set(1)
	// To compress them would take longer than to gather them.
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

// Watch has scrapes ask the sources. Those of before are forgotten.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// ServeHTTP answers a scrape. Whoever serves it decides who may ask.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Gatherer gives the metrics to other exporters.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// openWorkInterval is how often Run reads the open work.
const openWorkInterval = 15 * time.Second

// Run reads the open work four times a minute until ctx ends, so that no scrape waits
// for a database. It returns nil.
func (m *Metrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(openWorkInterval)
	defer ticker.Stop()
	for {
		m.readOpenWork(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// readOpenWork reads the open work. Where that fails its metrics are missing, since
// old numbers would say that nothing changes.
func (m *Metrics) readOpenWork(ctx context.Context) {
	s := m.sources.Load()
	if s == nil || s.OpenWork == nil {
		return
	}
	work, err := s.OpenWork(ctx)
	if err != nil {
		m.openWork.Store(nil)
		return
	}
	m.openWork.Store(&work)
}

// Commit counts a transaction of the store that did so many operations; err is
// why it failed.
func (m *Metrics) Commit(operations int, took time.Duration, err error) {
	if err != nil {
		m.counters.commitFailures.Inc()
		return
	}
	m.counters.commitTime.Observe(took.Seconds())
	m.counters.commitSize.Observe(float64(operations))
}

// labelValues are the values of a label, up to a limit.
type labelValues struct {
	limit int
	mu    sync.Mutex
	known map[string]bool
}

// other stands for every name that a label does not have.
const other = "other"

// bounded is the name, or other if there are too many already.
func (n *labelValues) bounded(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[name] {
		if len(n.known) >= n.limit {
			return other
		}
		n.known[name] = true
	}
	return name
}

// counters are the metrics that events change.
type counters struct {
	currency string

	requests, tokens, units, money, overrun, sources *prometheus.CounterVec
	duration, first, phases                          *prometheus.HistogramVec

	attempts *prometheus.CounterVec
	affinity *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	retries  *prometheus.CounterVec

	taskMoves, late    *prometheus.CounterVec
	taskTime           *prometheus.HistogramVec
	webhooks, captures *prometheus.CounterVec

	commitTime, commitSize prometheus.Observer
	commitFailures         prometheus.Counter
}

// The bounds of histograms, in seconds but for the last.
var (
	requestTimes = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 600}
	phaseTimes   = []float64{.00001, .0001, .001, .005, .01, .05, .1, .5, 1, 5, 30, 120}
	taskTimes    = []float64{5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400}
	commitTimes  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5}
	batchSizes   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
)

// newCounters registers the counters. docs/reference/observability.md lists them, and a test compares.
func newCounters(registry prometheus.Registerer, currency string) *counters {
	register := promauto.With(registry)
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: "tollhouse_" + name, Help: help}, labels)
	}
	spread := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return register.NewHistogramVec(prometheus.HistogramOpts{Name: "tollhouse_" + name, Help: help, Buckets: bounds}, labels)
	}
	c := &counters{
		currency: currency,
		requests: count("requests_total", "Requests that ended, by operation, model and outcome (complete, replayed or the error's code).", "op", "model", "outcome"),
		duration: spread("request_duration_seconds", "Time of a request, for a stream until its last event.", requestTimes, "op", "model"),
		first:    spread("time_to_first_chunk_seconds", "Time until the first chunk of a stream, or the first audio, was ready for the caller.", requestTimes, "op", "model"),
		phases:   spread("request_phase_seconds", "Where the time of a request goes: auth, admit, hold, upstream, settle.", phaseTimes, "phase"),
		tokens:   count("tokens_total", "Tokens that were settled, by kind. Reasoning is a part of output.", "op", "model", "kind"),
		units:    count("media_units_total", "Images, seconds of video, characters of speech, search units and requests that were settled.", "op", "model", "unit"),
		money:    count("charged_total", "Money that customers paid, in units of the currency.", "op", "model", "currency"),
		overrun:  count("overrun_total", "Money that the operator bore because an account had no more, in units of the currency.", "currency"),
		sources:  count("usage_reports_total", "Settled requests by the source of their counts: upstream, estimated, none. One with impossible counts is also counted as anomaly.", "source"),

		attempts: count("upstream_attempts_total", "Attempts at channels, by result: ok or the error's code.", "channel", "op", "outcome"),
		latency:  spread("upstream_latency_seconds", "Time until a channel's answer was accepted: the first events of a stream, or the whole of another answer.", requestTimes, "channel", "op"),
		retries:  count("upstream_retries_total", "Attempts after one that failed.", "op"),
		affinity: count("affinity_total", "Answered text requests by session: hit (its first channel and key), moved (another), none (no session).", "result"),

		taskMoves: count("task_moves_total", "Steps of videos' tasks, by their new state.", "state"),
		taskTime:  spread("task_duration_seconds", "Time of a video's task from its submission to its end.", taskTimes, "state"),
		late:      count("task_late_total", "Videos that were finished after their tasks had expired; they are not delivered.", "model"),
		webhooks:  count("webhook_tries_total", "Attempts to deliver webhooks, by outcome: delivered, retry, refused, gone, given_up.", "outcome"),
		captures:  count("capture_retries_total", "Settlements that were not durable when their calls ended, by outcome.", "state"),

		commitTime:     spread("store_commit_seconds", "Time of the store's transactions.", commitTimes).WithLabelValues(),
		commitSize:     spread("store_commit_operations", "Operations that the store did in one transaction.", batchSizes).WithLabelValues(),
		commitFailures: count("store_commit_failures_total", "Transactions of the store that failed; they are tried again.").WithLabelValues(),
	}
	// Those that alerts wait for stand at zero: what is there only from its first event
	// on has not increased by it.
	c.overrun.WithLabelValues(c.currency)
	for _, state := range []string{gateway.CaptureQueued, gateway.CaptureFailed, gateway.CaptureSettled, gateway.CaptureGivenUp, gateway.CaptureLost} {
		c.captures.WithLabelValues(state)
	}
	return c
}

// Observer is one for gateway.Options.Observe.
func (m *Metrics) Observer() gateway.Observer {
	return gateway.Observer{Attempted: m.attempted, End: m.end, Event: m.event}
}

// none is the operation and the model of a request that has neither.
const none = "none"

// opLabel is an operation as a label: one of the few that there are.
func opLabel(op upstream.Op) string {
	if slices.Contains(upstream.Ops(), op) {
		return string(op)
	}
	return none
}

// outcome bounds a fault's code: an upstream may say any word.
func outcome(word string) string {
	if word == "complete" || word == "replayed" || fault.Code(word).Known() {
		return word
	}
	return "upstream_error"
}

// model bounds a model's id: a caller may name any.
func (m *Metrics) model(id string, listed bool) string {
	switch {
	case id == "":
		return none
	case !listed:
		return other
	}
	return m.models.bounded(id)
}

func (m *Metrics) end(_ context.Context, f *gateway.RequestEvent) {
	c, op, model := m.counters, opLabel(f.Op), m.model(f.Model, f.Listed)
	c.requests.WithLabelValues(op, model, outcome(f.Outcome)).Inc()
	c.duration.WithLabelValues(op, model).Observe(f.Duration.Seconds())
	if f.First > 0 {
		c.first.WithLabelValues(op, model).Observe(f.First.Seconds())
	}
	for _, p := range []struct {
		phase string
		took  time.Duration
	}{
		{"auth", f.Phases.Auth}, {"admit", f.Phases.Admit}, {"hold", f.Phases.Hold},
		{"upstream", f.Phases.Upstream}, {"settle", f.Phases.Settle},
	} {
		if p.took > 0 {
			c.phases.WithLabelValues(p.phase).Observe(p.took.Seconds())
		}
	}
	if f.Affinity != "" {
		c.affinity.WithLabelValues(f.Affinity).Inc()
	}
	if f.Receipt != nil {
		c.sources.WithLabelValues(f.UsageSource()).Inc()
		m.settled(op, model, f.Receipt)
	}
}

// tokens are the units that are counted in tokens.
var tokens = []billing.Unit{
	billing.Input, billing.CachedInput, billing.CacheWrite, billing.Output, billing.Reasoning, billing.ImageInput, billing.ImageOutput,
}

// settled counts what a receipt charges: of a request, of a video or of a settlement that was
// late, each once.
func (m *Metrics) settled(op, model string, r *billing.Receipt) {
	c := m.counters
	for unit, n := range r.Usage.Units {
		counter := c.units
		if slices.Contains(tokens, unit) {
			counter = c.tokens
		}
		counter.WithLabelValues(op, model, string(unit)).Add(float64(n))
	}
	if r.Usage.Anomaly {
		c.sources.WithLabelValues("anomaly").Inc()
	}
	if r.Charge > 0 {
		c.money.WithLabelValues(op, model, c.currency).Add(amount(r.Charge))
	}
	if r.Overrun > 0 {
		c.overrun.WithLabelValues(c.currency).Add(amount(r.Overrun))
	}
}

// amount is money as Prometheus can have it. Nothing is ever charged by it.
func amount(m billing.Money) float64 { return float64(m) / float64(billing.One) }

// attempted counts an attempt at a channel. Only one that was answered has a latency.
func (m *Metrics) attempted(_ context.Context, a gateway.AttemptEvent) {
	c, op, channel := m.counters, opLabel(a.Op), m.channels.bounded(a.Channel)
	if a.Again {
		c.retries.WithLabelValues(op).Inc()
	}
	went := "ok"
	if a.Code != "" {
		went = outcome(string(a.Code))
	} else {
		c.latency.WithLabelValues(channel, op).Observe(a.Duration.Seconds())
	}
	c.attempts.WithLabelValues(channel, op, went).Inc()
}

// event counts what happens outside of requests: steps of videos, deliveries, and settlements
// that were tried again.
func (m *Metrics) event(_ context.Context, e gateway.Event) {
	c := m.counters
	switch e := e.(type) {
	case gateway.TaskMoved:
		c.taskMoves.WithLabelValues(string(e.To)).Inc()
		model := m.model(e.Model, e.Listed)
		if e.Late {
			c.late.WithLabelValues(model).Inc()
		}
		if e.Receipt != nil {
			c.taskTime.WithLabelValues(string(e.To)).Observe(e.Age.Seconds())
			m.settled(opLabel(upstream.SubmitVideo), model, e.Receipt)
		}
	case gateway.DeliveryTried:
		went := e.Outcome
		if e.Final && went != "delivered" && went != "gone" {
			went = "given_up"
		}
		c.webhooks.WithLabelValues(went).Inc()
	case gateway.CaptureRetried:
		c.captures.WithLabelValues(e.State).Inc()
		if r := e.Receipt; r != nil {
			c.sources.WithLabelValues((&gateway.RequestEvent{Receipt: r}).UsageSource()).Inc()
			m.settled(opLabel(upstream.Op(r.Operation)), m.model(r.Model, e.Listed), r)
		}
	}
}
