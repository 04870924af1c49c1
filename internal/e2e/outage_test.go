package e2e

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// scriptedVendor is a vendor whose calls stop at a token until the test lets them go on.
type scriptedVendor struct {
	*vendor
	arrived chan string
	resume  map[string]chan struct{} // by the text of the call
	end     map[string]chan struct{}
}

// pauses are the tokens of a scripted vendor's streams before which they wait.
const firstPause, secondPause, scripted = 3, 6, 9

func newScriptedVendor(t testing.TB, texts ...string) *scriptedVendor {
	s := &scriptedVendor{newVendor(t), make(chan string, 100), map[string]chan struct{}{}, map[string]chan struct{}{}}
	for _, text := range texts {
		s.resume[text], s.end[text] = make(chan struct{}), make(chan struct{})
	}
	wait := func(r *http.Request, c vendorCall, on chan struct{}) {
		s.arrived <- c.text()
		select {
		case <-on:
		case <-r.Context().Done():
		}
	}
	s.answer = func(_ http.ResponseWriter, r *http.Request, c vendorCall) bool {
		if !c.Stream && s.resume[c.text()] != nil {
			wait(r, c, s.resume[c.text()])
		}
		return false
	}
	s.token = func(r *http.Request, c vendorCall, i int64) {
		switch {
		case s.resume[c.text()] == nil:
		case i == firstPause:
			wait(r, c, s.resume[c.text()])
		case i == secondPause:
			wait(r, c, s.end[c.text()])
		}
	}
	return s
}

func TestWhileTheDatabaseIsDownCallsGetOnly503AndServiceReturnsByItself(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fast", "immediate"} {
		t.Run(mode, func(t *testing.T) { t.Parallel(); outage(t, mode) })
	}
}

func outage(t *testing.T, mode string) {
	db := server(t)
	v := newScriptedVendor(t, "survivor", "ends in the outage", "whole in the outage")
	nodes := several(t, 2, settings{store: db.URL, vendor: v.url, credit: "25"}.text())
	c, w := newClient(t, 50), newClientRecord()
	survivor := make(chan answer, 1)
	sources := []request{
		{text: "survivor", max: scripted, stream: true},
		{text: "ends in the outage", max: scripted, stream: true},
		{text: "whole in the outage", max: scripted},
	}
	late := make(chan answer, 2)
	for i, q := range sources {
		go func() {
			a := c.chat(nodes[i%2], q)
			w.add(q, a)
			if i == 0 {
				survivor <- a
				return
			}
			late <- a
		}()
		await(t, v.arrived, "a call reaches the vendor")
	}
	stop := w.load(c, 6, func(worker int) *node { return nodes[worker%2] }, mixed)
	until(t, patience, "a hundred good answers", func() bool { return w.whole() >= 100 })

	must(t, db.Stop(mode))
	onlyUnavailable(t, c, nodes)
	for text := range v.resume { // streams go on while there is no database
		close(v.resume[text])
	}
	await(t, v.arrived, "a stream goes on")
	await(t, v.arrived, "another stream goes on")
	close(v.end["ends in the outage"])
	for range 2 {
		a := await(t, late, "an answer is withheld")
		if a.whole() || !a.withheld() || !strings.Contains(a.body, "ServiceUnavailable") || strings.Contains(a.body, "[DONE]") {
			t.Errorf("an answer whose charge is not durable: %s", a)
		}
	}
	onlyUnavailable(t, c, nodes)
	must(t, db.Start())
	for i, n := range nodes {
		took := until(t, patience, "service returns", func() bool {
			q := request{text: "after all", max: 1}
			a := c.chat(n, q)
			w.add(q, a)
			return a.whole()
		})
		t.Logf("%s: node %d served again %s after the database was back", mode, i, took)
		until(t, patience, "readyz agrees", func() bool { return c.get(n, "/readyz", "").status == http.StatusOK })
	}
	close(v.end["survivor"])
	if a := await(t, survivor, "the stream that outlived the outage"); !a.whole() {
		t.Errorf("the stream that outlived the outage: %s", a)
	}
	stop()
	settled(t, w, nodes, openDatabase(t, db.URL))
}

