package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	gateway "github.com/tollhouse-ai/gateway"
)

// counters are the metrics that events change.
type counters struct {
	currency string

	requests, tokens, units, money, overrun, sources *prometheus.CounterVec
	duration, first, phases                          *prometheus.HistogramVec

	attempts *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	retries  *prometheus.CounterVec

	taskMoves, late   *prometheus.CounterVec
	taskTime          *prometheus.HistogramVec
	notices, captures *prometheus.CounterVec

	commitTime, commitSize prometheus.Histogram
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

func newCounters(currency string) *counters {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tollhouse_" + name, Help: help}, labels)
	}
	spread := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tollhouse_" + name, Help: help, Buckets: bounds}, labels)
	}
	alone := func(name, help string, bounds []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tollhouse_" + name, Help: help, Buckets: bounds})
	}
	c := &counters{
		currency: currency,
		requests: count("requests_total", "Requests that ended, by operation, model and outcome (complete, replayed or the error's code).", "op", "model", "outcome"),
		duration: spread("request_duration_seconds", "Time of a request until its end, a stream's to the last event.", requestTimes, "op", "model"),
		first:    spread("time_to_first_chunk_seconds", "Time of a stream or of audio until the first of it was there for the caller.", requestTimes, "op", "model"),
		phases:   spread("request_phase_seconds", "Where the time of a request goes: auth, admit, hold, upstream, settle.", phaseTimes, "phase"),
		tokens:   count("tokens_total", "Tokens that were settled, by kind. Reasoning is a part of output.", "op", "model", "kind"),
		units:    count("media_units_total", "Pictures, seconds of video and characters of speech that were settled.", "op", "model", "unit"),
		money:    count("charged_total", "Money that customers paid, in units of the currency.", "op", "model", "currency"),
		overrun:  count("overrun_total", "Money that the operator bore because an account had no more, in units of the currency.", "currency"),
		sources:  count("usage_reports_total", "Settled requests by where their counts came from: upstream, estimated, none; and anomaly for those that were clamped.", "source"),

		attempts: count("upstream_attempts_total", "Attempts at channels, by how they went: ok or the error's code.", "channel", "op", "outcome"),
		latency:  spread("upstream_latency_seconds", "Time until a channel's answer was accepted: a stream's first events, or the whole of any other.", requestTimes, "channel", "op"),
		retries:  count("upstream_retries_total", "Attempts after one that failed.", "op"),

		taskMoves: count("task_moves_total", "Steps of videos' tasks, by the state that they led to.", "state"),
		taskTime:  spread("task_duration_seconds", "Time of a video's task from its submission to its end.", taskTimes, "state"),
		late:      count("task_late_total", "Videos that were made after their tasks had expired: nobody gets them.", "model"),
		notices:   count("webhook_tries_total", "Tries to deliver webhooks, by outcome: delivered, retry, refused, gone, given_up.", "outcome"),
		captures:  count("capture_retries_total", "Settlements that were not durable when their calls ended, by what became of them.", "state"),

		commitTime: alone("store_commit_seconds", "Time of the store's transactions.", commitTimes),
		commitSize: alone("store_commit_operations", "Operations that the store did in one transaction.", batchSizes),
		commitFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollhouse_store_commit_failures_total", Help: "Transactions of the store that failed; they are tried again.",
		}),
	}
	c.begin()
	return c
}

// begin has those stand at zero that alerts wait for: what is there only from its
// first event on has not increased by it.
func (c *counters) begin() {
	c.overrun.WithLabelValues(c.currency)
	for _, state := range []string{gateway.CaptureQueued, gateway.CaptureFailed, gateway.CaptureSettled, gateway.CaptureGivenUp, gateway.CaptureLost} {
		c.captures.WithLabelValues(state)
	}
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{
		c.requests, c.duration, c.first, c.phases, c.tokens, c.units, c.money, c.overrun, c.sources,
		c.attempts, c.latency, c.retries, c.taskMoves, c.taskTime, c.late, c.notices, c.captures,
		c.commitTime, c.commitSize, c.commitFailures,
	}
}
