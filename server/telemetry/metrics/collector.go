package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollhouse-ai/gateway/upstream/router"
)

// collector collects what is read at the moment of a scrape.
type collector struct{ *Metrics }

// Describe implements [prometheus.Collector]. It sends nothing: which metrics there
// are depends on the sources.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	from := c.sources.Load()
	if from == nil {
		return
	}
	s := sink{to}
	s.gateway(from)
	if from.Store != nil {
		now := from.Store()
		s.gauge("holds_open", "Open holds of this process.", now.Holds)
		s.gauge("store_queue", "Operations that wait for the store's next transaction.", now.Waiting)
		s.flag("store_up", "0 while the database does not take transactions.", !now.Down)
	}
	if work := c.openWork.Load(); work != nil {
		s.openWork(work)
	}
	// A channel whose name is over the limit is left out: two series cannot have one
	// name.
	if from.Channels != nil {
		for _, channel := range from.Channels() {
			if c.channels.bounded(channel.Name) == channel.Name {
				s.channel(&channel)
			}
		}
	}
}

// sink sends metrics to Prometheus.
type sink struct{ to chan<- prometheus.Metric }

// send sends a metric; labels are pairs of names and values.
func (s sink) send(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s.to <- prometheus.MustNewConstMetric(prometheus.NewDesc("tollhouse_"+name, help, names, nil), kind, value, values...)
}

func (s sink) gauge(name, help string, n int, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, float64(n), labels...)
}

// flag sends 1 for true and 0 for false.
func (s sink) flag(name, help string, set bool, labels ...string) {
	n := 0
	if set {
		n = 1
	}
	s.gauge(name, help, n, labels...)
}

// gateway sends what the gateway reports of itself.
func (s sink) gateway(from *Sources) {
	g := from.Gateway
	if g == nil {
		return
	}
	load, backlog := g.Load(), g.Backlog()
	s.gauge("calls_running", "Calls that run, open streams among them.", load.Running)
	s.gauge("calls_waiting", "Calls that wait for a slot.", load.Waiting)
	s.flag("calls_full", "1 while all slots are taken and the queue is full.", load.Full)
	s.send(prometheus.CounterValue, "calls_shed_total", "Calls that were refused because of overload.", float64(load.Refused))
	s.send(prometheus.GaugeValue, "request_body_bytes", "Bytes of large requests in memory.", float64(load.Bodies))
	s.send(prometheus.GaugeValue, "answer_bytes", "Bytes of memory taken for large answers; 0 where memory has no bound.", float64(load.Answers))
	s.flag("memory_short", "1 while new calls are refused because memory is short.", load.Short)
	s.gauge("streams_open", "Running calls whose answers stream.", backlog.Streams)
	s.gauge("captures_pending", "Settlements that are not durable yet and are tried again; their money is held.", backlog.Captures)
	s.gauge("video_steps_pending", "Steps of videos that the store has not taken yet.", backlog.Steps)
	s.gauge("tasks_watched", "Open tasks of videos that this process polls.", backlog.Tasks)
	s.gauge("video_waiters", "Callers who wait for the end of a video.", backlog.Waiters)
	s.flag("draining", "1 while new calls are refused because the gateway shuts down.", g.ShuttingDown())
}

// openWork sends what the store of all processes has open.
func (s sink) openWork(work *OpenWork) {
	for state, n := range work.Tasks {
		s.send(prometheus.GaugeValue, "tasks_open", "Open tasks of videos by state, of all processes.", float64(n), "state", state)
	}
	var age float64
	if !work.Oldest.IsZero() {
		age = max(0, time.Since(work.Oldest).Seconds())
	}
	s.send(prometheus.GaugeValue, "webhooks_waiting", "Webhooks that wait to be delivered, of all processes.", float64(work.Webhooks))
	s.send(prometheus.GaugeValue, "webhook_oldest_seconds", "Age of the webhook that has waited longest; 0 without one.", age)
}

// channel sends what the router reports of a channel.
func (s sink) channel(c *router.ChannelInfo) {
	s.gauge("channel_in_flight", "Calls at a channel whose answers have not ended.", c.InFlight, "channel", c.Name)
	s.send(prometheus.CounterValue, "channel_requests_total", "Attempts at a channel, reloads included.", float64(c.Requests), "channel", c.Name)
	s.send(prometheus.CounterValue, "channel_failures_total", "Attempts that counted against a channel.", float64(c.Failures), "channel", c.Name)
	s.send(prometheus.CounterValue, "channel_rests_total", "How often a channel's circuit breaker opened after failures (ejected).", float64(c.CircuitOpens), "channel", c.Name)
	s.send(prometheus.GaugeValue, "channel_recent_latency_seconds", "How long a channel lately took to its first content; 0 if it is unknown.", c.Latency.Seconds(), "channel", c.Name)
	if c.Discovers {
		s.gauge("channel_models", "Models that a channel serves, if its vendor is asked for a list.", len(c.Models), "channel", c.Name)
		var listed float64
		if !c.Listed.IsZero() {
			listed = float64(c.Listed.Unix())
		}
		s.send(prometheus.GaugeValue, "channel_list_timestamp_seconds", "When the vendor's last good list of models came, in Unix seconds; 0 if none did.", listed, "channel", c.Name)
		s.flag("channel_list_failing", "1 if the last request for a vendor's list of models failed.", c.ListError != "", "channel", c.Name)
	}
	for _, state := range [...]string{router.StateClosed, router.StateOpen, router.StateHalfOpen, router.StatePaused} {
		s.flag("channel_state", "1 for the state that a channel is in, 0 for the others.", c.State == state, "channel", c.Name, "state", state)
	}
}
