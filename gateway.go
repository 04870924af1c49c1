// Package gateway is an AI gateway as a library: one API for many model vendors, in
// OpenAI's wire format, with keys, limits, fail-over, and exact integer prices. What a
// request may cost is held before a vendor is asked, and settled before the last byte
// of the answer.
//
// Make a Gateway with [New] and call its typed methods:
//
//	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
//	...
//	answer, err := g.Chat(ctx, &chat.Request{
//		Model:    "delta-k3",
//		Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
//	})
//
// Every error is a *fault.Error. Requests and answers are in packages chat, messages,
// responses, images, embeddings, rerank, moderations, speech and video.
//
// [Options] takes the rest: a driver (upstream/openai, ...) or a router of channels
// (upstream/router) as Upstream, prices and a ledger (billing; store/sqlite,
// store/postgres), keys and limits (auth). [Serve] runs a gateway with its stores and servers,
// and ends them in order: [Gateway.Run] retries settlements, polls videos and sends webhooks.
//
// To pass on raw requests use [Gateway.Do]; package server does so for HTTP. All methods
// of a Gateway are safe for concurrent use.
package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/internal/replay"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/internal/session"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/internal/translate"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/internal/videotask"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Gateway is the whole gateway in process. It is safe for concurrent use. Make
// one with [New], run [Gateway.Run] beside it, and end it with [Gateway.Close].
type Gateway struct {
	options   Options
	observers observers
	catalog   atomic.Pointer[catalog]
	calls     calls
	working   chan struct{} // has an element while a Run works
	admission *admission.Admission
	money     *money.Money
	tasks     *videotask.Tasks
	waiting   quota.Count        // callers who wait for the end of a video
	trail     *via.Trail         // of a request that begins here
	deliverer *webhook.Deliverer // of webhooks; nil where the store keeps none

	started    time.Time
	replay     *replay.Replay
	secrets    *seal.Secrets
	sessionKey session.Key // by which sessions are hashed
	alias      func(account, name string) string
	bridge     upstream.Middleware // of every channel
	stored     *stored.Responses
}

// New returns a Gateway. It fails if an option contradicts another, naming it.
func New(o Options) (*Gateway, error) {
	o.setDefaults()
	g := &Gateway{options: o, working: make(chan struct{}, 1), observers: observers{o.Observe, o.Logger}, started: o.Now(), secrets: seal.New(o.Secrets)}
	g.bridge = translate.Bridge(translate.Options{
		Now: o.Now, NewID: o.NewID, Secrets: g.secrets, MaxEvent: o.MaxAnswer,
		Memory: func(ctx context.Context) sse.Budget {
			event := g.admission.Answers().Event(ctx)
			return &event
		},
	})
	c, err := newCatalog(&o, g.started, g.bridge)
	if err == nil {
		err = o.checkStores()
	}
	if err == nil {
		err = o.checkResponses()
	}
	if err != nil {
		return nil, err
	}
	g.stored = newStored(&o, g.secrets)
	g.sessionKey = g.secrets.LastingKey("session")
	g.alias = func(account, name string) string {
		hash := session.Hash(&g.sessionKey, account, name)
		return hex.EncodeToString(hash[:])
	}
	g.admission = admission.New(o.Admission.options(o.Now))
	answers := replay.Options{Store: o.Idempotency, Logger: o.Logger}
	meter, ok := o.Meter.(idempotency.Store)
	if answers.ByHold = ok && meter == o.Idempotency; answers.ByHold {
		answers.Claims = &memory.Answers{Now: o.Now}
	} else if answers.Claims, ok = o.Idempotency.(idempotency.Claimer); !ok {
		return nil, errors.New("gateway: Options.Idempotency claims keys only with holds of its own, so that it has to be Options.Meter too")
	}
	g.replay = replay.New(answers)
	g.money = money.New(money.Options{Meter: o.Meter, Timeout: o.SettleTimeout, Logger: o.Logger, Report: g.emitCapture})
	node := o.NewID("node_")
	g.tasks = newTasks(g, node)
	g.trail = via.New(node)
	g.deliverer = newDeliverer(g, node)
	g.catalog.Store(c)
	return g, nil
}

// Reload replaces Upstream, Prices, Models, Affinity and RequirePrice by those of o, at
// once for new calls; running calls keep what they started with. The other
// options cannot change and are ignored. On an error nothing changes.
func (g *Gateway) Reload(o Options) error {
	o.Media, o.Video = g.options.Media, g.options.Video
	c, err := newCatalog(&o, g.started, g.bridge)
	if err != nil {
		return err
	}
	g.catalog.Store(c)
	return nil
}

