package faultlab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
)

// Options say what a lab is to do. The zero value of a field is a default.
type Options struct {
	Seed     uint64
	Requests int // cases; 0 means 2,000
	First    int // the number of the first case
	Clients  int // at a time; 0 means 64
	// Ledger is the ledger; nil means a new one in memory.
	Ledger Books
	// Store, when not nil, is the ledger and keeps answers and tasks with the
	// money; it is never away.
	Store Store
	// Wire puts the vendors behind drivers and raw connections.
	Wire bool
	// Door puts the gateway behind HTTP and its clients on raw connections. Each
	// case must have one copy and its tag in the prompt.
	Door bool
	// Calm leaves out what happens to the gateway itself: reloads, restarts and a
	// ledger that is away.
	Calm bool
	// Cases, when not nil, are played instead of those that are drawn.
	Cases func(number int) *Case
}

// Store is a ledger that keeps answers and tasks in the transactions of the money.
type Store interface {
	Books
	idempotency.Store
	video.Store
}

// Lab is a gateway with its vendors, its clients and its bad days, in the virtual
// time of a testing/synctest bubble.
type Lab struct {
	options Options
	start   time.Time
	source  source
	till    *till
	vendor  upstream.Upstream
	door    *door // nil without one
	tags    map[string]*Run
	log     *lines
	answers *idempotency.Memory
	tasks   *gateway.MemoryTasks

	turn       sync.RWMutex // begin holds it to read, a reload or a restart to write
	gateway    *gateway.Gateway
	generation int
	router     *router.Router
	stop       context.CancelFunc // of the gateway's background work
	running    sync.WaitGroup
	ids, polls atomic.Int64
	well       atomic.Bool
	storms     atomic.Int64 // until when every vendor fails, by the lab's clock

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
	o.Requests, o.Clients = or(o.Requests, 2_000), or(o.Clients, 64)
	if o.Cases == nil {
		o.Cases = func(n int) *Case { return Draw(o.Seed, n) }
	}
	if o.Store != nil {
		o.Ledger = o.Store
	}
	if o.Ledger == nil {
		o.Ledger = billing.NewLedger(billing.LedgerOptions{Receipts: 1_000_000})
	}
	l := &Lab{options: o, start: time.Now(), source: newSource(o.Seed, -1), runs: map[string]*Run{}, answers: &idempotency.Memory{}}
	l.tags = map[string]*Run{}
	if o.Door {
		l.door = newDoor(l)
	}
	l.till = &till{Books: o.Ledger, stage: l, away: &outages{}, prices: map[string]*billing.Price{}, settled: map[string]billing.Usage{}}
	plain := &vendor{l, &l.polls}
	l.vendor, l.log = plain, newLines()
	if o.Wire {
		l.vendor = &wired{vendor: *plain}
	}
	l.tasks = gateway.NewMemoryTasks(nil, l.answers)
	ctx := context.Background()
	for n := range payers {
		sum := credit
		if n >= rich && n < rich+poor {
			sum = billing.One / 2_000
		}
		if accountOf(n) != fmt.Sprintf("account-%d", n) {
			continue
		}
		if err := o.Ledger.CreateAccount(ctx, accountOf(n), sum); err != nil {
			return nil, err
		}
	}
	return l, errors.Join(l.allow(ctx), l.open())
}

// allow renews the budget of the frugal payer.
func (l *Lab) allow(ctx context.Context) error {
	budget := billing.One / 1_000
	return l.options.Ledger.SetBudget(ctx, accountOf(rich+poor), fmt.Sprintf("key-%d", rich+poor), &budget)
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// routes are what a reload replaces, of a generation.
func (l *Lab) routes(generation int) (gateway.Options, error) {
	prices, err := priceList(generation)
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
			{ID: "vector-1", Kind: gateway.KindEmbeddings, Batch: textsAtOnce},
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
	o.Meter, o.Idempotency, o.Tasks = l.till, l.answers, l.tasks
	if db := l.options.Store; db != nil {
		o.Meter, o.Idempotency, o.Tasks = db, db, db
	}
	o.Authenticator = l
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

// begin opens an exchange, and notes by which prices.
func (l *Lab) begin(r *Run) *gateway.Exchange {
	l.turn.RLock()
	defer l.turn.RUnlock()
	x := l.gateway.Begin()
	r.ID, r.generation = x.ID, l.generation
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[x.ID] = r
	l.all = append(l.all, r)
	return x
}

func (l *Lab) find(requestID string) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[requestID]
}

func (l *Lab) now() time.Duration { return time.Since(l.start) }

func (l *Lab) healthy() bool { return l.well.Load() }

func (l *Lab) storm() bool { return l.now() < time.Duration(l.storms.Load()) }

// blame notes that something does not hold.
func (l *Lab) blame(format string, args ...any) {
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
				l.play(l.options.Cases(l.options.First + n))
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
			l.visit(c, i)
		})
	}
	copies.Wait()
}
