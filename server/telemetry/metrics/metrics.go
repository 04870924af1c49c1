// Package metrics counts what a gateway does for Prometheus: an Observer, the
// collectors of what is open, and the handler that a scrape asks.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Options are of a Metrics. The zero value is the default.
type Options struct {
	// Version is the program's, for tollhouse_build_info.
	Version string
	// Currency is that of amounts; empty means USD.
	Currency string
	// MaxModels and MaxChannels are how many names of each a label may have in the
	// life of the process; those that come later count as "other". Zero means 500
	// models and 200 channels.
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
	books    atomic.Pointer[Books] // as they were last read
	models   names
	channels names
}

// Sources are what a scrape asks besides the counters. Fields that are nil are
// left out.
type Sources struct {
	Gateway *gateway.Gateway
	// Channels are those in force; it must be quick.
	Channels func() []router.ChannelInfo
	// Rests are how often channels were sent to rest, by name; it must be quick.
	Rests func() map[string]int64
	// Store tells of the store's writing; it must be quick.
	Store func() Store
	// Books counts what the store holds open. [Metrics.Run] asks it.
	Books func(ctx context.Context) (Books, error)
}

// Store is what a store is about at one moment.
type Store struct {
	Holds   int  // open ones of this process
	Waiting int  // operations that wait to be committed
	Away    bool // the database did not take the last transaction
}

// Books is what a store has not brought to an end.
type Books struct {
	Tasks   map[string]int64 // open tasks of videos, by state
	Notices int64            // webhooks that wait
	Oldest  time.Time        // when the oldest of them was written; zero if none waits
}

// New returns counters that stand at zero.
func New(o Options) *Metrics {
	if o.Currency == "" {
		o.Currency = "USD"
	}
	if o.MaxModels == 0 {
		o.MaxModels = 500
	}
	if o.MaxChannels == 0 {
		o.MaxChannels = 200
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), counters: newCounters(o.Currency),
		models: names{most: o.MaxModels}, channels: names{most: o.MaxChannels},
	}
	m.registry.MustRegister(m.counters.all()...)
	m.registry.MustRegister(
		newScraped(m), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollhouse_build_info", Help: "Always 1; the labels say which program this is.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(o.Version, runtime.Version()).Set(1)
	m.registry.MustRegister(build)
	// To compress them would take longer than to gather them.
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

// Watch has scrapes ask the sources. Those of before are forgotten.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// ServeHTTP answers a scrape. Whoever serves it decides who may ask.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Gatherer gives the metrics to other exporters.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// booksEvery is how often Run reads the books.
const booksEvery = 15 * time.Second

// Run reads the books four times a minute until ctx ends, so that no scrape waits
// for a database. It returns nil.
func (m *Metrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(booksEvery)
	defer ticker.Stop()
	for {
		m.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// read reads the books. Where that fails the metrics of them are missing, since
// old numbers would say that nothing changes.
func (m *Metrics) read(ctx context.Context) {
	s := m.sources.Load()
	if s == nil || s.Books == nil {
		return
	}
	books, err := s.Books(ctx)
	if err != nil {
		m.books.Store(nil)
		return
	}
	m.books.Store(&books)
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

// names are the values of a label, of which there are only so many.
type names struct {
	most  int
	mu    sync.RWMutex
	known map[string]bool
}

// other stands for every name that a label does not have.
const other = "other"

// bounded is the name, or other if there are too many already.
func (n *names) bounded(name string) string {
	n.mu.RLock()
	known := n.known[name]
	n.mu.RUnlock()
	if known {
		return name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
	case len(n.known) >= n.most:
		return other
	case n.known == nil:
		n.known = map[string]bool{name: true}
	default:
		n.known[name] = true
	}
	return name
}