// Run does the gateway's background work until ctx ends: it retries settlements
// that could not be made durable when their calls ended, polls videos until they have
// ended, and delivers their webhooks. At the end it tries each of those settlements
// once more. It returns nil. One Run works at a time: another one waits until it has ended.
func (g *Gateway) Run(ctx context.Context) error {
	select {
	case g.working <- struct{}{}: // also if ctx has ended: late settlements are tried once
	default:
		select {
		case g.working <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
	defer func() { <-g.working }()
	var running sync.WaitGroup
	running.Go(func() { g.money.Run(ctx) })
	running.Go(func() { g.pollVideos(ctx) })
	if g.deliverer != nil {
		running.Go(func() { g.deliverer.Run(ctx) })
	}
	running.Wait()
	return nil
}

// Shutdown refuses new calls and waits until the running ones have ended. When
// ctx ends first, it cancels them: each settles what it delivered, and a stream
// ends with an error event. It returns the error of ctx in that case.
func (g *Gateway) Shutdown(ctx context.Context) error {
	return g.calls.shutdown(ctx)
}

// Close is Shutdown without waiting: running calls are cancelled, settled and
// waited for.
func (g *Gateway) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Shutdown(now); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Unsettled is the number of captures, and of steps of videos, that wait to be
// retried.
func (g *Gateway) Unsettled() int { return g.money.Late() + g.tasks.Pending() }

// ShuttingDown reports whether the gateway refuses new calls.
func (g *Gateway) ShuttingDown() bool { return g.calls.closed() }

// Outgoing is ctx for requests to vendors that no caller made, such as those for lists of
// models (package upstream/discovery): they carry the gateway's name, so that one which
// comes back to it is refused (508).
func (g *Gateway) Outgoing(ctx context.Context) context.Context {
	return &via.Context{Context: ctx, Trail: g.trail}
}

// Meter is the meter that calls are billed with.
func (g *Gateway) Meter() billing.Meter { return g.options.Meter }

// Load is what a gateway carries at one moment.
type Load struct {
	Running int   // calls that have a slot
	Waiting int   // calls that wait for one
	Full    bool  // no slot is free, and one more call would be refused at once
	Bodies  int64 // bytes of large requests in memory
	Answers int64 // bytes of large answers in memory
	Refused int64 // calls that got no slot or no memory, since the start
	Short   bool  // new calls are refused for lack of memory
}

// Load is what the gateway carries now. It is safe for concurrent use.
func (g *Gateway) Load() Load {
	return Load(g.admission.Load())
}

// Backlog is what a gateway has not brought to an end yet, beside the calls that
// [Gateway.Load] counts.
type Backlog struct {
	Streams  int // running calls whose answers stream
	Captures int // settlements that were not durable when their calls ended, and are tried again
	Steps    int // steps of videos that the store has not taken yet
	Tasks    int // open tasks of videos that Run polls in this process
	Waiters  int // callers who wait for the end of a video, of VideoOptions.MaxWaiting
}

// Backlog is what is open now. It is safe for concurrent use.
func (g *Gateway) Backlog() Backlog {
	return Backlog{
		Streams: g.calls.open(), Captures: g.money.Late(), Steps: g.tasks.Pending(), Tasks: g.tasks.Watched(), Waiters: int(g.waiting.Used()),
	}
}

// calls is the set of running calls, so that a shutdown can wait for them and
// cancel them.
type calls struct {
	mu      sync.Mutex
	running map[*Entry]struct{}
	streams int // of those that run
	down    bool
	idle    chan struct{} // closed when down and nothing runs
}

// add registers a call; it fails while shutting down.
func (c *calls) add(e *Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return deliver.ErrShutdown
	}
	if c.running == nil {
		c.running = make(map[*Entry]struct{})
	}
	c.running[e] = struct{}{}
	if e.record.stream {
		c.streams++
	}
	return nil
}

// remove takes a call out; a second time does nothing.
func (c *calls) remove(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.running[e]; !ok {
		return
	}
	delete(c.running, e)
	if e.record.stream {
		c.streams--
	}
	if c.down && len(c.running) == 0 {
		close(c.idle)
	}
}

// open is how many of the running calls stream.
func (c *calls) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams
}

func (c *calls) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// shutdown refuses new calls and waits until none runs; when ctx ends first, it cancels
// those that do.
func (c *calls) shutdown(ctx context.Context) error {
	c.mu.Lock()
	if !c.down {
		c.down, c.idle = true, make(chan struct{})
		if len(c.running) == 0 {
			close(c.idle)
		}
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	late := len(c.running) > 0 // the last of them may have ended as ctx did
	for one := range c.running {
		one.cancel(deliver.ErrShutdown)
	}
	c.mu.Unlock()
	<-idle
	if !late {
		return nil
	}
	return ctx.Err()
}
