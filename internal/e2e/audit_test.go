package e2e

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver that reads the files

	"github.com/tollhouse-ai/gateway/billing"
)

// clientRecord is the independent account: what clients asked for, and what they
// saw.
type clientRecord struct {
	mu   sync.Mutex
	seen map[string]seenAnswer // by request id
	lost int                   // answers without an id: the connection broke first
}

// seenAnswer is one answer and what it has to cost.
type seenAnswer struct {
	answer
	charge int64
}

func newClientRecord() *clientRecord { return &clientRecord{seen: map[string]seenAnswer{}} }

// add keeps an answer to a request of the model m.
func (w *clientRecord) add(q request, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.id() == "" {
		w.lost++
		return
	}
	w.seen[a.id()] = seenAnswer{a, q.max * price}
}

// whole is how many clients got all of their answer.
func (w *clientRecord) whole() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.whole() {
			n++
		}
	}
	return n
}

// checkAgainst compares the record with the database, in which no hold may be open. A
// broken answer is one whose gateway was killed: nobody knows what became of it.
func (w *clientRecord) checkAgainst(t testing.TB, b database) {
	t.Helper()
	until(t, 40*time.Second, "every hold ends", func() bool { return b.openHolds() == 0 })
	captured := b.captured()
	whole, withheld, broken := 0, 0, 0
	for id, s := range w.seen {
		r, charged := captured[id]
		delete(captured, id)
		switch {
		case s.whole():
			whole++
			if !charged || r.charge != s.charge || r.overrun != 0 {
				t.Errorf("%s was answered, which costs %d: %+v", id, s.charge, r)
			}
		case s.withheld():
			withheld++
			if charged && r.charge != s.charge { // captured, and only the word of it was lost
				t.Errorf("%s was withheld, and was charged %d of %d", id, r.charge, s.charge)
			}
		case s.err != nil:
			broken++
			if charged && r.charge > s.charge {
				t.Errorf("%s broke off, and was charged %d of %d", id, r.charge, s.charge)
			}
		case charged:
			t.Errorf("%s was charged %d for: %s", id, r.charge, s.answer)
		}
	}
	if len(captured) > w.lost {
		t.Errorf("%d captures are of nobody's requests, of which %d lost their connection: %v", len(captured), w.lost, captured)
	}
	t.Logf("%d whole, %d withheld, %d broken off, %d refused; %d lost their connection, of which %d were charged",
		whole, withheld, broken, len(w.seen)-whole-withheld-broken, w.lost, len(captured))
}

// load has workers ask until stop is called, which waits for them. node says
// whom to ask.
func (w *clientRecord) load(c *client, workers int, node func(worker int) *node, ask func(worker, i int) request) (stop func()) {
	over := make(chan struct{})
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			pause := time.NewTicker(5 * time.Millisecond)
			defer pause.Stop()
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				q := ask(worker, i)
				a := c.chat(node(worker), q)
				w.add(q, a)
				if !a.whole() {
					<-pause.C
				}
			}
		})
	}
	return func() { close(over); running.Wait() }
}

// mixed is a load of whole answers and streams, of chats and of responses.
func mixed(worker, i int) request {
	return request{text: "hello", max: int64(1 + (worker+i)%7), stream: (worker+i)%3 == 0, wire: []string{"", responses}[(worker+i)%2]}
}

// database are the database, read past the program.
type database struct {
	t  testing.TB
	db *sql.DB
}

func openDatabase(t testing.TB, store string) database {
	t.Helper()
	driver, source := "pgx", store
	if path, ok := isFile(store); ok {
		driver, source = "sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, source)
	must(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return database{t, db}
}

// receipt is a row of the table receipt.
type receipt struct {
	status, reason                   string
	charge, overrun, created, output int64
}

// receipts are all of them, by id.
func (b database) receipts() map[string]receipt {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "SELECT id, status, reason, charge, COALESCE(overrun, 0), created_at, COALESCE(output, 0) FROM receipt")
	must(b.t, err)
	defer func() { _ = rows.Close() }()
	all := map[string]receipt{}
	for rows.Next() {
		var id string
		var r receipt
		must(b.t, rows.Scan(&id, &r.status, &r.reason, &r.charge, &r.overrun, &r.created, &r.output))
		all[id] = r
	}
	must(b.t, rows.Err())
	return all
}

// number is the one number that a query gives.
func (b database) number(query string) (n int64) {
	b.t.Helper()
	if err := b.db.QueryRowContext(b.t.Context(), query).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// openHolds is how many holds are openHolds.
func (b database) openHolds() int64 {
	b.t.Helper()
	return b.number("SELECT COUNT(*) FROM hold")
}

// captured are the receipts that were charged.
func (b database) captured() map[string]receipt {
	b.t.Helper()
	all := b.receipts()
	for id, r := range all {
		if r.status != billing.Captured {
			delete(all, id)
		}
	}
	return all
}
