// Package videopoll asks after video tasks: each once for all callers who want to
// know, and, while Run runs, those that this process has leased as they fall due.
package videopoll

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/video"
)

// Timeout is the time-out of one poll, and of one call of the store.
const Timeout = 30 * time.Second

// How a process polls its tasks.
const (
	leaseTime   = time.Minute     // others take a task over that was not renewed for so long
	claimEvery  = leaseTime / 4   // tasks are claimed, and leases renewed
	batch       = time.Second / 4 // tasks that are due so near to each other are polled together
	pollsAtOnce = 256
	perChannel  = 64     // of them, so that a vendor who does not answer holds up no other
	mostTasks   = 2_000  // that are claimed at once: what one node leaves, another takes
	mostKnown   = 10_000 // while Run does not run; a task more is left to the store, where Run finds it
	purgeEvery  = time.Hour
)

// Options are a Poller's. All of them are needed.
type Options struct {
	Store  video.Store
	Owner  string           // of this process's leases
	Poll   time.Duration    // how often a young task is polled
	Now    func() time.Time // of this process, by which leases and intervals go
	Clock  *videoop.Clock   // of the store, by which tasks go
	Logger *slog.Logger
	// Advance brings a task one step on and returns it as it is then.
	Advance func(ctx context.Context, t *video.Task) (*video.Task, error)
	// Find is the stored task.
	Find func(ctx context.Context, account, id string) (*video.Task, error)
	// Failed is told of each poll of Run's that failed.
	Failed func(t *video.Task, err error)
}

// Poller polls tasks. It is safe for concurrent use.
type Poller struct {
	Options
	wake            chan struct{} // a task is new
	watched         atomic.Int64
	claimed, purged time.Time // by Run

	mu     sync.Mutex
	active bool // Run runs
	tasks  map[string]*entry
	claims int // of the store, begun so far
	swept  time.Time
}

// entry is what this process knows of a task.
type entry struct {
	polled time.Time // when it was polled last, by this process; zero for never
	poll   *poll     // that runs now; nil for none

	task  *video.Task // that Run polls; nil if another process does, or none
	next  time.Time   // when
	claim int         // the last one that gave it to this process
}

// poll is one poll of an upstream, for which several callers may wait.
type poll struct {
	byRun   bool   // Run began it: it counts against its bounds
	channel string // that is polled
	done    chan struct{}
	task    *video.Task
	err     error
}

// New makes a Poller.
func New(o Options) *Poller {
	return &Poller{Options: o, wake: make(chan struct{}, 1), tasks: make(map[string]*entry)}
}

// Watched is how many tasks Run polls. It never blocks.
func (p *Poller) Watched() int { return int(p.watched.Load()) }

// Due reports whether a task is open and was not polled for the usual interval.
func (p *Poller) Due(t *video.Task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !t.State.Terminal() && p.overdue(t, p.Poll)
}

// overdue reports whether an open task was not polled for an interval. The caller
// holds the lock.
func (p *Poller) overdue(t *video.Task, interval time.Duration) bool {
	if e := p.tasks[t.ID]; e != nil && !e.polled.IsZero() {
		return p.Now().Sub(e.polled) >= interval
	}
	last := t.PolledAt
	if last.IsZero() {
		last = t.CreatedAt
	}
	return p.Clock.Last().Sub(last) >= interval
}

