// Package gateway is an AI gateway in process: one straight line from a request
// to an upstream and back, with authentication, limits, exact billing and
// streams, for a Go program to call and for package server to put behind HTTP.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/hop"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Options configure a Gateway. Every nil or zero field but Upstream means a
// safe default.
type Options struct {
	// Upstream answers the calls: a *router.Router over many channels, or
	// any other Upstream, which then serves every model. Required.
	Upstream upstream.Upstream
	// Prices are the operator's prices by public model id; a model without one
	// is free. See also RequirePrice.
	Prices *billing.PriceList
	// Models are facts about models, over the built-in tables.
	Models []Model
	// RequirePrice is prepaid billing: a model without a price is unknown, for an
	// operation too whose units its price lacks, and request fields that cost money
	// without a price, or choose another model or account, are refused unless the
	// model's channels pass them (router.Channel).
	RequirePrice bool

	// Authenticator finds the principal of a token. Without one every caller is
	// let in and belongs to the account "local".
	Authenticator auth.Authenticator
	// Limiter enforces the limits of principals; nil means one of this
	// process's own.
	Limiter auth.Limiter
	// Meter holds and captures money; nil means billing.Free, which charges
	// nothing.
	Meter billing.Meter

	// Idempotency remembers answers by idempotency key; nil means in memory. If
	// it is the Meter too, answers are kept in the settling transaction.
	Idempotency idempotency.Store

	// Tasks keeps the tasks of videos; nil means the Meter, if it can, else in
	// memory, which a durable Meter is refused with: of a store.DB give Tasks() as
	// the Meter. If it is the Meter, a task changes in the settling transaction. The
	// notices of its tasks are delivered by Run if it can tell them, as
	// MemoryTasks and the stores of this module do.
	Tasks video.Store
	// Video says how tasks are asked after and kept.
	Video VideoOptions

	// Media bounds the input tokens of pictures and videos.
	Media chat.MediaBound
	// MP3 makes MP3 of speech whose upstream gives WAV only; nil means the lame
	// program on PATH, without which such a request is refused with a 400.
	MP3 speech.Encoder
	// Heartbeat is the silence after which a streaming client over HTTP gets an
	// empty chunk; zero means 15 s, negative never.
	Heartbeat time.Duration
	// SettleTimeout is how long the end of an answer waits for its capture to
	// be durable; zero means 5 s.
	SettleTimeout time.Duration
	// MaxDrains is how many streams are read on at once after their clients left, for
	// channels with a Drain and models that reason without showing it; above it they
	// are cancelled, and estimated. Zero means 64, negative none.
	MaxDrains int
	// MaxAnswer is the largest non-streamed answer in bytes; zero means 256 MiB, or
	// a quarter of Admission.Memory where that is less, but not under 64 MiB.
	MaxAnswer int64

	// Admission bounds the calls that run at once, and their memory.
	Admission Admission

	// Logger gets one line per request, without prompts and keys; nil discards.
	Logger *slog.Logger
	// Observe is told of every request, attempt and event; see [Observers] for
	// more than one.
	Observe Observer
	// Now and NewID are the clock and the source of unique ids; nil means the
	// real ones. NewID gets a prefix ("req_") and appends to it.
	Now   func() time.Time
	NewID func(prefix string) string
}

// Gateway is the whole gateway in process. It is safe for concurrent use. Make
// one with [New], run [Gateway.Run] beside it, and end it with [Gateway.Close].
type Gateway struct {
	options   Options
	eyes      eyes
	routes    atomic.Pointer[routes]
	calls     calls
	places    *places
	door      *door
	unsettled queue
	drains    drains
	videos    *videos
	trail     *hop.Trail         // of a request that begins here
	notices   *webhook.Deliverer // nil where the store tells none

	started       time.Time
	transactional bool // the meter keeps idempotent answers itself
}

// New returns a Gateway. It fails if an option contradicts another, naming it.
func New(o Options) (*Gateway, error) {
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	started := now()
	r, err := newRoutes(&o, started)
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	if err := o.checkTasks(); err != nil {
		return nil, err
	}
	g := &Gateway{options: o, eyes: eyes{o.Observe, o.Logger}, started: started}
	g.drains.most = int64(o.MaxDrains)
	g.places, g.door = newPlaces(o.Admission), newDoor(o.Admission, o.Now)
	meter, ok := o.Meter.(idempotency.Store)
	g.transactional = ok && meter == o.Idempotency
	g.videos = newVideos(g)
	g.trail = hop.New(g.videos.owner)
	if outbox, ok := o.Tasks.(webhook.Outbox); ok {
		if g.notices, err = newNotices(g, outbox); err != nil {
			return nil, err
		}
	}
	g.routes.Store(r)
	return g, nil
}

