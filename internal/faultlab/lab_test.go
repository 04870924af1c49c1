package faultlab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

// Options say what a lab is to do. The zero value of a field is a default.
type Options struct {
	Seed     uint64
	Requests int // cases; 0 means 2,000
	Clients  int // at a time; 0 means 64
	// Ledger is the ledger; nil means a new one in memory.
	Ledger Ledger
	// Store, when not nil, is the ledger and keeps answers and tasks with the
	// money; it is never away.
	Store Store
	// Wire puts the vendors behind drivers and raw connections.
	Wire bool
	// Calm leaves out what happens to the gateway itself: reloads, restarts and a
	// ledger that is away.
	Calm bool
	// Cases, when not nil, are played instead of random ones.
	Cases func(number int) *Case
}

// Store is a ledger that keeps answers and tasks in the transactions of the money.
type Store interface {
	Ledger
	idempotency.Store
	video.Store
}

// Lab is a gateway with its vendors, its clients and what goes wrong, in the virtual
// time of a testing/synctest bubble.
type Lab struct {
	options Options
	start   time.Time
	source  source
	ledger  *ledgerProbe
	vendor  upstream.Upstream
	log     *requestLog
	answers *memory.Answers
	tasks   *memory.Tasks

	turn             sync.RWMutex // begin holds it to read, a reload or a restart to write
	gateway          *gateway.Gateway
	generation       int
	router           *router.Router
	stop             context.CancelFunc // of the gateway's background work
	running          sync.WaitGroup
	ids, polls       atomic.Int64
	well             atomic.Bool
	vendorsFailUntil atomic.Int64 // until when every vendor fails, by the lab's clock

	mu       sync.Mutex
	runs     map[string]*Run
	all      []*Run
	downs    []time.Duration // when a restart cancelled what ran
	problems []string
	failed   []int // cases
}

// channels are three ways to the vendor, of two priorities.
func channels(v upstream.Upstream) []router.Channel {
	models := map[string]string{}
	for _, t := range traits {
		models[t.model] = t.model
	}
	all := make([]router.Channel, 3)
	for i := range all {
		all[i] = router.Channel{
			Name: fmt.Sprintf("channel-%d", i+1), Upstream: v, Models: models, Priority: i / 2, Weight: i + 1, MaxConcurrent: 12 * (i + 1),
			RPM:     []int{0, 150, 0}[i],
			Timeout: router.Timeouts{Headers: time.Minute, Idle: 20 * time.Second, Total: 10 * time.Minute},
		}
	}
	return all
}

// principal is a payer.
func (l *Lab) principal(n int) *auth.Principal {
	p := &auth.Principal{Account: accountOf(n), Key: fmt.Sprintf("key-%d", n), Name: "a payer of the lab"}
	if n >= rich+poor+frugal {
		p.Limits = auth.Limits{RPM: 40, TPM: 60_000, MaxConcurrent: atOnce, MaxConcurrentVideos: 1}
	}
	return p
}

// atOnce is how many requests a narrow payer may have at a time.
const atOnce = 2

func accountOf(n int) string {
	if n >= rich+poor && n < rich+poor+frugal {
		n = 0 // the frugal key is one of a rich account
	}
	return fmt.Sprintf("account-%d", n)
}

const credit = 1_000_000 * billing.One

// newLab opens the accounts and the first gateway.
func newLab(o Options) (*Lab, error) {
	o.Requests, o.Clients = cmp.Or(o.Requests, 2_000), cmp.Or(o.Clients, 64)
	if o.Cases == nil {
		o.Cases = func(n int) *Case { return randomCase(o.Seed, n) }
	}
	if o.Store != nil {
		o.Ledger = o.Store
	}
	if o.Ledger == nil {
		o.Ledger = memory.NewLedger(memory.LedgerOptions{Receipts: 1_000_000})
	}
	l := &Lab{options: o, start: time.Now(), source: newSource(o.Seed, -1), runs: map[string]*Run{}, answers: &memory.Answers{}}
	l.ledger = &ledgerProbe{checkedLedger: newCheckedLedger(o.Ledger), lab: l, away: &outages{}, prices: map[string]*billing.Price{}, settled: map[string]bool{}}
	plain := &vendor{l, &l.polls}
	l.vendor, l.log = plain, newRequestLog()
	if o.Wire {
		l.vendor = &wireVendor{vendor: *plain}
	}
	l.tasks = memory.NewTasks(nil, l.answers)
	ctx := context.Background()
	for n := range payers {
		sum := credit
		if n >= rich && n < rich+poor {
			sum = billing.One / 2_000
		}
		if accountOf(n) != fmt.Sprintf("account-%d", n) {
			continue
		}
		if err := l.ledger.CreateAccount(ctx, accountOf(n), sum); err != nil {
			return nil, err
		}
	}
	return l, errors.Join(l.allow(ctx), l.open())
}

