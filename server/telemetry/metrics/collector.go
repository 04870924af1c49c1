package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// snapshot is what one scrape has read. What has no source is nil.
type snapshot struct {
	gateway  *gatewayState
	store    *Store
	openWork *OpenWork
	now      time.Time
}

// gatewayState is what a gateway reports of itself.
type gatewayState struct {
	gateway.Load
	gateway.Backlog
	draining bool
}

// valueMetric is a metric without labels that is read from a snapshot.
type valueMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(s *snapshot) (value float64, ok bool)
}

// collector collects what is read at the moment of a scrape.
type collector struct {
	m            *Metrics
	values       []valueMetric
	channels     []channelMetric
	state        *prometheus.Desc
	tasks        *prometheus.Desc
	circuitOpens *prometheus.Desc
}

func newCollector(m *Metrics) *collector {
	return &collector{
		m: m, values: valueMetrics(), channels: channelMetrics(),
		state:        describe("channel_state", "1 for the state that a channel is in, 0 for the others.", "channel", "state"),
		circuitOpens: describe("channel_rests_total", "How often a channel's circuit breaker opened after failures (ejected).", "channel"),
		tasks:        describe("tasks_open", "Open tasks of videos by state, of all processes.", "state"),
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tollhouse_"+name, help, labels, nil)
}

func valueMetrics() []valueMetric {
	const gauge, count = prometheus.GaugeValue, prometheus.CounterValue
	return []valueMetric{
		{describe("calls_running", "Calls that run, open streams among them."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Running) })},
		{describe("calls_waiting", "Calls that wait for a slot."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Waiting) })},
		{describe("calls_full", "1 while all slots are taken and the queue is full."), gauge, ofGateway(func(g *gatewayState) int64 { return boolValue(g.Full) })},
		{describe("calls_shed_total", "Calls that were refused because of overload."), count, ofGateway(func(g *gatewayState) int64 { return g.Refused })},
		{describe("request_body_bytes", "Bytes of large requests in memory."), gauge, ofGateway(func(g *gatewayState) int64 { return g.Bodies })},
		{describe("answer_bytes", "Bytes of memory taken for large answers; 0 where memory has no bound."), gauge, ofGateway(func(g *gatewayState) int64 { return g.Answers })},
		{describe("memory_short", "1 while new calls are refused because memory is short."), gauge, ofGateway(func(g *gatewayState) int64 { return boolValue(g.Short) })},
		{describe("streams_open", "Running calls whose answers stream."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Streams) })},
		{describe("captures_pending", "Settlements that are not durable yet and are tried again; their money is held."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Captures) })},
		{describe("video_steps_pending", "Steps of videos that the store has not taken yet."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Steps) })},
		{describe("tasks_watched", "Open tasks of videos that this process polls."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Tasks) })},
		{describe("video_waiters", "Callers who wait for the end of a video."), gauge, ofGateway(func(g *gatewayState) int64 { return int64(g.Waiters) })},
		{describe("draining", "1 while new calls are refused because the gateway shuts down."), gauge, ofGateway(func(g *gatewayState) int64 { return boolValue(g.draining) })},
		{describe("holds_open", "Open holds of this process."), gauge, ofStore(func(s *Store) int64 { return int64(s.Holds) })},
		{describe("store_queue", "Operations that wait for the store's next transaction."), gauge, ofStore(func(s *Store) int64 { return int64(s.Waiting) })},
		{describe("store_up", "0 while the database does not take transactions."), gauge, ofStore(func(s *Store) int64 { return boolValue(!s.Down) })},
		{describe("webhooks_waiting", "Webhooks that wait to be delivered, of all processes."), gauge, ofOpenWork(func(b *OpenWork, _ time.Time) float64 { return float64(b.Webhooks) })},
		{describe("webhook_oldest_seconds", "Age of the webhook that waits for longest; 0 if none does."), gauge, ofOpenWork(oldestWebhook)},
	}
}

func boolValue(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func oldestWebhook(b *OpenWork, now time.Time) float64 {
	if b.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(b.Oldest).Seconds())
}