// Refresh polls a task that is due. Callers that come while a poll runs share its
// result. It ends with ctx, but the poll goes on.
func (p *Poller) Refresh(ctx context.Context, t *video.Task) (*video.Task, error) {
	p.mu.Lock()
	e := p.entry(t.ID)
	running := e.poll
	switch {
	case running != nil:
	case !p.overdue(t, p.Poll):
		p.mu.Unlock()
		return p.Find(ctx, t.Account, t.ID)
	default:
		running = e.begin(t, false)
		go p.ask(context.WithoutCancel(ctx), t, e)
	}
	p.mu.Unlock()
	select {
	case <-running.done:
		return running.task, running.err
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
}

// entry is that of a task. Those of tasks that nobody asked after for long are
// forgotten. The caller holds the lock.
func (p *Poller) entry(id string) *entry {
	if e := p.tasks[id]; e != nil {
		return e
	}
	if now := p.Now(); now.Sub(p.swept) >= purgeEvery {
		p.swept = now
		maps.DeleteFunc(p.tasks, func(_ string, e *entry) bool {
			return e.task == nil && e.poll == nil && now.Sub(e.polled) >= purgeEvery
		})
	}
	e := &entry{}
	p.tasks[id] = e
	return e
}

// begin makes the poll of a task that none runs of. The caller holds the lock, and has
// [Poller.ask] do it.
func (e *entry) begin(t *video.Task, byRun bool) *poll {
	e.poll = &poll{byRun: byRun, channel: t.Channel, done: make(chan struct{})}
	return e.poll
}

// ask polls a task once, for all callers that wait for e.poll.
func (p *Poller) ask(ctx context.Context, t *video.Task, e *entry) {
	r := e.poll // no other poll begins before this one ends
	limit, cancel := context.WithTimeout(ctx, Timeout)
	r.task, r.err = p.Advance(limit, t)
	cancel()
	known := r.task
	if r.err != nil {
		known = p.stored(ctx, t, e)
	}
	now := p.Clock.Last()
	p.mu.Lock()
	defer p.mu.Unlock()
	e.poll, e.polled = nil, p.Now() // also of one that ended: a caller that read it before must not poll again
	switch {
	case e.task == nil, e.task.Version > known.Version: // it was claimed or moved on meanwhile
	case known.State.Terminal():
		e.task = nil
	case r.err != nil:
		e.task, e.next = known, now.Add(videoop.PollInterval(known, now, p.Poll))
	default:
		e.task, e.next = known, videoop.NextPoll(known, now, p.Poll)
	}
	close(r.done)
}

// stored is a task whose poll failed as the store has it, if Run polls it: another
// process may have taken it further.
func (p *Poller) stored(ctx context.Context, t *video.Task, e *entry) *video.Task {
	p.mu.Lock()
	watched := e.task != nil
	p.mu.Unlock()
	if !watched {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if stored, err := p.Find(ctx, t.Account, t.ID); err == nil {
		return stored
	}
	return t
}

// Submitted hands a task that this process has submitted to Run, if that runs; the
// next claim leases it.
func (p *Poller) Submitted(t *video.Task) {
	p.mu.Lock()
	if p.active || len(p.tasks) < mostKnown {
		p.take(t, p.Clock.Last())
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take has Run poll a task. What is known of it stays, unless the task has moved on
// since: a submission may have been claimed before its upstream was known. The
// caller holds the lock.
func (p *Poller) take(t *video.Task, now time.Time) {
	e := p.entry(t.ID)
	e.claim = p.claims
	if e.task == nil || e.poll == nil && e.task.Version < t.Version {
		e.task, e.next = t, videoop.NextPoll(t, now, p.Poll)
	}
}

// Run polls the tasks of this process until ctx ends: it leases open tasks from
// the store, polls those that are due, and has the store forget old records. It
// returns when the polls have ended that run then; callers may begin others
// meanwhile. Only one Run may be active at a time.
func (p *Poller) Run(ctx context.Context) {
	p.setActive(true)
	defer p.setActive(false)
	p.claimed, p.purged = time.Time{}, time.Time{} // the first round does both
	var running sync.WaitGroup
	for ctx.Err() == nil {
		due, wait := p.round(ctx)
		for _, d := range due {
			running.Go(func() {
				p.ask(context.WithoutCancel(ctx), d.task, d.entry)
				if err := d.poll.err; err != nil && ctx.Err() == nil {
					p.Failed(d.task, err)
				}
			})
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-time.After(wait):
		}
	}
	running.Wait()
	var polls []*poll
	p.mu.Lock()
	for _, e := range p.tasks {
		if e.poll != nil {
			polls = append(polls, e.poll)
		}
	}
	p.mu.Unlock()
	for _, r := range polls {
		<-r.done
	}
}

func (p *Poller) setActive(active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = active
}

// duePoll is a poll that Run has begun.
type duePoll struct {
	task  *video.Task
	entry *entry
	poll  *poll
}

// round leases and forgets what is to be, and returns the polls that begin now and the
// time until the next round.
func (p *Poller) round(ctx context.Context) (due []duePoll, wait time.Duration) {
	now, err := p.Clock.Now(ctx)
	if err != nil { // it was never read: no task can be ended by it
		p.Logger.Warn("reading the clock of the store of videos failed", "error", err)
		return nil, time.Second
	}
	if now.Sub(p.claimed) >= claimEvery {
		p.claimed = now
		p.claim(ctx, now)
	}
	if now.Sub(p.purged) >= purgeEvery {
		p.purged = now
		err := p.call(ctx, func(ctx context.Context) error {
			_, err := p.Store.Purge(ctx, now)
			return err
		})
		if err != nil && ctx.Err() == nil {
			p.Logger.Warn("purging expired video tasks failed", "error", err)
		}
	}
	return p.due(now)
}

// call makes one call of the store, and an error of its panic.
func (p *Poller) call(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return do(ctx)
}

// claim leases tasks and drops those that another process has now.
func (p *Poller) claim(ctx context.Context, now time.Time) {
	p.mu.Lock()
	p.claims++
	p.mu.Unlock()
	var tasks []*video.Task
	err := p.call(ctx, func(ctx context.Context) (err error) {
		tasks, err = p.Store.Claim(ctx, p.Owner, p.Now().Add(leaseTime), mostTasks)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			p.Logger.Warn("claiming open video tasks failed", "error", err)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tasks {
		p.take(t, now)
	}
	for _, e := range p.tasks {
		if e.claim < p.claims { // nor was it submitted meanwhile
			e.task = nil
		}
	}
}

// due begins the polls that are due, the longest overdue first and of each channel a
// limited number, and returns them with the time until the next one is due. Polls that
// callers began take none of Run's places: a vendor that leaves many of them waiting
// holds up no other vendor's tasks.
func (p *Poller) due(now time.Time) (due []duePoll, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = claimEvery
	watched, running, channels := 0, 0, map[string]int{} // polls of Run's, also by channel
	var over []*entry
	for _, e := range p.tasks {
		if e.poll != nil && e.poll.byRun {
			running++
			channels[e.poll.channel]++
		}
		if e.task == nil {
			continue
		}
		watched++
		left := e.next.Sub(now)
		if e.poll == nil && left > 0 {
			wait = min(wait, left)
			continue
		}
		wait = min(wait, videoop.PollInterval(e.task, now, p.Poll))
		if e.poll == nil {
			over = append(over, e)
		}
	}
	p.watched.Store(int64(watched))
	slices.SortFunc(over, func(a, b *entry) int { return a.next.Compare(b.next) })
	for _, e := range over {
		if running >= pollsAtOnce || channels[e.task.Channel] >= perChannel {
			wait = batch
			continue
		}
		running++
		channels[e.task.Channel]++
		due = append(due, duePoll{e.task, e, e.begin(e.task, true)})
	}
	return due, max(wait, batch)
}
