package e2e

import (
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/pgtest"
)

// failover is a primary, its standby, and nodes that know both by one address.
type failover struct {
	t                testing.TB
	primary, standby *pgtest.Server
	toPrimary        *pgtest.Network
	vendor           *scriptedVendor
	config           string // of the nodes
	beside           string // of a node that goes to the standby at once
	nodes            []*node
	client           *client
	record           *clientRecord
	keys             keyedRequests
	stop             func() // the load
}

// host is the port of the loopback that leads to a server through a network.
func host(t testing.TB, n *pgtest.Network, s *pgtest.Server) string {
	t.Helper()
	u, err := url.Parse(n.Through(t, s.URL))
	must(t, err)
	return u.Host
}

// newFailover starts a primary that waits for its standby, and nodes under a mixed load.
func newFailover(t testing.TB, nodes int, streams ...string) *failover {
	t.Helper()
	f := &failover{t: t, primary: server(t), toPrimary: new(pgtest.Network), record: newClientRecord()}
	f.standby = f.primary.NewStandby(t)
	f.primary.Require(t, pgtest.Standby)
	f.vendor = newScriptedVendor(t, streams...)
	both := fmt.Sprintf("postgres://test@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write",
		host(t, f.toPrimary, f.primary), host(t, new(pgtest.Network), f.standby))
	f.config = settings{store: both, vendor: f.vendor.url, credit: "25"}.text()
	f.beside = settings{store: f.standby.URL, vendor: f.vendor.url, credit: "25"}.text()
	f.nodes = several(t, nodes, f.config)
	f.client = newClient(t, 50)
	f.stop = f.load(12)
	until(t, patience, "a hundred good answers", func() bool { return f.record.whole() >= 100 })
	return f
}

// keyedRequests are the ids of the requests of each Idempotency-Key.
type keyedRequests struct {
	mu  sync.Mutex
	ids map[string]map[string]bool
}

func (k *keyedRequests) add(key, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]map[string]bool{}
	}
	if k.ids[key] == nil {
		k.ids[key] = map[string]bool{}
	}
	k.ids[key][id] = true
}

// load is a mixed load in which two of five requests have a key, with which they are
// repeated until they are answered or refused for good.
func (f *failover) load(workers int) (stop func()) {
	over := make(chan struct{})
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			n := f.nodes[worker%len(f.nodes)]
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for i, tries := 0, 0; ; {
				select {
				case <-over:
					return
				case <-pause.C:
				}
				q, key := mixed(worker, i), ""
				if i%5 < 2 {
					key = fmt.Sprintf("%d-%d", worker, i)
					q.header = map[string]string{"Idempotency-Key": key}
				}
				a := f.client.chat(n, q)
				f.record.add(q, a)
				if key != "" && a.id() != "" {
					f.keys.add(key, a.id())
				}
				if key != "" && !a.whole() && a.header.Get("X-Should-Retry") != "false" && tries < 100 {
					tries++
					continue
				}
				i, tries = i+1, 0
			}
		})
	}
	return sync.OnceFunc(func() { close(over); running.Wait() })
}

// begin opens a stream on each node, up to its first pause, and returns where they end.
func (f *failover) begin(texts []string) <-chan answer {
	f.t.Helper()
	ends := make(chan answer, len(texts))
	for i, text := range texts {
		go func() {
			q := request{text: text, max: scripted, stream: true}
			a := f.client.chat(f.nodes[i%len(f.nodes)], q)
			f.record.add(q, a)
			ends <- a
		}()
		await(f.t, f.vendor.arrived, "a stream begins")
	}
	return ends
}

// serveAgain waits until each node serves, and reports how long the slowest took.
func (f *failover) serveAgain(since time.Time) {
	f.t.Helper()
	for _, n := range f.nodes {
		until(f.t, patience, "service returns", func() bool {
			q := request{text: "after all", max: 1}
			a := f.client.chat(n, q)
			f.record.add(q, a)
			return a.whole()
		})
	}
	f.t.Logf("the slowest node served again %s after the promotion", time.Since(since).Round(100*time.Millisecond))
}

// finish lets the streams end, which must be whole.
func (f *failover) finish(ends <-chan answer, texts []string) {
	f.t.Helper()
	for _, text := range texts {
		close(f.vendor.resume[text])
		close(f.vendor.end[text])
	}
	for range texts {
		if a := await(f.t, ends, "a stream ends"); !a.whole() {
			f.t.Errorf("a stream of a living node: %s", a)
		}
	}
}

// check compares what clients saw with the new primary.
func (f *failover) check(t testing.TB) {
	t.Helper()
	b := openDatabase(t, f.standby.URL)
	f.record.checkAgainst(t, b)
	captured, doubled := b.captured(), 0
	for key, ids := range f.keys.ids {
		charged := 0
		for id := range ids {
			if _, ok := captured[id]; ok {
				charged++
			}
		}
		if charged > 1 {
			t.Errorf("the key %s was charged %d times: %v", key, charged, ids)
			doubled++
		}
	}
	t.Logf("%d keys, %d charged twice", len(f.keys.ids), doubled)
}

// down is how long there is no primary. It is longer than a lease where that matters.
const down = 3 * time.Second

func TestAFailOverLosesNothingAndServiceReturnsByItself(t *testing.T) {
	t.Parallel()
	texts := []string{"one", "two", "three"}
	for name, c := range map[string]struct {
		death func(f *failover) error
		down  time.Duration
		fresh bool // a process starts, which has seen no outage
	}{
		"the primary is killed": {func(f *failover) error { return f.primary.Kill() }, down, false},
		"the primary is cut off and a process starts": {func(f *failover) error {
			f.toPrimary.Silent.Store(true)
			return nil
		}, nodeLease + down, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFailover(t, len(texts), texts...)
			ends := f.begin(texts)
			must(t, c.death(f))
			<-time.After(c.down) // what has to pass is the time
			must(t, f.standby.Promote())
			promoted := time.Now()
			if c.fresh {
				f.nodes = append(f.nodes, newInstallation(t, f.beside).start(t))
			}
			f.serveAgain(promoted)
			f.finish(ends, texts)
			f.stop()
			f.check(t)
			f.nodes[0].sound()
		})
	}
}

func TestNoCreditIsLostThatWasAcknowledgedBeforeAFailOver(t *testing.T) {
	t.Parallel()
	f := newFailover(t, 2)
	acknowledged := map[string]bool{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	credit := func(reference string) {
		asked.Go(func() {
			if r := f.nodes[0].command("account", "credit", "acme", "1.00", "--reference", reference); r.ok {
				mu.Lock()
				acknowledged[reference] = true
				mu.Unlock()
			}
		})
	}
	credit("before")
	asked.Wait()
	must(t, f.standby.Stop("immediate"))
	for i := range 3 {
		credit("away" + strconv.Itoa(i))
	}
	<-time.After(8 * time.Second) // a COMMIT that is given up takes five
	mu.Lock()
	if len(acknowledged) != 1 {
		t.Errorf("acknowledged while there was no standby: %v", acknowledged)
	}
	mu.Unlock()
	must(t, f.primary.Kill())
	must(t, f.standby.Start())
	must(t, f.standby.Promote())
	f.serveAgain(time.Now())
	f.stop()
	asked.Wait()
	f.check(t)
	b := openDatabase(t, f.standby.URL)
	for reference := range acknowledged {
		if n := b.number("SELECT COUNT(*) FROM entry WHERE reference = '" + reference + "'"); n != 1 {
			t.Errorf("the credit %s, which was acknowledged, is there %d times", reference, n)
		}
	}
	f.nodes[0].sound()
}
