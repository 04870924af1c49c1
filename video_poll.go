package gateway

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/hop"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// find is an account's task; the 404 of the API if it has none.
func (v *videos) find(ctx context.Context, account, id string) (_ *video.Task, err error) {
	defer guard(&err)
	t, err := v.store.Find(ctx, account, id)
	if err != nil {
		return nil, storeError(err)
	}
	if t == nil {
		return nil, video.ErrNotFound(id)
	}
	return t, nil
}

// show is an account's task, asked after if that was not done for a while. A
// task whose upstream does not answer is shown as it is known.
func (v *videos) show(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := v.find(ctx, account, id)
	if err != nil || !v.due(t, v.g.options.Video.Poll) {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if fresh, err := v.refresh(ctx, t, v.g.options.Video.Poll); err == nil {
		return fresh, nil
	}
	return t, nil
}

// showTimeout is how long a caller waits for an upstream's word of a task.
const showTimeout = 5 * time.Second

// due reports whether a task is open and was not asked after for an interval.
func (v *videos) due(t *video.Task, interval time.Duration) bool {
	if t.State.Terminal() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.overdue(t, interval)
}

// overdue is due of an open task; the caller holds the lock.
func (v *videos) overdue(t *video.Task, interval time.Duration) bool {
	if last, here := v.polled[t.ID]; here {
		return v.g.options.Now().Sub(last) >= interval
	}
	last := t.PolledAt
	if last.IsZero() {
		last = t.CreatedAt
	}
	return v.clock.last().Sub(last) >= interval
}

// refresh asks how a task goes. Callers who ask at the same time share one look;
// one who comes when it has just ended gets what it found.
func (v *videos) refresh(ctx context.Context, t *video.Task, interval time.Duration) (*video.Task, error) {
	v.mu.Lock()
	r, running := v.polling[t.ID]
	if !running && !v.overdue(t, interval) {
		v.mu.Unlock()
		return v.find(ctx, t.Account, t.ID)
	}
	if !running {
		r = &pollResult{done: make(chan struct{})}
		v.polling[t.ID] = r
		go v.poll(context.WithoutCancel(ctx), t, r)
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		return r.task, r.err
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
}

// pollTimeout bounds one question to an upstream.
const pollTimeout = 30 * time.Second

// waitForPolls waits for the looks that are under way. Others may begin meanwhile, by
// callers who ask.
func (v *videos) waitForPolls() {
	v.mu.Lock()
	looks := slices.Collect(maps.Values(v.polling))
	v.mu.Unlock()
	for _, r := range looks {
		<-r.done
	}
}

func (v *videos) poll(ctx context.Context, t *video.Task, r *pollResult) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r.task, r.err = v.advance(ctx, t)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.polling, t.ID)
	v.polled[t.ID] = v.g.options.Now() // also of one that ended: who read it before must not ask again
	close(r.done)
}

// submitTimeout is how long a submission may take: one that is older was made by a
// process that is gone.
const submitTimeout = time.Hour

// advance takes a task one step on, if there is one.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer guard(&err)
	now, err := v.clock.now(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	if m, ended := t.Expire(now); ended {
		if t.UpstreamID != "" { // a last look, so that a success that came too late is reported
			if data, err := v.askUpstream(ctx, t); err == nil {
				if last, err := t.Advance(data, now); err == nil {
					m = last
				}
			}
		}
		return v.commit(ctx, t, m)
	}
	switch {
	case t.State == video.Submitting && now.Sub(t.CreatedAt) > submitTimeout:
		return v.commit(ctx, t, video.Transition{Task: t.MarkUnknown("", now), Changed: true})
	case t.State == video.Submitting, t.State == video.Unknown:
		return t, nil // there is nobody to ask
	}
	data, err := v.askUpstream(ctx, t)
	if err != nil {
		return nil, err
	}
	m, err := t.Advance(data, now)
	if m.UnknownStatus != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	if err != nil {
		return nil, err
	}
	return v.commit(ctx, t, m)
}

// askUpstream is what the task's upstream says of it.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (data []byte, err error) {
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			buf := new(bytes.Buffer)
			in := limitedReader{limit: video.MaxAnswer}
			err := in.readAll(ctx, buf, r.Body)
			data = buf.Bytes()
			return r, err
		},
	}
	v.g.observer.watchAttempts(call)
	reply, err := v.g.routes.Load().router.Do(hop.NewContext(ctx, v.g.trail), call)
	if err != nil {
		return nil, err
	}
	_ = reply.Body.Close()
	return data, nil
}

