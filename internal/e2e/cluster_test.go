package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestNodesThatStartAtOnceOnAnEmptyDatabaseAllServe(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	nodes := several(t, 8, settings{store: store, vendor: v.url, credit: "25"}.text())
	c := newClient(t, 1)
	for i, n := range nodes {
		if a := c.get(n, "/readyz", ""); a.status != http.StatusOK {
			t.Errorf("node %d: %s", i, a)
		}
		if b := c.balance(t, n, acmeKey); b.Posted != "25.00" {
			t.Errorf("node %d: the opening credit is %+v", i, b)
		}
	}
	nodes[0].sound()
}

// keyChangeDelay is within which a change to a key takes effect in a running server.
const keyChangeDelay = 2 * time.Second

func TestAChangeToAKeyTakesEffectInEveryProcessWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	config := settings{store: store, vendor: v.url, credit: "25"}.text()
	nodes := several(t, 2, config)
	beside := newInstallation(t, config) // a command here finds no server and works on the store
	c := newClient(t, 10)
	for _, way := range []struct {
		name string
		do   func(args ...string) output
	}{{"another process", nodes[0].command}, {"the command on the store", func(args ...string) output { return beside.command(t, args...) }}} {
		// A command is repeated where a disk that stalls keeps the database from
		// answering, as clients repeat their requests.
		do := func(args ...string) (r output) {
			for tries := 0; tries < 10; tries++ {
				if r = way.do(args...); r.ok || !strings.Contains(r.stderr, "database is away") {
					break
				}
				c.pause()
			}
			return r
		}
		var made struct{ ID, Key string }
		if r := do("key", "create", "--account", "acme", "--json"); json.Unmarshal([]byte(r.stdout), &made) != nil {
			t.Fatalf("key create: %s", r.stderr)
		}
		for _, change := range []struct {
			verb string
			want int
		}{{"", http.StatusOK}, {"disable", http.StatusForbidden}, {"enable", http.StatusOK}, {"delete", http.StatusUnauthorized}} {
			if change.verb != "" {
				if r := do("key", change.verb, made.ID); !r.ok {
					t.Fatalf("key %s: %s", change.verb, r.stderr)
				}
			}
			took := c.awaitStatus(t, nodes[1], made.Key, change.want)
			t.Logf("by %s, %q took effect after %s", way.name, change.verb, took)
			if took > keyChangeDelay {
				t.Errorf("by %s, %q was not noticed by a call that began %s later", way.name, change.verb, took)
			}
		}
	}
}

// awaitStatus is how long from now the last call began that got another status than
// the wanted one.
func (c *client) awaitStatus(t testing.TB, n *node, key string, want int) (took time.Duration) {
	t.Helper()
	began := time.Now()
	until(t, patience, "the change", func() bool {
		start := time.Since(began)
		if c.chat(n, request{text: "hello", max: 1, key: key}).status == want {
			return true
		}
		took = start.Round(time.Millisecond)
		return false
	})
	return took
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
	if err := db.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	<-time.After(nodeLease + 2*time.Second) // what has to pass is the lease
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
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

// clocked gives a schema a clock of its own that runs as the real one does. It
// returns the address at which the program uses that clock, and what sets it back
// so that a minute of the database ends soon, and tells when that will be.
func clocked(t testing.TB, store string) (address string, set func(soon time.Duration) (ends time.Time)) {
	t.Helper()
	db, err := sql.Open("pgx", store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	shifted := func(micros int64) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`CREATE OR REPLACE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
			$$SELECT pg_catalog.clock_timestamp() + interval '%d microseconds'$$`, micros)); err != nil {
			t.Fatal(err)
		}
	}
	shifted(0)
	var schema string
	if err := db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	return with(t, store, "search_path", schema+",pg_catalog"), func(soon time.Duration) time.Time {
		t.Helper()
		var into int64 // microseconds of the minute
		if err := db.QueryRowContext(t.Context(), "SELECT CAST(EXTRACT(EPOCH FROM pg_catalog.clock_timestamp()) * 1000000 AS BIGINT) % 60000000").Scan(&into); err != nil {
			t.Fatal(err)
		}
		ends := time.Now().Add(soon)
		shift := time.Minute.Microseconds() - soon.Microseconds() - into
		if shift > 0 { // a lease must not seem to be over
			shift -= time.Minute.Microseconds()
		}
		shifted(shift)
		return ends
	}
}

