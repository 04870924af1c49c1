package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/video"
)

// How a process looks after its tasks.
const (
	leaseTime       = time.Minute     // others take a task over that was not renewed for so long
	claimEvery      = leaseTime / 4   // tasks are claimed, and leases renewed
	retryAfter      = time.Second     // of one try to keep a step the next, where the store was away
	pollBatch       = time.Second / 4 // tasks that are due so near to each other are asked after together
	pollsAtOnce     = 256
	perChannel      = 64    // of them, so that a vendor who does not answer holds up no other
	mostTasks       = 2_000 // that are claimed at once: what one node leaves, another takes
	purgeEvery      = time.Hour
	maxPollInterval = time.Minute // between two looks at a task
)

// interval is the time between two looks at a task: a twentieth of its age.
func (v *videos) interval(t *video.Task, now time.Time) time.Duration {
	poll := v.g.options.Video.Poll
	return min(max(now.Sub(t.CreatedAt)/20, poll), max(maxPollInterval, poll))
}

// leasedTask is a task that this process looks after.
type leasedTask struct {
	task     *video.Task
	nextPoll time.Time // when it is looked at
	busy     bool
}

// poller is the state of run.
type poller struct {
	v       *videos
	mu      sync.Mutex
	tasks   map[string]*leasedTask
	slots   chan struct{}
	running sync.WaitGroup

	claimed, purged, retried time.Time
}

// run looks after the tasks of this process until ctx ends: it leases open ones,
// asks their upstreams how they go, ends those whose time is over and forgets
// those that were kept for long enough.
func (v *videos) run(ctx context.Context) {
	r := &poller{v: v, tasks: map[string]*leasedTask{}, slots: make(chan struct{}, pollsAtOnce)}
	defer v.waitForPolls()
	defer r.running.Wait()
	defer func() { // what an upstream took is not to be forgotten
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.options.SettleTimeout)
		defer cancel()
		v.retryPending(last)
	}()
	timer := time.NewTimer(claimEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		now, err := v.clock.now(ctx)
		if err != nil { // it was never read, and no task can be told to be over
			v.g.options.Logger.Warn("reading the clock of the store of videos failed", "error", err)
			timer.Reset(retryAfter)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			continue
		}
		if now.Sub(r.claimed) >= claimEvery {
			r.claim(ctx, now)
		}
		owing := r.addSubmitted(now)
		if owing && now.Sub(r.retried) >= retryAfter {
			r.retried = now
			v.retryPending(ctx)
		}
		r.purge(ctx, now)
		wait := r.pollDue(ctx, now)
		if owing {
			wait = min(wait, retryAfter)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-v.wake:
		case <-timer.C:
		}
	}
}

// addSubmitted takes in the tasks that this process has submitted since, without a look
// at all the others; the next claim leases them. owing says that the store has
// not taken every step yet.
func (r *poller) addSubmitted(now time.Time) (owing bool) {
	r.v.mu.Lock()
	fresh := r.v.submittedTasks
	r.v.submittedTasks, owing = nil, len(r.v.pending) > 0
	r.v.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range fresh {
		r.tasks[t.ID] = r.merge(r.tasks[t.ID], t, now)
	}
	return owing
}

// merge is the one that a task has, or a new one where the task has moved on
// since: a submission may have been claimed before its upstream was known.
func (r *poller) merge(known *leasedTask, t *video.Task, now time.Time) *leasedTask {
	if known != nil && (known.busy || known.task.Version >= t.Version) {
		return known
	}
	return &leasedTask{task: t, nextPoll: r.v.nextPoll(t, now)}
}