// nodeLease is how long a node's holds are safe from the others after its last
// sign of life.
const nodeLease = 10 * time.Second

func TestTheStreamsOfEveryNodeOutliveAnOutageThatIsLongerThanTheirLease(t *testing.T) {
	t.Parallel()
	db := server(t)
	texts := []string{"one", "two"}
	v := newScriptedVendor(t, texts...)
	nodes := several(t, len(texts), settings{store: db.URL, vendor: v.url, credit: "25"}.text())
	c, w := newClient(t, 50), newClientRecord()
	answers := make(chan answer, len(texts))
	for i, text := range texts {
		go func() {
			q := request{text: text, max: scripted, stream: true}
			a := c.chat(nodes[i], q)
			w.add(q, a)
			answers <- a
		}()
		await(t, v.arrived, "a stream begins")
	}
	must(t, db.Stop("fast"))
	<-time.After(nodeLease + 2*time.Second) // what has to pass is the lease
	must(t, db.Start())
	for _, n := range nodes {
		until(t, patience, "service returns", func() bool {
			q := request{text: "after all", max: 1}
			a := c.chat(n, q)
			w.add(q, a)
			return a.whole()
		})
	}
	for _, text := range texts {
		close(v.resume[text])
		close(v.end[text])
	}
	for range texts {
		if a := await(t, answers, "a stream ends"); !a.whole() {
			t.Errorf("a stream that outlived the outage: %s", a)
		}
	}
	settled(t, w, nodes, openDatabase(t, db.URL))
}

// settled ends a test with the comparison of record and database.
func settled(t testing.TB, w *clientRecord, nodes []*node, b database) {
	t.Helper()
	w.checkAgainst(t, b)
	for _, n := range nodes {
		n.sound()
	}
}

// onlyUnavailable demands that a second long every call gets a 503.
func onlyUnavailable(t testing.TB, c *client, nodes []*node) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < time.Second {
		for _, n := range nodes {
			c.chat(n, request{text: "is anybody there", max: 1}).unavailable(t, "a chat")
			c.chat(n, request{text: "is anybody there", max: 1, key: "sk-nobody-0123456789abcdef"}).unavailable(t, "a chat with a key that nobody has")
			c.chat(n, request{text: "is anybody there", max: 1, header: map[string]string{"Idempotency-Key": "k"}}).unavailable(t, "a chat with an idempotency key")
			for _, path := range []string{"/v1/balance", "/v1/usage", "/v1/receipts/req_x"} {
				c.get(n, path, acmeKey).unavailable(t, path)
			}
			if a := c.get(n, "/readyz", ""); a.status != http.StatusServiceUnavailable {
				t.Errorf("readyz: %s", a)
			}
		}
		<-tick.C
	}
}

func TestAConnectionThatBreaksAroundACommitNeitherLosesNorDoublesACharge(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	breaks, armed := map[commitFault]int{}, false
	proxy := commitProxy{atCommit: func() commitFault {
		mu.Lock()
		defer mu.Unlock()
		how := pass
		if armed && random.IntN(10) == 0 {
			how = before + commitFault(random.IntN(3))
		}
		breaks[how]++
		return how
	}}
	behind := proxy.address(t, store)
	nodes := several(t, 2, settings{store: behind, vendor: v.url, credit: "25"}.text())
	mu.Lock()
	armed = true // a start that breaks may fail
	mu.Unlock()
	c, w := newClient(t, 50), newClientRecord()
	stop := w.load(c, 12, func(worker int) *node { return nodes[worker%2] }, mixed)
	until(t, 3*patience, "enough commits were broken", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return breaks[before] >= 20 && breaks[racing] >= 20 && breaks[after] >= 20
	})
	stop()
	mu.Lock()
	t.Logf("seed %d: %v", seed, breaks)
	mu.Unlock()
	w.checkAgainst(t, openDatabase(t, store))
	beside := newInstallation(t, settings{store: store, vendor: v.url, credit: "25"}.text()).start(t)
	beside.sound()
}
