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
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// find is a task of the account; a 404 if it has none by that id.
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

// show is a task of the account, polled if that was not done for a while. If its
// upstream does not answer, it is the task as it was last seen.
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

// showTimeout is how long a client waits for the poll of a task.
const showTimeout = 5 * time.Second

// due reports whether a task is open and was not polled for an interval.
func (v *videos) due(t *video.Task, interval time.Duration) bool {
	if t.State.Terminal() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.overdue(t, interval)
}

// overdue is due for an open task; the caller holds the lock.
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

// refresh polls a task. Callers that come while a poll runs share its result.
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

// pollTimeout is the time-out of one poll.
const pollTimeout = 30 * time.Second

// waitForPolls waits for the polls that run now. Clients may start others
// meanwhile.
func (v *videos) waitForPolls() {
	v.mu.Lock()
	looks := slices.Collect(maps.Values(v.polling))
	v.mu.Unlock()
	for _, r := range looks {
		<-r.done
	}
}

// poll asks the task's upstream once, for all callers that wait for r.
func (v *videos) poll(ctx context.Context, t *video.Task, r *pollResult) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r.task, r.err = v.advance(ctx, t)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.polling, t.ID)
	v.polled[t.ID] = v.g.options.Now() // also of one that ended: a caller that read it before must not poll again
	close(r.done)
}

// submitTimeout is how long a submission may take: one that is older was made by a
// process that is gone.
const submitTimeout = time.Hour

// advance brings a task one step on: it expires it, gives up a submission that has
// no result, or polls its upstream.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer guard(&err)
	now, err := v.clock.now(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	if m, ended := videoapi.Expire(t, now); ended {
		if t.UpstreamID != "" { // a last look, so that a success that came too late is reported
			if data, err := v.askUpstream(ctx, t); err == nil {
				if last, err := videoapi.Advance(t, data, now); err == nil {
					m = last
				}
			}
		}
		return v.commit(ctx, t, m)
	}
	switch {
	case t.State == video.Submitting && now.Sub(t.CreatedAt) > submitTimeout:
		return v.commit(ctx, t, videoapi.Transition{Task: videoapi.MarkUnknown(t, "", now), Changed: true})
	case t.State == video.Submitting, t.State == video.Unknown:
		return t, nil // no upstream to poll
	}
	data, err := v.askUpstream(ctx, t)
	if err != nil {
		return nil, err
	}
	m, err := videoapi.Advance(t, data, now)
	if m.UnknownStatus != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	if err != nil {
		return nil, err
	}
	return v.commit(ctx, t, m)
}

// askUpstream is the upstream's record of the task.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (data []byte, err error) {
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			buf := new(bytes.Buffer)
			in := limitedReader{limit: videoapi.MaxAnswer}
			err := in.readAll(ctx, buf, r.Body)
			data = buf.Bytes()
			return r, err
		},
	}
	v.g.observers.watchAttempts(call)
	reply, err := v.g.routes.Load().router.Do(via.NewContext(ctx, v.g.trail), call)
	if err != nil {
		return nil, err
	}
	_ = reply.Body.Close()
	return data, nil
}

// waitFor is how long a submission with `wait` is answered at the latest.
const waitFor = time.Minute

// waited replaces the record of a submission with `wait` by the one at the end of
// its task, or by the last one seen when the time is over or the client leaves,
// and leaves it if too many wait. That is never an error: the video was taken, and
// a client that got an error would submit it again.
func (x *exchange) waited(ctx context.Context, r *Response) {
	x.release() // nothing runs here any more
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for t, err := range x.g.videos.watch(ctx, r.task.Account, r.task.ID) {
		if err != nil {
			return // the record as it stood
		}
		r.Body = videoapi.Record(t)
	}
}

// The reasons why a caller does not wait for a video, or not any more.
var (
	errShutdown       = errors.New("the gateway is shutting down")
	errTooManyWaiting = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: 5 * time.Second,
		Message: "Too many requests are waiting for videos. The task continues; poll it later.",
	}
)

// watch yields a task as it is and at each change, until it or ctx has ended. If
// too many callers wait, it yields the task as it is and errTooManyWaiting.
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

// waitPoll waits between two polls of a caller that watches a task. Its error says
// why there is no further poll.
func (v *videos) waitPoll(ctx context.Context) error {
	timer := time.NewTimer(v.g.options.Video.Poll)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if v.g.ShuttingDown() {
		return fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errShutdown)
	}
	return nil
}

// How a process polls its tasks.
const (
	leaseTime       = time.Minute     // others take a task over that was not renewed for so long
	claimEvery      = leaseTime / 4   // tasks are claimed, and leases renewed
	retryAfter      = time.Second     // of one try to keep a step the next, where the store was away
	pollBatch       = time.Second / 4 // tasks that are due so near to each other are polled together
	pollsAtOnce     = 256
	perChannel      = 64    // of them, so that a vendor who does not answer holds up no other
	mostTasks       = 2_000 // that are claimed at once: what one node leaves, another takes
	purgeEvery      = time.Hour
	maxPollInterval = time.Minute // between two polls of a task
)