func TestThreeNodesNeverAdmitA101stInAMinuteOfTheDatabasesClock(t *testing.T) {
	t.Parallel()
	const limit = 100
	store, set := clocked(t, postgres(t))
	v := newVendor(t)
	nodes := several(t, 3, settings{store: store, vendor: v.url, credit: "25", limits: "rpm: 100"}.text())
	c := newClient(t, 8)
	var good, refused, stalled atomic.Int64
	ends := set(20 * time.Second)
	over := func() bool { // two seconds into the next minute, or later on a slow machine
		into := time.Since(ends)
		return into > 50*time.Second || into > 2*time.Second && good.Load() >= 2*limit
	}
	each(24, 24, func(worker int) {
		for !over() {
			switch a := c.chat(nodes[worker%3], request{text: "hello", max: 1}); {
			case a.status == http.StatusOK:
				good.Add(1)
			case a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "":
				refused.Add(1)
			case isUnavailable(a.status, a.header):
				stalled.Add(1) // a disk that stalled; what the limit had granted is not given back
			default:
				t.Error(a)
				return
			}
		}
	})
	minutes := map[int64]int{}
	for _, r := range openDatabase(t, store).captured() {
		minutes[r.created/int64(time.Minute)]++
	}
	lost := int(stalled.Load())
	t.Logf("%d admitted, %d refused, %d while the database was away; by minute: %v", good.Load(), refused.Load(), lost, minutes)
	all, asked := int(good.Load()), int(v.calls.Load())
	if len(minutes) != 2 || all < 2*limit-lost || asked < all || asked > min(all+lost, 2*limit) {
		t.Errorf("%d were admitted and the vendor was asked %d times, in %d minutes", all, asked, len(minutes))
	}
	for minute, admitted := range minutes {
		if admitted > limit || admitted < limit-lost {
			t.Errorf("%d were admitted in minute %d", admitted, minute)
		}
	}
	nodes[0].sound()
}

// gate is a vendor that keeps calls open whose text begins with "hold".
type gate struct {
	*vendor
	arrived chan string
	opened  chan struct{}
}

func newGate(t testing.TB) *gate {
	g := &gate{newVendor(t), make(chan string, 1000), make(chan struct{})}
	g.answer = func(_ http.ResponseWriter, r *http.Request, c vendorCall) bool {
		if strings.HasPrefix(c.text(), "hold") {
			g.arrived <- c.text()
			select {
			case <-g.opened:
			case <-r.Context().Done():
			}
		}
		return false
	}
	return g
}

func TestNodesShareTheSlotsOfAKey(t *testing.T) {
	t.Parallel()
	const limit = 5
	v := newGate(t)
	nodes := several(t, 3, settings{store: postgres(t), vendor: v.url, credit: "25", limits: "max_concurrent: 5"}.text())
	c := newClient(t, 100)
	answers := make(chan answer)
	for i := range 30 {
		go func() { answers <- c.steady(nodes[i%3], request{text: fmt.Sprint("hold ", i), max: 1}) }()
	}
	for range 30 - limit {
		if a := await(t, answers, "an answer"); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "max_concurrent") {
			t.Errorf("while %d run: %s", limit, a)
		}
	}
	for range limit {
		await(t, v.arrived, "an admitted call")
	}
	close(v.opened)
	for range limit {
		if a := await(t, answers, "an answer"); !a.whole() {
			t.Error(a)
		}
	}
	if n := v.calls.Load(); n != limit {
		t.Errorf("the vendor was asked %d times", n)
	}
	for i, n := range nodes {
		if a := c.steady(n, request{text: "now there is room", max: 1}); !a.whole() {
			t.Errorf("node %d: %s", i, a)
		}
	}
}

func TestTheSlotsOfADeadNodeComeBackAndTheOthersKeepTheirs(t *testing.T) {
	t.Parallel()
	v := newGate(t)
	nodes := several(t, 3, settings{store: postgres(t), vendor: v.url, credit: "25", limits: "max_concurrent: 5"}.text())
	c := newClient(t, 100)
	answers := make(chan answer, 30)
	hold := func(n *node, count int) {
		for range count {
			go func() {
				a := c.steady(n, request{text: "hold", max: 1})
				for a.status == http.StatusTooManyRequests { // a lease ends a moment after another
					a = c.steady(n, request{text: "hold", max: 1})
				}
				answers <- a
			}()
		}
		for range count {
			await(t, v.arrived, "a call that waits for a slot")
		}
	}
	refused := func() bool {
		return c.steady(nodes[1], request{text: "is there room", max: 1}).status == http.StatusTooManyRequests
	}
	hold(nodes[0], 2)
	hold(nodes[2], 3)
	if !refused() {
		t.Error("a sixth request was admitted")
	}
	nodes[2].kill()
	took := until(t, 40*time.Second, "the slots of the dead node come back", func() bool { return !refused() })
	t.Logf("the slots of the dead node came back after %s", took)
	hold(nodes[1], 3)
	if !refused() {
		t.Error("the slots of a living node were given away")
	}
	close(v.opened)
	for range 8 {
		await(t, answers, "an answer") // three of them broke
	}
	if refused() {
		t.Error("a slot is jammed")
	}
}
