//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// videoLifetime is how many processes of a database are killed while they work.
const videoLifetime = 60

func TestNoKillMakesAJobTwiceLosesATaskOrChargesWrongly(t *testing.T) {
	t.Parallel()
	f, s := newFigures(), chosenSeed()
	kills := longtest.Count(*rounds, 10)
	all := videoPoints()
	at := rand.New(rand.NewPCG(s, 0)).Perm(len(all))
	round, pointed := 0, 0
	for number, left := uint64(1), kills; left > 0; number, left = number+1, left-videoLifetime {
		b := newVideoRun(t, f, s, number)
		for range min(left, videoLifetime) {
			point := ""
			if round++; round%4 > 0 { // the others at random moments
				point = all[at[pointed%len(at)]]
				pointed++
			}
			b.round(point)
		}
		b.finish()
		b.audit()
		if b.record.report(t, fmt.Sprintf("database %d", number)) > 0 {
			t.Fatalf("run it again with -seed %d -artifacts", s)
		}
	}
	t.Logf("seed %d: %s", s, f)
	missed := slices.DeleteFunc(slices.Clone(all), func(p string) bool { return f.of(p) > 0 })
	if kills >= 10*len(all) && len(missed) > 0 {
		t.Errorf("no process was killed at %q", missed)
	}
}