// claim leases tasks, and takes note of those that are this process's now.
func (r *poller) claim(ctx context.Context, now time.Time) {
	r.claimed = now
	tasks, err := r.claimTasks(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.v.g.options.Logger.Warn("open videos were not claimed", "error", err)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.tasks
	r.tasks = make(map[string]*leasedTask, len(tasks))
	for _, t := range tasks {
		r.tasks[t.ID] = r.merge(before[t.ID], t, now)
	}
}

func (r *poller) claimTasks(ctx context.Context) (tasks []*video.Task, err error) {
	defer guard(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return r.v.store.Claim(ctx, r.v.owner, r.v.g.options.Now().Add(leaseTime), mostTasks)
}

// nextPoll is when a task is to be looked at: an interval after the last look,
// and at the latest when its time is over.
func (v *videos) nextPoll(t *video.Task, now time.Time) time.Time {
	switch t.State {
	case video.Submitting:
		return t.CreatedAt.Add(submitTimeout + time.Second)
	case video.Unknown:
		return t.End()
	}
	next, last := now.Add(v.interval(t, now)), t.End().Add(-v.g.options.Video.Poll)
	switch {
	case !t.End().After(next) && now.Before(last):
		return last // what succeeded in time is seen in time
	case t.End().Before(next):
		return t.End()
	}
	return next
}

// pollDue starts a look at each task that is due, and returns the time until the
// next one is: none where more are due than can be looked at by then.
func (r *poller) pollDue(ctx context.Context, now time.Time) time.Duration {
	due, wait := r.due(now)
	full := time.NewTimer(pollBatch)
	defer full.Stop()
	for i, w := range due {
		select {
		case r.slots <- struct{}{}:
			r.running.Go(func() { r.pollTask(ctx, w) })
		case <-full.C: // tasks are claimed meanwhile, whatever the upstreams do
			r.putBack(due[i:])
			return 0
		case <-ctx.Done():
			return 0
		}
	}
	return max(wait, pollBatch)
}

// due are the tasks that are to be looked at, those first that wait longest, and
// the time until another one is.
func (r *poller) due(now time.Time) (due []*leasedTask, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = claimEvery
	r.v.watched.Store(int64(len(r.tasks)))
	asked := map[string]int{} // by channel
	for _, w := range r.tasks {
		switch left := w.nextPoll.Sub(now); {
		case w.busy:
			asked[w.task.Channel]++
			wait = min(wait, r.v.interval(w.task, now))
		case left > 0:
			wait = min(wait, left)
		default:
			due = append(due, w)
			wait = min(wait, r.v.interval(w.task, now))
		}
	}
	slices.SortFunc(due, func(a, b *leasedTask) int { return a.nextPoll.Compare(b.nextPoll) })
	return slices.DeleteFunc(due, func(w *leasedTask) bool {
		if asked[w.task.Channel] >= perChannel {
			wait = pollBatch
			return true
		}
		asked[w.task.Channel]++
		w.busy = true
		return false
	}), wait
}

// putBack puts tasks back that were not looked at.
func (r *poller) putBack(due []*leasedTask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range due {
		w.busy = false
	}
}

// pollTask looks at one task.
func (r *poller) pollTask(ctx context.Context, w *leasedTask) {
	defer func() { <-r.slots }()
	t, err := r.v.refresh(ctx, w.task, 0)
	now := r.v.clock.last()
	r.mu.Lock()
	defer r.mu.Unlock()
	w.busy = false
	switch {
	case err != nil:
		if ctx.Err() == nil {
			r.v.g.options.Logger.Warn("a video could not be asked after", "task", w.task.ID, "channel", w.task.Channel, "error", redactError(err))
		}
		if stored, err := r.v.find(ctx, w.task.Account, w.task.ID); err == nil {
			w.task = stored // another may have taken it further
		}
		w.nextPoll = now.Add(r.v.interval(w.task, now))
	case t.State.Terminal():
		if r.tasks[t.ID] == w {
			delete(r.tasks, t.ID)
		}
	default:
		w.task, w.nextPoll = t, r.v.nextPoll(t, now)
	}
}

// purge forgets old tasks from time to time.
func (r *poller) purge(ctx context.Context, now time.Time) {
	if now.Sub(r.purged) < purgeEvery {
		return
	}
	r.purged = now
	r.v.mu.Lock()
	for id, last := range r.v.polled { // of tasks that others have ended, too
		if r.v.g.options.Now().Sub(last) >= purgeEvery {
			delete(r.v.polled, id)
		}
	}
	r.v.mu.Unlock()
	err := func() (err error) {
		defer guard(&err)
		_, err = r.v.store.Purge(ctx, now)
		return err
	}()
	if err != nil && ctx.Err() == nil {
		r.v.g.options.Logger.Warn("old videos were not forgotten", "error", err)
	}
}
