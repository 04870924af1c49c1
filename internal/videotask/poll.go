package videotask

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/outage"
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
	mostKnown   = 10_000 // while Due does not run; a task more is left to the store, where Due finds it
	purgeEvery  = time.Hour
)

// entry is what this process knows of a task.
type entry struct {
	polled time.Time // when it was polled last, by this process; zero for never
	poll   *Poll     // that runs now; nil for none

	task  *video.Task // that Due polls; nil if another process does, or none
	next  time.Time   // when
	claim int         // the last one that gave it to this process
}

// Poll is one poll of a task, for which several callers may wait. Whoever begins it asks the
// vendor if Begin says so, and calls End.
type Poll struct {
	Task *video.Task // as it was before

	tasks *Tasks
	entry *entry
	byDue bool      // Due began it: it counts against its bounds
	now   time.Time // by the store's clock, before the vendor is asked

	done chan struct{}
	next *video.Task // the task after it
	err  error
}

// Watched is how many tasks Due polls. It never blocks.
func (v *Tasks) Watched() int { return int(v.watched.Load()) }

// overdue reports whether an open task was not polled for an interval. The caller
// holds the lock.
func (v *Tasks) overdue(t *video.Task, interval time.Duration) bool {
	if e := v.tasks[t.ID]; e != nil && !e.polled.IsZero() {
		return v.Now().Sub(e.polled) >= interval
	}
	last := t.PolledAt
	if last.IsZero() {
		last = t.CreatedAt
	}
	return v.clock.Last().Sub(last) >= interval
}

// Refresh returns the poll of an open task that was not polled for the usual interval; nil for
// any other. Callers that come while a poll runs share it: own says that the caller makes it.
func (v *Tasks) Refresh(t *video.Task) (p *Poll, own bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t.State.Terminal() || !v.overdue(t, v.Poll) {
		return nil, false
	}
	e := v.entry(t.ID)
	if e.poll != nil {
		return e.poll, false
	}
	return v.begin(e, t, false), true
}

