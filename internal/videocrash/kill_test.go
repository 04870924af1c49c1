//go:build unix

// Package videocrash kills processes that make videos, and has eight nodes
// work on the same ones, to prove that no crash and no race makes a job
// twice, loses a task, charges wrongly or tells of an end under two ids.
//
// It is tests only:
//
//	go test ./internal/videocrash                             # 10 kills; 60 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./internal/videocrash -run Kill -kills 1000 -timeout 1h
//	go test ./internal/videocrash -run Kill -seed 7 -artifacts # the rounds of a failure; keeps the databases
//	go test ./internal/videocrash -run xxx -bench . -benchtime 1x
package videocrash

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/video"
)

var (
	kills = flag.Int("kills", 60, "kill processes so many times; at most 10 unless long tests are enabled")
	seed  = flag.Uint64("seed", 0, "of all that is random; 0 is another one each time")
)

// lifetime is how many processes of a database are killed while they work.
const lifetime = 60

func TestNoKillMakesAJobTwiceLosesATaskOrChargesWrongly(t *testing.T) {
	f := newStats()
	s := *seed
	for s == 0 {
		s = rand.Uint64()
	}
	left := longtest.Count(*kills, 10)
	all := points()
	at := rand.New(rand.NewPCG(s, 0)).Perm(len(all))
	rounds, pointed := 0, 0
	for number := uint64(1); left > 0; number++ {
		b := newHarness(t, f, s, number)
		for range min(left, lifetime) {
			point := ""
			if rounds++; rounds%4 > 0 { // the others at random moments
				point = all[at[pointed%len(at)]]
				pointed++
			}
			b.round(point)
		}
		left -= lifetime
		b.finish()
		for i, p := range b.check("") {
			if i < 5 {
				t.Errorf("database %d: %s", number, p)
			}
		}
		if n := len(b.book.problems); n > 0 {
			t.Fatalf("database %d: %d problems; run it again with -seed %d -artifacts", number, n, s)
		}
	}
	t.Logf("seed %d: %s", s, f)
	if missed := f.missed(all); longtest.Count(*kills, 10) >= 10*len(all) && len(missed) > 0 {
		t.Errorf("no process was killed at %q", missed)
	}
}

