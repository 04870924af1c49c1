package e2e

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
)

// lease is within which the holds of a killed node must have been ended by
// another: its lease, and the time until the next sweep.
const lease = 40 * time.Second

func TestKilledUnderLoadAndStartedAgainItChargesEveryWholeAnswerOnce(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); killed(t, sqliteFile(t), 1) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); killed(t, postgres(t), 2) })
}

func killed(t *testing.T, store string, count int) {
	rounds := longtest.Count(8, 2)
	v := newVendor(t)
	config := settings{store: store, vendor: v.url, credit: "25"}.text()
	places := make([]installation, count)
	current := make([]atomic.Pointer[node], count)
	for i := range places {
		places[i] = newInstallation(t, config)
		current[i].Store(places[i].start(t))
	}
	c, w := newClient(t, 50), newClientRecord()
	stop := w.load(c, 12, func(worker int) *node { return current[worker%count].Load() }, mixed)
	for round := range rounds {
		before := w.whole()
		until(t, patience, "the load goes on", func() bool { return w.whole() >= before+50 })
		<-time.After(rand.N(30 * time.Millisecond)) // the moment is what this is about
		victim := round % count
		current[victim].Load().kill()
		current[victim].Store(places[victim].start(t))
	}
	stop()
	if count == 1 {
		b := openDatabase(t, store)
		if n := b.openHolds(); n != 0 {
			t.Errorf("%d holds are open that the start should have ended", n)
		}
		w.checkAgainst(t, b)
		current[0].Load().sound()
		return
	}
	current[0].Load().kill()
	b := openDatabase(t, store)
	took := until(t, lease, "the survivor ends the holds", func() bool { return b.openHolds() == 0 })
	t.Logf("the survivor had ended the holds of the dead after %s", took)
	w.checkAgainst(t, b)
	current[1].Load().sound()
}

func TestAStreamThatACrashCutsIsChargedItsLastDurableCheckpoint(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); checkpointed(t, sqliteFile(t), "", false) })
	t.Run("sqlite, responses", func(t *testing.T) { t.Parallel(); checkpointed(t, sqliteFile(t), responses, false) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); checkpointed(t, postgres(t), "", true) })
}

func checkpointed(t *testing.T, store, wire string, survivor bool) {
	// A checkpoint comes after 1,000 tokens at the latest, earlier if time passes.
	const produced, last, early = 2_500, 1_500, 100
	v := newVendor(t)
	var stopped sync.WaitGroup
	stopped.Add(2)
	stops := map[string]int64{"long": produced, "short": early}
	v.token = func(r *http.Request, c vendorCall, i int64) {
		if at, ok := stops[c.text()]; ok && i == at {
			stopped.Done()
			<-r.Context().Done()
		}
	}
	p := newInstallation(t, settings{store: store, vendor: v.url, credit: "25"}.text())
	n := p.start(t)
	c := newClient(t, 10)
	answers := make(chan answer, 2)
	for text := range stops {
		go func() { answers <- c.chat(n, request{text: text, max: 4_000, stream: true, wire: wire}) }()
	}
	stopped.Wait()
	b := openDatabase(t, store)
	until(t, patience, "a checkpoint is durable", func() bool { return b.checkpoint() > last })
	other := n
	if survivor {
		other = newInstallation(t, settings{store: store, vendor: v.url, credit: "25"}.text()).start(t)
	}
	n.kill()
	if !survivor {
		other = p.start(t)
	}
	ids := map[string]bool{}
	for range 2 {
		a := await(t, answers, "a stream that was cut")
		if a.whole() || a.err == nil {
			t.Errorf("the stream ended well: %d", a.status)
		}
		ids[a.id()] = true
	}
	took := until(t, lease, "the holds end", func() bool { return b.openHolds() == 0 })
	charged := 0
	for id, r := range b.receipts() {
		if !ids[id] {
			continue
		}
		switch {
		case r.output <= early && r.charge == r.output*price: // its checkpoint is one of time
		case r.output > last && r.output <= produced && r.charge == r.output*price:
			charged++
			t.Logf("of %d tokens that were produced %d were charged, %s after the crash: %s", produced, r.output, took, r.reason)
		default:
			t.Errorf("a stream was charged %+v", r)
		}
	}
	if charged != 1 {
		t.Errorf("%d streams were charged a checkpoint", charged)
	}
	other.sound()
}

var outputSoFar = regexp.MustCompile(`"Output":(\d+)`)

// checkpoint is the most output tokens that an open hold is known to owe for.
func (b database) checkpoint() (most int64) {
	b.t.Helper()
	for _, m := range outputSoFar.FindAllStringSubmatch(b.text("SELECT so_far FROM hold"), -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		must(b.t, err)
		most = max(most, n)
	}
	return most
}