// interval is the time between two polls of a task: a twentieth of its age, within
// bounds.
func (v *videos) interval(t *video.Task, now time.Time) time.Duration {
	poll := v.g.options.Video.Poll
	return min(max(now.Sub(t.CreatedAt)/20, poll), max(maxPollInterval, poll))
}

// leasedTask is a task that this process polls.
type leasedTask struct {
	task     *video.Task
	nextPoll time.Time // when it is polled
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

// run polls the tasks of this process until ctx ends: it leases open tasks from
// the store, polls those that are due, ends those whose time is over, retries
// pending writes and purges old records.
func (v *videos) run(ctx context.Context) {
	r := &poller{v: v, tasks: map[string]*leasedTask{}, slots: make(chan struct{}, pollsAtOnce)}
	defer v.waitForPolls()
	defer r.running.Wait()
	defer func() { // what an upstream took must be stored
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.options.SettleTimeout)
		defer cancel()
		v.retryPending(last)
	}()
	timer := time.NewTimer(claimEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		now, err := v.clock.now(ctx)
		if err != nil { // it was never read: no task can be ended by it
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

// addSubmitted adds the tasks that this process has submitted since the last call;
// the next claim leases them. owing says that there are pending writes.
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

// merge is the known state of a task, or a new one if the task has moved on since:
// a submission may have been claimed before its upstream was known.
func (r *poller) merge(known *leasedTask, t *video.Task, now time.Time) *leasedTask {
	if known != nil && (known.busy || known.task.Version >= t.Version) {
		return known
	}
	return &leasedTask{task: t, nextPoll: r.v.nextPoll(t, now)}
}

// claim leases tasks and drops those that another process has now.
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

// claimTasks leases open tasks in the store, for leaseTime.
func (r *poller) claimTasks(ctx context.Context) (tasks []*video.Task, err error) {
	defer guard(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return r.v.store.Claim(ctx, r.v.owner, r.v.g.options.Now().Add(leaseTime), mostTasks)
}

// nextPoll is when a task is polled next: after its interval, but just before its
// time is over, so that a success in time is seen in time.
func (v *videos) nextPoll(t *video.Task, now time.Time) time.Time {
	switch t.State {
	case video.Submitting:
		return t.CreatedAt.Add(submitTimeout + time.Second)
	case video.Unknown:
		return videoapi.End(t)
	}
	next, last := now.Add(v.interval(t, now)), videoapi.End(t).Add(-v.g.options.Video.Poll)
	switch {
	case !videoapi.End(t).After(next) && now.Before(last):
		return last // what succeeded in time is seen in time
	case videoapi.End(t).Before(next):
		return videoapi.End(t)
	}
	return next
}

// pollDue starts a poll of each task that is due. It returns the time until the
// next one is due: 0 if it could not start all of them.
func (r *poller) pollDue(ctx context.Context, now time.Time) time.Duration {
	due, wait := r.due(now)
	full := time.NewTimer(pollBatch)
	defer full.Stop()
	for i, w := range due {
		select {
		case r.slots <- struct{}{}:
			r.running.Go(func() { r.pollTask(ctx, w) })
		case <-full.C: // meanwhile tasks are claimed again, however slow the upstreams are
			r.putBack(due[i:])
			return 0
		case <-ctx.Done():
			return 0
		}
	}
	return max(wait, pollBatch)
}

// due are the tasks to poll now, the longest overdue first, and the time until the
// next one. Of each channel it takes a limited number.
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

// putBack returns tasks that were due and not polled.
func (r *poller) putBack(due []*leasedTask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range due {
		w.busy = false
	}
}

// pollTask polls one task and sets its next time.
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

// purge deletes old records once in a while.
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

// taskClock is the clock of the store of tasks, read now and then, and
// extrapolated in between by this process's own. Tasks expire by it, so that a
// process whose clock is wrong ends no task of another. If the store has no clock,
// it is the process's own. It is safe for concurrent use.
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

// now is the time. Its error says that the store's clock was never read, and
// cannot be read now.
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

// ask reads the store's clock.
func (c *taskClock) ask(ctx context.Context) (_ time.Time, err error) {
	defer guard(&err)
	return c.store.Now(ctx)
}

// read is now for a caller that cannot handle an error: it falls back to last.
func (c *taskClock) read() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	if now, err := c.now(ctx); err == nil {
		return now
	}
	return c.last()
}

// last is the extrapolated time, without asking the store.
func (c *taskClock) last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.own()
	}
	return c.stored.Add(c.own().Sub(c.at))
}