const (
	account = "local" // whose everything is that has no key
	opening = 1_000_000 * billing.One

	fast = 300 // virtual seconds in one while processes are killed
	slow = 30  // while they come to an end
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// harness kills the processes of one database.
type harness struct {
	t        *testing.T
	figures  *stats
	dice     *rand.Rand
	path     string
	clock    clock
	book     *journal
	vendor   *vendor
	receiver *receiver
	server   *httptest.Server // of the vendor and the receiver
	hook     string           // the address before the number of a submission

	mu   sync.Mutex
	trap trap
	news chan event // what was looked at
}

// trap is a point at which the test kills a process.
type trap struct {
	point string
	left  int64
	p     *process
}

// newHarness makes a database, a vendor and a receiver.
func newHarness(t *testing.T, f *stats, seed, number uint64) *harness {
	t.Helper()
	b := &harness{
		t: t, figures: f, dice: rand.New(rand.NewPCG(seed, number)), path: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d.db", number)),
		clock: newClock(noon, fast), news: make(chan event, 1),
	}
	b.book = newJournal(rand.New(rand.NewPCG(seed, ^number)))
	b.vendor = newVendor(b.book, b.pass)
	b.receiver = &receiver{book: b.book, pass: b.pass, secret: b.found(), got: map[int][]delivery{}}
	mux := http.NewServeMux()
	mux.Handle("/vendor/", http.StripPrefix("/vendor", b.vendor.handler()))
	mux.Handle("POST /hook/{n}", b.receiver)
	b.server = httptest.NewServer(mux)
	t.Cleanup(b.server.Close)
	b.hook = b.server.URL + "/hook/"
	return b
}

// found makes the account and its secret.
func (b *harness) found() *webhooks.Webhook {
	b.t.Helper()
	db := b.open()
	defer func() { _ = db.Close() }() // the secret was read
	if err := db.Ledger().CreateAccount(b.t.Context(), account, opening); err != nil {
		b.t.Fatal(err)
	}
	secret, err := db.Ledger().WebhookSecret(b.t.Context(), account, false)
	if err != nil {
		b.t.Fatal(err)
	}
	w, err := webhooks.NewWebhook(secret.Reveal())
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *harness) open() *store.DB {
	b.t.Helper()
	db, err := sqlite.Open(b.t.Context(), b.path, store.Options{Now: b.clock.Now})
	if err != nil {
		b.t.Fatalf("the database cannot be opened: %v", err)
	}
	return db
}

// pass is told when a point is reached that is not in the child.
func (b *harness) pass(point string) {
	b.mu.Lock()
	t := &b.trap
	caught := t.point == point
	if caught {
		t.left--
		caught = t.left == 0
	}
	p := t.p
	b.mu.Unlock()
	if caught {
		b.figures.reached(point)
		p.kill()
		<-p.gone // so that it certainly gets no answer
	}
}

// start starts a child that is killed at a point, or empty for none.
func (b *harness) start(point string, hear func(*process, event)) *process {
	b.t.Helper()
	t := task{
		Path: b.path, Vendor: b.server.URL + "/vendor", Clock: b.clock, Point: point, Nth: 1 + b.dice.Int64N(3),
		Delay: time.Duration(b.dice.Int64N(int64([]time.Duration{100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}[b.dice.IntN(3)]))),
	}
	b.mu.Lock() // who passes by a trap waits until it is known whose it is
	defer b.mu.Unlock()
	p, err := start(t, func(p *process, e event) {
		switch e.Kind {
		case answered:
			b.book.record(e)
		case broken:
			b.book.problem("%s %s", e.Task, e.Error)
		case killed:
			b.figures.reached(point)
		}
		hear(p, e)
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.trap = trap{point, t.Nth, p}
	return p
}

// ended waits until a child is gone.
func (b *harness) ended(p *process) {
	b.t.Helper()
	<-p.gone
	if p.err != nil {
		b.book.problem("%v", p.err)
	}
	b.figures.add("kills", 1)
}

// round has a child work, and kills it: at a point, or with an empty one at a
// random moment. One that does not come by its point is killed all the same.
func (b *harness) round(point string) {
	b.t.Helper()
	p := b.start(point, func(p *process, e event) {
		switch e.Kind {
		case opened:
			for range 6 {
				p.send(b.book.next(b.hook))
			}
			p.send(command{})
		case answered:
			if e.N%2 == 0 {
				p.send(b.book.next(b.hook))
			}
		case looked:
			p.send(command{})
		}
	})
	limit := time.Second
	if point == "" {
		limit = time.Duration(b.dice.Int64N(int64(600 * time.Millisecond)))
	}
	timer := time.AfterFunc(limit, p.kill)
	defer timer.Stop()
	b.ended(p)
}

// rest has a child that gets no more submissions work until nothing is left to
// do at this time, or for a while.
func (b *harness) rest(done func(event) bool) (quiet bool) {
	b.t.Helper()
	p := b.start("", func(p *process, e event) {
		switch e.Kind {
		case opened:
			p.send(command{})
		case looked:
			if quiet = done(e); quiet {
				p.kill()
			}
			p.send(command{})
		}
	})
	timer := time.AfterFunc(time.Minute, p.kill)
	defer timer.Stop()
	b.ended(p)
	return quiet
}

// finish lets the time pass until every task and every notice must have ended.
func (b *harness) finish() {
	b.t.Helper()
	b.deliver("made by the vendor", func(e event) bool { return !slices.ContainsFunc(e.Open, b.ending) })
	end := b.lastEnd()
	if b.dice.IntN(2) == 0 {
		end = end.Add(3 * time.Hour) // when holds have ended by themselves
	}
	b.clock = newClock(end, slow)
	if !b.rest(func(e event) bool { return len(e.Open) == 0 }) {
		b.book.problem("there are open tasks after all have expired")
	}
	b.deliver("expired", func(e event) bool { return len(e.Open) == 0 })
	b.server.Close() // which waits for whoever is asked or told
}

// deliver lets a day pass, so that notices are tried as often as they may be
// refused.
func (b *harness) deliver(what string, done func(event) bool) {
	b.t.Helper()
	for range mostRefused + 1 {
		b.clock = newClock(b.clock.Now().Add(5*time.Hour), slow)
		if !b.rest(func(e event) bool { return done(e) && e.Waiting == 0 }) {
			b.book.problem("there are open tasks that were %s, or notices that are due", what)
		}
	}
}

// ending reports whether the vendor ends a job by itself.
func (b *harness) ending(upstream string) bool {
	if upstream == "" {
		return false // of a task whose job nobody knows
	}
	var n int
	if _, err := fmt.Sscanf(upstream, "up-%d", &n); err != nil {
		return true
	}
	return b.book.find(n).kind.ends != video.Expired
}

// lastEnd is when the last open task must have ended.
func (b *harness) lastEnd() time.Time {
	b.t.Helper()
	raw := b.raw()
	defer func() { _ = raw.Close() }()
	var nanos int64
	if err := raw.QueryRow("SELECT COALESCE(MAX(expires_at), 0) FROM task WHERE NOT ended").Scan(&nanos); err != nil {
		b.t.Fatal(err)
	}
	end := time.Unix(0, nanos).Add(videoapi.Grace)
	if end.Before(b.clock.Now()) {
		return b.clock.Now()
	}
	return end
}

func (b *harness) raw() *sql.DB {
	b.t.Helper()
	raw, err := sql.Open("sqlite", "file:"+b.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

// check audits the database. Before it does, it changes it by a statement, to be
// found out.
func (b *harness) check(meddling string) []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	raw, db := b.raw(), b.open()
	defer func() { _, _ = raw.Close(), db.Close() }() // what was audited is durable
	if _, err := raw.ExecContext(ctx, meddling); err != nil {
		b.t.Fatal(err)
	}
	before := len(b.book.problems)
	a := &audit{journal: b.book, vendor: b.vendor, receiver: b.receiver, ctx: ctx, db: db, raw: raw}
	if err := a.run(); err != nil {
		b.t.Fatal(err)
	}
	if meddling != "" {
		return b.book.problems[before:]
	}
	b.figures.count(a)
	return b.book.problems
}

// delivery is a notice as it came.
type delivery struct {
	id, body string
	good     bool // it was answered so
}

// receiver is whom the notices are sent to. It refuses about half of the
// deliveries, but of a notice's not more than the first few.
type receiver struct {
	book   *journal
	pass   func(point string)
	secret *webhooks.Webhook

	mu  sync.Mutex
	got map[int][]delivery // by submission
}

// mostRefused is how many deliveries of a notice are refused at the most.
const mostRefused = 4

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	n, err := strconv.Atoi(q.PathValue("n"))
	body, bad := io.ReadAll(q.Body)
	if err != nil || bad != nil {
		return // and the delivery has not come
	}
	if err := r.secret.VerifyIgnoringTimestamp(body, q.Header); err != nil {
		r.book.problem("the signature of a notice of %d: %v", n, err)
	}
	r.pass(noticeCame)
	r.mu.Lock()
	defer r.mu.Unlock()
	try := len(r.got[n])
	good := try >= mostRefused || (n>>try)&1 == 0
	r.got[n] = append(r.got[n], delivery{q.Header.Get(webhooks.HeaderWebhookID), string(body), good})
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