// allow renews the budget of the frugal payer.
func (l *Lab) allow(ctx context.Context) error {
	budget := billing.One / 1_000
	return l.ledger.SetBudget(ctx, accountOf(rich+poor), fmt.Sprintf("key-%d", rich+poor), &budget)
}

// routes are what a reload replaces, of a generation.
func (l *Lab) routes(generation int) (gateway.Options, error) {
	prices, err := newPriceList(prices(generation))
	if err != nil {
		return gateway.Options{}, err
	}
	routing, err := router.New(channels(l.vendor), router.Options{Previous: l.router})
	if err != nil {
		return gateway.Options{}, err
	}
	l.router = routing
	return gateway.Options{
		Upstream: routing, Prices: prices,
		Models: []gateway.Model{
			{ID: "talk-1", Kind: gateway.KindChat, MaxOutput: mostOutput, HoldTokens: heldTokens},
			{ID: "talk-2", Kind: gateway.KindMessages, MaxOutput: mostOutput, HoldTokens: heldTokens},
			{ID: "talk-3", Kind: gateway.KindChat, MaxOutput: mostOutput, HoldTokens: heldTokens},
			{ID: "vector-1", Kind: gateway.KindEmbeddings, Batch: textsAtOnce},
			{ID: "ranker-1", Kind: gateway.KindRerank, Batch: textsAtOnce},
			{ID: "judge-1", Kind: gateway.KindModeration},
			{ID: "voice-1", Kind: gateway.KindSpeech, Batch: partCharacters},
		},
	}, nil
}

// What the lab's models may say, and what is held where the caller sets no bound.
const mostOutput, heldTokens = 4_000, 16

// open starts a gateway over the ledger; the caller holds turn, or is alone.
func (l *Lab) open() error {
	o, err := l.routes(l.generation)
	if err != nil {
		return err
	}
	o.Meter, o.Idempotency, o.Tasks = l.ledger, l.answers, l.tasks
	if db := l.options.Store; db != nil {
		o.Meter, o.Idempotency, o.Tasks = db, db, db
	}
	o.Logger, o.MP3 = slog.New(l.log), noEncoder{}
	o.NewID = func(prefix string) string { return fmt.Sprintf("%s%08d", prefix, l.ids.Add(1)) }
	if l.gateway, err = gateway.New(o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	g := l.gateway
	l.running.Go(func() { _ = g.Run(ctx) })
	return nil
}

// begin begins a request, and notes by which prices. A restart may replace the gateway
// meanwhile: the request goes on with the one that it began with.
func (l *Lab) begin(ctx context.Context, r *Run, script Client) (*gateway.Entry, error) {
	l.turn.RLock()
	defer l.turn.RUnlock()
	var caller gateway.Caller
	if script.Beats {
		caller.Heartbeat = func([]byte) {}
	}
	entry, err := l.gateway.Enter(ctx, caller)
	r.ID, r.generation = entry.ID, l.generation
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r.ID] = r
	l.all = append(l.all, r)
	return entry, err
}

func (l *Lab) find(requestID string) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[requestID]
}

func (l *Lab) now() time.Duration { return time.Since(l.start) }

func (l *Lab) healthy() bool { return l.well.Load() }

func (l *Lab) vendorsFail() bool { return l.now() < time.Duration(l.vendorsFailUntil.Load()) }

// problem notes that something does not hold.
func (l *Lab) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// traffic plays all cases, so many at a time.
func (l *Lab) traffic() {
	var next atomic.Int64
	var clients sync.WaitGroup
	for range l.options.Clients {
		clients.Go(func() {
			for n := int(next.Add(1)) - 1; n < l.options.Requests; n = int(next.Add(1)) - 1 {
				l.play(l.options.Cases(n))
			}
		})
	}
	clients.Wait()
}

// play plays one case: all of its copies.
func (l *Lab) play(c *Case) {
	time.Sleep(c.Pause)
	var copies sync.WaitGroup
	for i := range c.Copies {
		copies.Go(func() {
			time.Sleep(c.Copies[i].After)
			l.request(c, i)
		})
	}
	copies.Wait()
}