// waitFor is how long a submission with `wait` is answered at the latest.
const waitFor = time.Minute

// waited is the record of a task that its submission waits for: as it stands
// when the video is there, the time is over or the caller leaves, and at once
// where too many wait. It is never an error: the video was taken, and a caller
// who was refused now would hand it in again.
func (x *Exchange) waited(ctx context.Context, r *Result) {
	x.Leave() // nothing runs here any more
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for t, err := range x.g.videos.watch(ctx, r.task.Account, r.task.ID) {
		if err != nil {
			return // the record as it stood
		}
		r.Body = t.Record()
	}
}

// The reasons why nobody waits for a video any more, or another one does not.
var (
	errShutdown       = errors.New("the gateway is shutting down")
	errTooManyWaiting = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: 5 * time.Second,
		Message: "Too many requests are waiting for videos. The task continues; poll it later.",
	}
)

// watch yields a task as it is and at each change, until it has ended or ctx
// does. Who finds no room among those who wait gets the task as it is and
// errCrowded.
func (v *videos) watch(ctx context.Context, account, id string) iter.Seq2[*video.Task, error] {
	return func(yield func(*video.Task, error) bool) {
		t, err := v.show(ctx, account, id)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case !yield(t, nil), t.State.Terminal():
			return
		}
		most := int64(v.g.options.Video.MaxWaiting)
		if most < 0 {
			most = math.MaxInt64
		}
		if !v.waiting.Take(1, most) {
			yield(nil, errTooManyWaiting)
			return
		}
		defer v.waiting.Give(1)
		v.follow(ctx, t, yield)
	}
}

// follow yields an open task at each change.
func (v *videos) follow(ctx context.Context, t *video.Task, yield func(*video.Task, error) bool) {
	for last := t.State.Public(); ; last = t.State.Public() {
		if err := v.waitPoll(ctx); err != nil {
			yield(nil, err)
			return
		}
		var err error
		t, err = v.show(ctx, t.Account, t.ID)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case t.State.Public() != last && !yield(t, nil), t.State.Terminal():
			return
		}
	}
}

// waitPoll is the time between two looks of one who waits. The error is why there
// is no further look.
func (v *videos) waitPoll(ctx context.Context) error {
	timer := time.NewTimer(v.g.options.Video.Poll)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if v.g.Draining() {
		return fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errShutdown)
	}
	return nil
}

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
			r.v.g.options.Logger.Warn("claiming open video tasks failed", "error", err)
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
			r.v.g.options.Logger.Warn("polling video task failed", "task", w.task.ID, "channel", w.task.Channel, "error", redactError(err))
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
		r.v.g.options.Logger.Warn("purging expired video tasks failed", "error", err)
	}
}

// taskClock is the clock of the store of tasks, read now and then and extrapolated
// in between by this process's own time. The times of tasks go by it, so that a
// process whose wall clock is wrong ends no task of another's. Without a store that
// has one it is the process's clock. It is safe for concurrent use.
type taskClock struct {
	store video.Clock // nil for none
	own   func() time.Time

	mu     sync.Mutex
	stored time.Time // of the store's clock, when it was read last
	at     time.Time // of the process's clock then
	known  bool
}

// clockEvery is how often the store's clock is read at most.
const clockEvery = 10 * time.Second

// now is the time. The error says that the store's clock was never read, and is
// away.
func (c *taskClock) now(ctx context.Context) (time.Time, error) {
	if c.store == nil {
		return c.own(), nil
	}
	c.mu.Lock()
	fresh := c.known && c.own().Sub(c.at) < clockEvery
	c.mu.Unlock()
	if fresh {
		return c.last(), nil
	}
	before := c.own()
	read, err := c.ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stored, c.at, c.known = read, before, true
	case !c.known:
		return time.Time{}, err
	}
	return c.stored.Add(c.own().Sub(c.at)), nil
}

func (c *taskClock) ask(ctx context.Context) (_ time.Time, err error) {
	defer guard(&err)
	return c.store.Now(ctx)
}

// read is now where nobody can be told that the store's clock is away; then it is
// last.
func (c *taskClock) read() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	if now, err := c.now(ctx); err == nil {
		return now
	}
	return c.last()
}

// last is the time as far as it is known, without a question to the store.
func (c *taskClock) last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.own()
	}
	return c.stored.Add(c.own().Sub(c.at))
}