func (o *Options) setDefaults() {
	if o.Meter == nil {
		o.Meter = &billing.Free{}
	}
	if o.Limiter == nil {
		o.Limiter = &auth.MemoryLimiter{Now: o.Now}
	}
	if o.Idempotency == nil {
		o.Idempotency = &idempotency.Memory{Now: o.Now}
	}
	if o.Tasks == nil {
		o.Tasks, _ = o.Meter.(video.Store)
	}
	if o.Tasks == nil {
		o.Tasks = NewMemoryTasks(o.Now, o.Idempotency)
	}
	o.Admission.setDefaults()
	o.Video.setDefaults(o.Admission.MaxCalls)
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.MP3 == nil {
		o.MP3 = &lame.Encoder{}
	}
	if o.SettleTimeout == 0 {
		o.SettleTimeout = 5 * time.Second
	}
	if o.MaxDrains == 0 {
		o.MaxDrains = 64
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 256 << 20
		if share := o.Admission.share(); share > 0 {
			o.MaxAnswer = min(o.MaxAnswer, share)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = orderedIDs(o.Now)
	}
}

// checkTasks refuses a meter that remembers, beside tasks that a restart forgets:
// the holds of videos that vendors still make would outlive their tasks. A meter
// that keeps answers, too, keeps them with its money, and so remembers.
func (o *Options) checkTasks() error {
	if _, durable := o.Meter.(idempotency.Store); !durable {
		return nil
	}
	switch o.Tasks.(type) {
	case *MemoryTasks, *video.Memory:
		return errors.New("gateway: Options.Meter is durable, but Options.Tasks keeps video tasks in memory, where a restart loses them and their holds stay open; " +
			"give the Tasks() of a store.DB as Meter, Idempotency and Tasks (tasks := db.Tasks())")
	}
	return nil
}

// orderedIDs makes ids of the millisecond and 80 random bits, in base 32. Ids
// that follow each other in time do so in a database's indexes: it touches a
// few pages for many requests, where ids without order touch one for each.
func orderedIDs(now func() time.Time) func(prefix string) string {
	const digits, letters = "0123456789ABCDEFGHIJKLMNOPQRSTUV", 16
	return func(prefix string) string {
		var moment [10]byte
		ms := uint64(now().UnixMilli())
		for i := range moment {
			moment[len(moment)-1-i] = digits[ms>>(5*i)&31]
		}
		return prefix + string(moment[:]) + rand.Text()[:letters]
	}
}

// Reload replaces Upstream, Prices, Models and RequirePrice by those of o, at
// once for new calls; running calls keep what they started with. The other
// options cannot change and are ignored. On an error nothing changes.
func (g *Gateway) Reload(o Options) error {
	r, err := newRoutes(&o, g.started)
	if err != nil {
		return err
	}
	g.routes.Store(r)
	return nil
}

// Run does the gateway's background work until ctx ends: it retries captures
// that could not be made durable when their calls ended, looks after videos until
// they have ended, and delivers their notices. It returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { g.unsettled.run(ctx, g.retrySettle) })
	running.Go(func() { g.videos.run(ctx) })
	if g.notices != nil {
		running.Go(func() { _ = g.notices.Run(ctx) }) // it returns nil
	}
	running.Wait()
	return nil
}

// Shutdown refuses new calls and waits until the running ones have ended. When
// ctx ends first, it cancels them: each settles what it delivered, and a stream
// ends with an error event. It returns the error of ctx in that case.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.drains.stop()
	return g.calls.shutdown(ctx)
}

// Close is Shutdown without patience: running calls are cancelled, settled and
// waited for.
func (g *Gateway) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	g.drains.stop()
	if err := g.calls.shutdown(now); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Unsettled is the number of captures, and of steps of videos, that wait to be
// retried.
func (g *Gateway) Unsettled() int { return g.unsettled.len() + g.videos.owing() }

// Draining reports whether the gateway refuses new calls.
func (g *Gateway) Draining() bool { return g.calls.closed() }

// Meter is the meter that calls are billed with.
func (g *Gateway) Meter() billing.Meter { return g.options.Meter }