// disturb is what happens to the gateway itself until ctx ends. There are reloads with other
// prices, and moments in which the ledger is away or every vendor fails. There are restarts
// over the same ledger, and money is paid in.
func (l *Lab) disturb(ctx context.Context) {
	s := l.source
	for n := 0; wait(ctx, s.span(time.Second, 20*time.Second)+time.Microsecond/4); n++ {
		if err := l.topUp(n); err != nil {
			l.problem("paying in: %v", err)
		}
		if l.options.Calm {
			continue
		}
		switch s.IntN(24) {
		case 0, 1:
			l.ledger.away.begin(l.now()+s.span(100*time.Millisecond, 20*time.Second), pick(s, refuses, refuses, hangs, loses, slow))
		case 2:
			l.restart(ctx, s.span(0, 10*time.Second))
		case 3:
			l.vendorsFailUntil.Store(int64(l.now() + s.span(time.Second, 50*time.Second)))
		default:
			if err := l.reload(); err != nil {
				l.problem("a reload: %v", err)
			}
		}
	}
}

// topUp pays a little into the accounts of the poor.
func (l *Lab) topUp(n int) error {
	ctx := context.Background()
	if n%20 == 0 {
		if err := l.allow(ctx); err != nil {
			return err
		}
	}
	for i := rich; i < rich+poor; i++ {
		if err := l.ledger.Credit(ctx, accountOf(i), billing.One/10_000, fmt.Sprintf("top-up %d", n)); err != nil {
			return err
		}
	}
	return nil
}

// reload puts the next prices in force.
func (l *Lab) reload() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	o, err := l.routes(l.generation + 1)
	if err != nil {
		return err
	}
	if err := l.gateway.Reload(o); err != nil {
		return err
	}
	l.generation++
	return nil
}

// restart ends the gateway, with some patience for what runs, and opens another
// over the same ledger. A ledger that is away comes back before that: what was
// not durable when a gateway ends is lost with it, in memory.
func (l *Lab) restart(ctx context.Context, patience time.Duration) {
	l.turn.RLock()
	old := l.gateway
	l.turn.RUnlock()
	drain, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	context.AfterFunc(drain, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.downs = append(l.downs, l.now())
	})
	_ = old.Shutdown(drain) // its error says that the patience was not enough
	l.awaitCaptures()
	l.stop()
	l.running.Wait()
	l.turn.Lock()
	defer l.turn.Unlock()
	if err := l.open(); err != nil {
		l.problem("a restart: %v", err)
	}
}

// wasDown reports whether running calls were cancelled at a time.
func (l *Lab) wasDown(at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.downs, at)
}

// awaitCaptures waits until the gateway owes no captures.
func (l *Lab) awaitCaptures() {
	const longest = 5 * time.Minute
	for since := l.now(); l.gateway.Unsettled() > 0; time.Sleep(100 * time.Millisecond) {
		if l.now()-since > longest {
			l.problem("after %s with nothing new the gateway still owes %d captures", longest, l.gateway.Unsettled())
			return
		}
	}
}

// noEncoder makes no MP3: a child process has no part in virtual time.
type noEncoder struct{ speech.Encoder }

// Ready says that no MP3 can be made.
func (noEncoder) Ready() error { return errors.New("the lab has no encoder") }

// requestLog counts the log lines of requests. It is a slog.Handler.
type requestLog struct {
	mu       sync.Mutex
	requests map[string]int    // lines by request
	charges  map[string]string // as the lines tell them
	videos   map[string]int    // lines of ended videos by request
}

func newRequestLog() *requestLog {
	return &requestLog{requests: map[string]int{}, charges: map[string]string{}, videos: map[string]int{}}
}

// Enabled is true for whatever is not for debugging.
func (l *requestLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle counts a line.
func (l *requestLog) Handle(_ context.Context, r slog.Record) error {
	id, charge := "", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "request_id":
			id = a.Value.String()
		case "charge":
			charge = a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r.Message {
	case "request":
		l.requests[id]++
		l.charges[id] = charge
	case "video":
		l.videos[id]++
	}
	return nil
}

// WithAttrs is the handler itself: the gateway's lines are counted by their own
// fields.
func (l *requestLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup is the handler itself.
func (l *requestLog) WithGroup(string) slog.Handler { return l }