func ofGateway(read func(*gatewayState) int64) func(*snapshot) (float64, bool) {
	return func(s *snapshot) (float64, bool) {
		if s.gateway == nil {
			return 0, false
		}
		return float64(read(s.gateway)), true
	}
}

func ofStore(read func(*Store) int64) func(*snapshot) (float64, bool) {
	return func(s *snapshot) (float64, bool) {
		if s.store == nil {
			return 0, false
		}
		return float64(read(s.store)), true
	}
}

func ofOpenWork(read func(*OpenWork, time.Time) float64) func(*snapshot) (float64, bool) {
	return func(s *snapshot) (float64, bool) {
		if s.openWork == nil {
			return 0, false
		}
		return read(s.openWork, s.now), true
	}
}

// channelMetric is a metric of each channel.
type channelMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(c *router.ChannelInfo) float64
}

func channelMetrics() []channelMetric {
	const gauge, count = prometheus.GaugeValue, prometheus.CounterValue
	return []channelMetric{
		{describe("channel_in_flight", "Calls at a channel whose answers have not ended.", "channel"), gauge, func(c *router.ChannelInfo) float64 { return float64(c.InFlight) }},
		{describe("channel_requests_total", "Attempts at a channel, reloads included.", "channel"), count, func(c *router.ChannelInfo) float64 { return float64(c.Requests) }},
		{describe("channel_failures_total", "Attempts that counted against a channel.", "channel"), count, func(c *router.ChannelInfo) float64 { return float64(c.Failures) }},
		{describe("channel_recent_latency_seconds", "How long a channel lately took to its first content; 0 if it is unknown.", "channel"), gauge, func(c *router.ChannelInfo) float64 { return c.Latency.Seconds() }},
	}
}

// Describe implements [prometheus.Collector].
func (s *collector) Describe(to chan<- *prometheus.Desc) {
	for i := range s.values {
		to <- s.values[i].desc
	}
	for i := range s.channels {
		to <- s.channels[i].desc
	}
	to <- s.state
	to <- s.tasks
	to <- s.circuitOpens
}

// Collect implements [prometheus.Collector].
func (s *collector) Collect(to chan<- prometheus.Metric) {
	from := s.m.sources.Load()
	if from == nil {
		return
	}
	now := s.read(from)
	for i := range s.values {
		r := &s.values[i]
		if v, ok := r.read(&now); ok {
			to <- prometheus.MustNewConstMetric(r.desc, r.kind, v)
		}
	}
	if now.openWork != nil {
		for name, n := range now.openWork.Tasks {
			to <- prometheus.MustNewConstMetric(s.tasks, prometheus.GaugeValue, float64(n), name)
		}
	}
	if from.Channels != nil {
		s.collectChannels(to, from.Channels())
	}
	if from.CircuitOpens == nil {
		return
	}
	for name, n := range from.CircuitOpens() {
		if s.m.channels.bounded(name) == name {
			to <- prometheus.MustNewConstMetric(s.circuitOpens, prometheus.CounterValue, float64(n), name)
		}
	}
}

func (s *collector) read(from *Sources) snapshot {
	now := snapshot{openWork: s.m.openWork.Load(), now: time.Now()}
	if g := from.Gateway; g != nil {
		now.gateway = &gatewayState{Load: g.Load(), Backlog: g.Backlog(), draining: g.Draining()}
	}
	if from.Store != nil {
		store := from.Store()
		now.store = &store
	}
	return now
}

// collectChannels collects the channels in force. Those whose names are over the
// limit are left out: two series cannot have one name.
func (s *collector) collectChannels(to chan<- prometheus.Metric, all []router.ChannelInfo) {
	for i := range all {
		c := &all[i]
		if s.m.channels.bounded(c.Name) != c.Name {
			continue
		}
		for _, r := range s.channels {
			to <- prometheus.MustNewConstMetric(r.desc, r.kind, r.read(c), c.Name)
		}
		for _, state := range [...]string{router.Ready, router.Resting, router.Probing, router.Paused} {
			to <- prometheus.MustNewConstMetric(s.state, prometheus.GaugeValue, float64(boolValue(c.State == state)), c.Name, state)
		}
	}
}