// Wait returns the task as it is after the poll. The poll goes on if ctx ends first.
func (p *Poll) Wait(ctx context.Context) (*video.Task, error) {
	select {
	case <-p.done:
		return p.next, p.err
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
}

// entry is that of a task. The entries of tasks that nobody has asked for in a long time are
// forgotten. The caller holds the lock.
func (v *Tasks) entry(id string) *entry {
	if e := v.tasks[id]; e != nil {
		return e
	}
	if now := v.Now(); now.Sub(v.swept) >= purgeEvery {
		v.swept = now
		maps.DeleteFunc(v.tasks, func(_ string, e *entry) bool {
			return e.task == nil && e.poll == nil && now.Sub(e.polled) >= purgeEvery
		})
	}
	e := &entry{}
	v.tasks[id] = e
	return e
}

// begin makes the poll of a task that has no running poll. The caller holds the lock.
func (v *Tasks) begin(e *entry, t *video.Task, byDue bool) *Poll {
	e.poll = &Poll{Task: t, tasks: v, entry: e, byDue: byDue, done: make(chan struct{})}
	return e.poll
}

// Begin reports whether the vendor is to be asked for the task.
func (p *Poll) Begin(ctx context.Context) bool {
	p.now, p.err = p.tasks.clock.Now(ctx)
	return p.err == nil && p.Task.UpstreamID != ""
}

// End brings the task a step on: by its time, or by what its vendor answered, unless that
// failed with err. It returns why it could not.
func (p *Poll) End(ctx context.Context, answer []byte, err error) error {
	v, e := p.tasks, p.entry
	if p.err == nil {
		p.next, p.err = v.advance(ctx, p, answer, err)
	} else {
		p.err = outage.Error(p.err)
	}
	known := p.next
	if p.err != nil {
		known = v.stored(ctx, p)
	}
	now := v.clock.Last()
	v.mu.Lock()
	defer v.mu.Unlock()
	e.poll, e.polled = nil, v.Now() // also of one that ended: a caller that read it before must not poll again
	switch {
	case e.task == nil, e.task.Version > known.Version: // it was claimed or moved on meanwhile
	case known.State.Terminal():
		e.task = nil
	case p.err != nil:
		e.task, e.next = known, now.Add(videoop.PollInterval(known, now, v.Poll))
	default:
		e.task, e.next = known, videoop.NextPoll(known, now, v.Poll)
	}
	close(p.done)
	return p.err
}

// advance applies what the vendor answered to the task. One whose time is over is polled a
// last time, so that a success that came too late is reported.
func (v *Tasks) advance(ctx context.Context, p *Poll, answer []byte, asked error) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	t := p.Task
	m := videoop.Apply(t, videoop.Event{Kind: videoop.Tick}, p.now)
	if t.UpstreamID == "" { // there is no vendor to ask
		return v.commit(ctx, t, m)
	}
	var report videoop.Report
	if asked == nil {
		report, asked = videoop.ReadPoll(t, answer)
	}
	switch {
	case asked == nil:
		m = videoop.Apply(t, videoop.Event{Kind: videoop.Polled, Report: report}, p.now)
	case !m.Changed:
		return nil, asked
	}
	if m.UnknownStatus != "" && m.Changed {
		v.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	return v.commit(ctx, t, m)
}

// stored is a task whose poll failed as the store has it, if Due polls it: another process may
// have taken it further.
func (v *Tasks) stored(ctx context.Context, p *Poll) *video.Task {
	t := p.Task
	v.mu.Lock()
	watched := p.entry.task != nil
	v.mu.Unlock()
	if !watched {
		return t
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if stored, err := v.Find(ctx, t.Account, t.ID); err == nil {
		return stored
	}
	return t
}

// hand hands a task that this process has submitted to Due, if that runs; the next claim
// leases it.
func (v *Tasks) hand(t *video.Task) {
	v.mu.Lock()
	if v.active || len(v.tasks) < mostKnown {
		v.take(t, v.clock.Last())
	}
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// take has Due poll a task. What is known of it stays, unless the task has moved on
// since: a submission may have been claimed before its upstream was known. The
// caller holds the lock.
func (v *Tasks) take(t *video.Task, now time.Time) {
	e := v.entry(t.ID)
	e.claim = v.claims
	if e.task == nil || e.poll == nil && e.task.Version < t.Version {
		e.task, e.next = t, videoop.NextPoll(t, now, v.Poll)
	}
}

// Due yields each poll of this process as it falls due, until ctx ends. It leases open tasks
// from the store, has the store forget old records, and writes the steps again that the store
// did not take. The caller makes each poll in another goroutine.
//
// After the end of ctx Due waits for the polls that run then; callers of Refresh may begin
// others meanwhile. What an upstream took must be stored. So each step that is left is tried
// once more before the last polls are waited for, and again after them. Only one Due may be
// active at a time.
func (v *Tasks) Due(ctx context.Context) iter.Seq[*Poll] {
	return func(yield func(*Poll) bool) {
		v.setActive(true)
		defer v.setActive(false)
		var writing sync.WaitGroup
		writing.Go(func() {
			v.writes.Run(ctx)
			v.writes.Drain(ctx, v.Timeout)
		})
		v.claimed, v.purged = time.Time{}, time.Time{} // the first round does both
		for ctx.Err() == nil {
			due, wait := v.round(ctx)
			for _, p := range due {
				yield(p)
			}
			select {
			case <-ctx.Done():
			case <-v.wake:
			case <-time.After(wait):
			}
		}
		v.waitForPolls()
		writing.Wait()
		v.writes.Drain(ctx, v.Timeout)
	}
}

// waitForPolls waits for the polls that run now.
func (v *Tasks) waitForPolls() {
	var polls []*Poll
	v.mu.Lock()
	for _, e := range v.tasks {
		if e.poll != nil {
			polls = append(polls, e.poll)
		}
	}
	v.mu.Unlock()
	for _, p := range polls {
		<-p.done
	}
}

func (v *Tasks) setActive(active bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.active = active
}

// round leases and forgets what is to be, and returns the polls that begin now and the
// time until the next round.
func (v *Tasks) round(ctx context.Context) (due []*Poll, wait time.Duration) {
	now, err := v.clock.Now(ctx)
	if err != nil { // it was never read: no task can be ended by it
		v.Logger.Warn("reading the clock of the store of videos failed", "error", err)
		return nil, time.Second
	}
	if now.Sub(v.claimed) >= claimEvery {
		v.claimed = now
		v.claim(ctx, now)
	}
	if now.Sub(v.purged) >= purgeEvery {
		v.purged = now
		err := v.call(ctx, func(ctx context.Context) error {
			_, err := v.Store.Purge(ctx, now)
			return err
		})
		if err != nil && ctx.Err() == nil {
			v.Logger.Warn("purging expired video tasks failed", "error", err)
		}
	}
	return v.due(now)
}

// call makes one call of the store, and an error of its panic.
func (v *Tasks) call(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return do(ctx)
}

// claim leases tasks and drops those that another process has now.
func (v *Tasks) claim(ctx context.Context, now time.Time) {
	v.mu.Lock()
	v.claims++
	v.mu.Unlock()
	var tasks []*video.Task
	err := v.call(ctx, func(ctx context.Context) (err error) {
		tasks, err = v.Store.Claim(ctx, v.Owner, v.Now().Add(leaseTime), mostTasks)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			v.Logger.Warn("claiming open video tasks failed", "error", err)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range tasks {
		v.take(t, now)
	}
	for _, e := range v.tasks {
		if e.claim < v.claims { // nor was it submitted meanwhile
			e.task = nil
		}
	}
}

// due begins the polls that are due, the longest overdue first, and of each channel a limited
// number. It returns them with the time until the next one is due. Polls that callers began
// take none of Due's places: a vendor that leaves many of them waiting holds up no other
// vendor's tasks.
func (v *Tasks) due(now time.Time) (due []*Poll, wait time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	wait = claimEvery
	watched, running, channels := 0, 0, map[string]int{} // polls of Due's, also by channel
	var over []*entry
	for _, e := range v.tasks {
		if e.poll != nil && e.poll.byDue {
			running++
			channels[e.poll.Task.Channel]++
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
		wait = min(wait, videoop.PollInterval(e.task, now, v.Poll))
		if e.poll == nil {
			over = append(over, e)
		}
	}
	v.watched.Store(int64(watched))
	slices.SortFunc(over, func(a, b *entry) int { return a.next.Compare(b.next) })
	for _, e := range over {
		if running >= pollsAtOnce || channels[e.task.Channel] >= perChannel {
			wait = batch
			continue
		}
		running++
		channels[e.task.Channel]++
		due = append(due, v.begin(e, e.task, true))
	}
	return due, max(wait, batch)
}