const (
	videoAccount = "local" // whose everything is that has no key
	videoCredit  = 1_000_000 * billing.One

	fast = 300 // virtual seconds in one while processes are killed
	slow = 30  // while they come to an end
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// videoRun kills processes that make videos, on one database.
type videoRun struct {
	t        *testing.T
	figures  *figures
	random   *rand.Rand
	place    place
	clock    clock
	record   *videoRecord
	vendor   *vendor
	receiver *receiver
	server   *httptest.Server // of the vendor and the receiver
	hook     string           // the address before the number of a submission

	mu   sync.Mutex
	trap trap
}

// trap is a point of the vendor or the receiver at which the test kills a process.
type trap struct {
	point string
	left  int64
	p     *process
}

// newVideoRun makes a database, a vendor and a receiver.
func newVideoRun(t *testing.T, f *figures, seed, number uint64) *videoRun {
	t.Helper()
	b := &videoRun{
		t: t, figures: f, random: rand.New(rand.NewPCG(seed, number)), place: place{Where: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d.db", number))},
		clock: newClock(noon, fast),
	}
	b.record = &videoRecord{random: rand.New(rand.NewPCG(seed, ^number))}
	b.vendor = newVendor(b.record, b.pass)
	b.receiver = &receiver{record: b.record, pass: b.pass, secret: b.createAccount(), got: map[int][]delivery{}}
	mux := http.NewServeMux()
	mux.Handle("/vendor/", http.StripPrefix("/vendor", b.vendor.handler()))
	mux.Handle("POST /hook/{n}", b.receiver)
	b.server = httptest.NewServer(mux)
	t.Cleanup(b.server.Close)
	b.hook = b.server.URL + "/hook/"
	return b
}

// createAccount makes the account and returns its secret.
func (b *videoRun) createAccount() *webhooks.Webhook {
	b.t.Helper()
	db := b.open()
	defer func() { _ = db.Close() }() // the secret was read
	must(b.t, db.Ledger().CreateAccount(b.t.Context(), videoAccount, videoCredit))
	secret, err := db.Ledger().WebhookSecret(b.t.Context(), videoAccount, false)
	must(b.t, err)
	w, err := webhooks.NewWebhook(secret.Reveal())
	must(b.t, err)
	return w
}

func (b *videoRun) open() *store.DB {
	b.t.Helper()
	db, err := b.place.open(b.t.Context(), store.Options{Now: b.clock.Now})
	if err != nil {
		b.t.Fatalf("the database cannot be opened: %v", err)
	}
	return db
}

// pass is called when a point is reached that is not in the child.
func (b *videoRun) pass(point string) {
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
		b.reached(point)
		p.kill()
		<-p.gone // so that it certainly gets no answer
	}
}

// reached counts a kill at a point.
func (b *videoRun) reached(point string) {
	b.figures.add(point, 1)
	b.figures.add("at a point", 1)
}

// start starts a child that is killed at a point, or empty for none.
func (b *videoRun) start(point string, hear func(*process, event)) *process {
	b.t.Helper()
	t := task{
		place: b.place, Vendor: b.server.URL + "/vendor", Clock: b.clock, Point: point, Nth: 1 + b.random.Int64N(3),
		Delay: time.Duration(b.random.Int64N(int64([]time.Duration{100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}[b.random.IntN(3)]))),
	}
	b.mu.Lock() // who passes by a trap waits until it is known whose it is
	defer b.mu.Unlock()
	p, err := start(t, never, func(p *process, e event) {
		switch e.Kind {
		case submitted:
			b.record.answer(e)
		case broken:
			b.record.problem(unexpected, "%s %s", e.Task, e.Error)
		case killed:
			b.reached(point)
		}
		hear(p, e)
	})
	must(b.t, err)
	b.trap = trap{point, t.Nth, p}
	return p
}

// killAfter kills a child that has not ended by then, and waits until it is gone.
func (b *videoRun) killAfter(p *process, limit time.Duration) {
	b.t.Helper()
	timer := time.AfterFunc(limit, p.kill)
	defer timer.Stop()
	<-p.gone
	if p.err != nil {
		b.record.problem(unexpected, "%v", p.err)
	}
	b.figures.add("kills", 1)
}

// round has a child work, and kills it: at a point, or with an empty one at a
// random moment. One that does not come by its point is killed all the same.
func (b *videoRun) round(point string) {
	b.t.Helper()
	p := b.start(point, func(p *process, e event) {
		switch e.Kind {
		case opened:
			for range 6 {
				p.send(b.record.next(b.hook))
			}
			p.send(order{})
		case submitted:
			if e.N%2 == 0 {
				p.send(b.record.next(b.hook))
			}
		case looked:
			p.send(order{})
		}
	})
	limit := time.Second
	if point == "" {
		limit = time.Duration(b.random.Int64N(int64(600 * time.Millisecond)))
	}
	b.killAfter(p, limit)
}

// rest has a child that gets no more submissions work until nothing is left to
// do at this time, or for a while.
func (b *videoRun) rest(done func(event) bool) (quiet bool) {
	b.t.Helper()
	p := b.start("", func(p *process, e event) {
		if e.Kind == looked {
			if quiet = done(e); quiet {
				p.kill()
			}
		}
		if e.Kind == opened || e.Kind == looked {
			p.send(order{})
		}
	})
	b.killAfter(p, time.Minute)
	return quiet
}

// finish lets the time pass until every task and every delivery must have ended.
func (b *videoRun) finish() {
	b.t.Helper()
	b.deliver("made by the vendor", func(e event) bool { return !slices.ContainsFunc(e.Open, b.ending) })
	end := b.lastEnd()
	if b.random.IntN(2) == 0 {
		end = end.Add(3 * time.Hour) // when holds have ended by themselves
	}
	b.clock = newClock(end, slow)
	if !b.rest(func(e event) bool { return len(e.Open) == 0 }) {
		b.record.problem(leftOpen, "tasks after all have expired")
	}
	b.deliver("expired", func(e event) bool { return len(e.Open) == 0 })
	b.server.Close() // which waits for calls under way
}

// deliver lets a day pass, so that deliveries are tried as often as they may be
// refused.
func (b *videoRun) deliver(what string, done func(event) bool) {
	b.t.Helper()
	for range mostRefused + 1 {
		b.clock = newClock(b.clock.Now().Add(5*time.Hour), slow)
		if !b.rest(func(e event) bool { return done(e) && e.Waiting == 0 }) {
			b.record.problem(leftOpen, "tasks that were %s, or deliveries that are due", what)
		}
	}
}

// ending reports whether the vendor ends a job by itself.
func (b *videoRun) ending(upstream string) bool {
	if upstream == "" {
		return false // of a task whose job nobody knows
	}
	var n int
	if _, err := fmt.Sscanf(upstream, "up-%d", &n); err != nil {
		return true
	}
	return b.record.find(n).kind.ends != video.Expired
}

// lastEnd is when the last open task must have ended.
func (b *videoRun) lastEnd() time.Time {
	b.t.Helper()
	raw, err := b.place.raw()
	must(b.t, err)
	defer func() { _ = raw.Close() }()
	var nanos int64
	must(b.t, raw.QueryRow("SELECT COALESCE(MAX(expires_at), 0) FROM task WHERE NOT ended").Scan(&nanos))
	end := time.Unix(0, nanos).Add(videoop.Grace)
	if end.Before(b.clock.Now()) {
		return b.clock.Now()
	}
	return end
}

// audit compares the database with what the client, the vendor and the receiver know.
func (b *videoRun) audit() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	raw, err := b.place.raw()
	must(b.t, err)
	db := b.open()
	defer func() { _, _ = raw.Close(), db.Close() }() // what was audited is durable
	a := &videoAudit{videoRecord: b.record, database: database{ctx, db, raw}, vendor: b.vendor, receiver: b.receiver, figures: b.figures}
	must(b.t, a.run())
}
