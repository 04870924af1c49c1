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
	switch {
	case err != nil:
		return nil, storeError(err)
	case t == nil:
		return nil, video.ErrNotFound(id)
	}
	return t, nil
}

// The time-outs of one poll, and of a client that waits for it.
const (
	pollTimeout = 30 * time.Second
	showTimeout = 5 * time.Second
)

// show is a task of the account, polled if that was not done for a while. If its
// upstream does not answer, it is the task as it was last seen.
func (v *videos) show(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := v.find(ctx, account, id)
	if err != nil || t.State.Terminal() {
		return t, err
	}
	v.mu.Lock()
	due := v.overdue(t, v.g.options.Video.Poll)
	v.mu.Unlock()
	if !due {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if fresh, err := v.refresh(ctx, t, v.g.options.Video.Poll); err == nil {
		return fresh, nil
	}
	return t, nil
}

// overdue reports whether an open task was not polled for an interval. The caller
// holds the lock.
func (v *videos) overdue(t *video.Task, interval time.Duration) bool {
	if last, here := v.polled[t.ID]; here {
		return v.g.options.Now().Sub(last) >= interval
	}
	last := t.PolledAt
	if last.IsZero() {
		last = t.CreatedAt
	}
	return v.clock.Last().Sub(last) >= interval
}

// pollResult is one poll of an upstream, for which several callers may wait.
type pollResult struct {
	done chan struct{}
	task *video.Task
	err  error
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

// poll polls a task once, for all callers that wait for r.
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

// waitForPolls waits for the polls that run now. Clients may start others
// meanwhile.
func (v *videos) waitForPolls() {
	v.mu.Lock()
	polls := slices.Collect(maps.Values(v.polling))
	v.mu.Unlock()
	for _, r := range polls {
		<-r.done
	}
}

// advance brings a task one step on: by its time, or by what its upstream says. One
// whose time is over is polled a last time, so that a success that came too late is
// reported.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer guard(&err)
	now, err := v.clock.Now(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	m := videoapi.Apply(t, videoapi.Event{Kind: videoapi.Tick}, now)
	if t.UpstreamID == "" { // there is no upstream to poll
		return v.commit(ctx, t, m)
	}
	report, err := v.askUpstream(ctx, t)
	switch {
	case err == nil:
		m = videoapi.Apply(t, videoapi.Event{Kind: videoapi.Polled, Report: report}, now)
	case !m.Changed:
		return nil, err
	}
	if m.UnknownStatus != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	return v.commit(ctx, t, m)
}

// askUpstream is what the upstream says of the task.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (r videoapi.Report, err error) {
	var data bytes.Buffer
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			data.Reset()
			in := limitedReader{limit: videoapi.MaxAnswer}
			return r, in.readAll(ctx, &data, r.Body)
		},
	}
	v.g.observer.watchAttempts(call)
	reply, err := v.g.routes.Load().router.Do(via.NewContext(ctx, v.g.trail), call)
	if err != nil {
		return r, err
	}
	_ = reply.Body.Close()
	return videoapi.ReadPoll(t, data.Bytes())
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
		if err != nil {
			yield(nil, err)
			return
		}
		if !yield(t, nil) || t.State.Terminal() {
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
		for !t.State.Terminal() {
			last := t.State.Public()
			if err = v.waitPoll(ctx); err == nil {
				t, err = v.show(ctx, account, t.ID)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if t.State.Public() != last && !yield(t, nil) {
				return
			}
		}
	}
}

// waitPoll waits between two polls of a caller that watches a task. Its error says
// why there is no further poll.
func (v *videos) waitPoll(ctx context.Context) error {
	select {
	case <-time.After(v.g.options.Video.Poll):
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if v.g.Draining() {
		return fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errShutdown)
	}
	return nil
}

// How a process polls its tasks.
const (
	leaseTime   = time.Minute     // others take a task over that was not renewed for so long
	claimEvery  = leaseTime / 4   // tasks are claimed, and leases renewed
	pollBatch   = time.Second / 4 // tasks that are due so near to each other are polled together
	pollsAtOnce = 256
	perChannel  = 64    // of them, so that a vendor who does not answer holds up no other
	mostTasks   = 2_000 // that are claimed at once: what one node leaves, another takes
	purgeEvery  = time.Hour
)

// leasedTask is a task that this process polls.
type leasedTask struct {
	task     *video.Task
	nextPoll time.Time // when it is polled
	busy     bool
}

// poller is the state of run.
type poller struct {
	*videos
	running         sync.WaitGroup
	claimed, purged time.Time

	mu    sync.Mutex
	tasks map[string]*leasedTask
	busy  int // polls that run, also of tasks that another process has now
}

// run polls the tasks of this process until ctx ends: it leases open tasks from
// the store, polls those that are due, ends those whose time is over, retries
// pending writes and purges old records.
func (v *videos) run(ctx context.Context) {
	p := &poller{videos: v, tasks: map[string]*leasedTask{}}
	p.running.Go(func() { v.writes.Run(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-v.wake:
		case <-time.After(p.round(ctx)):
		}
	}
	p.running.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.options.SettleTimeout)
	defer cancel()
	v.writes.Drain(last) // what an upstream took must be stored
	v.waitForPolls()
}

// round does what is due now. It returns the time until the next round.
func (p *poller) round(ctx context.Context) time.Duration {
	now, err := p.clock.Now(ctx)
	if err != nil { // it was never read: no task can be ended by it
		p.g.options.Logger.Warn("reading the clock of the store of videos failed", "error", err)
		return time.Second
	}
	if now.Sub(p.claimed) >= claimEvery {
		p.claim(ctx, now)
	}
	p.addSubmitted(now)
	if now.Sub(p.purged) >= purgeEvery {
		p.purge(ctx, now)
	}
	due, wait := p.due(now)
	for _, w := range due {
		p.running.Go(func() { p.pollTask(ctx, w) })
	}
	return wait
}

// claim leases tasks and drops those that another process has now.
func (p *poller) claim(ctx context.Context, now time.Time) {
	p.claimed = now
	tasks, err := func() (_ []*video.Task, err error) {
		defer guard(&err)
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		return p.store.Claim(ctx, p.owner, p.g.options.Now().Add(leaseTime), mostTasks)
	}()
	if err != nil {
		if ctx.Err() == nil {
			p.g.options.Logger.Warn("claiming open video tasks failed", "error", err)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.tasks
	p.tasks = make(map[string]*leasedTask, len(tasks))
	for _, t := range tasks {
		p.tasks[t.ID] = p.merge(before[t.ID], t, now)
	}
}

// addSubmitted adds the tasks that this process has submitted since the last call;
// the next claim leases them.
func (p *poller) addSubmitted(now time.Time) {
	p.videos.mu.Lock()
	fresh := p.submittedTasks
	p.submittedTasks = nil
	p.videos.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range fresh {
		p.tasks[t.ID] = p.merge(p.tasks[t.ID], t, now)
	}
}

// merge is the known state of a task, or a new one if the task has moved on since:
// a submission may have been claimed before its upstream was known.
func (p *poller) merge(known *leasedTask, t *video.Task, now time.Time) *leasedTask {
	if known != nil && (known.busy || known.task.Version >= t.Version) {
		return known
	}
	return &leasedTask{task: t, nextPoll: videoapi.NextPoll(t, now, p.g.options.Video.Poll)}
}

// due takes the tasks to poll now, the longest overdue first and of each channel a
// limited number, and says how long it is until the next one is due.
func (p *poller) due(now time.Time) (due []*leasedTask, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched.Store(int64(len(p.tasks)))
	wait = claimEvery
	asked := map[string]int{} // by channel
	for _, w := range p.tasks {
		switch left := w.nextPoll.Sub(now); {
		case w.busy:
			asked[w.task.Channel]++
			left = p.interval(w.task, now)
			wait = min(wait, left)
		case left > 0:
			wait = min(wait, left)
		default:
			due = append(due, w)
			wait = min(wait, p.interval(w.task, now))
		}
	}
	slices.SortFunc(due, func(a, b *leasedTask) int { return a.nextPoll.Compare(b.nextPoll) })
	due = slices.DeleteFunc(due, func(w *leasedTask) bool {
		if p.busy >= pollsAtOnce || asked[w.task.Channel] >= perChannel {
			wait = pollBatch
			return true
		}
		asked[w.task.Channel]++
		p.busy++
		w.busy = true
		return false
	})
	return due, max(wait, pollBatch)
}

// interval is the time between two polls of a task.
func (p *poller) interval(t *video.Task, now time.Time) time.Duration {
	return videoapi.PollInterval(t, now, p.g.options.Video.Poll)
}

// pollTask polls one task and sets its next time.
func (p *poller) pollTask(ctx context.Context, w *leasedTask) {
	known := w.task // only this poll changes it, while it is busy
	t, err := p.refresh(ctx, known, 0)
	if err != nil {
		if ctx.Err() == nil {
			p.g.options.Logger.Warn("polling video task failed", "task", known.ID, "channel", known.Channel, "error", redactError(err))
		}
		if stored, err := p.find(ctx, known.Account, known.ID); err == nil {
			known = stored // another may have taken it further
		}
	}
	now := p.clock.Last()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	w.busy = false
	switch {
	case err != nil:
		w.task, w.nextPoll = known, now.Add(p.interval(known, now))
	case t.State.Terminal():
		if p.tasks[t.ID] == w {
			delete(p.tasks, t.ID)
		}
	default:
		w.task, w.nextPoll = t, videoapi.NextPoll(t, now, p.g.options.Video.Poll)
	}
}

// purge deletes old records.
func (p *poller) purge(ctx context.Context, now time.Time) {
	p.purged = now
	p.videos.mu.Lock()
	maps.DeleteFunc(p.polled, func(_ string, last time.Time) bool { // of tasks that others have ended, too
		return p.g.options.Now().Sub(last) >= purgeEvery
	})
	p.videos.mu.Unlock()
	err := func() (err error) {
		defer guard(&err)
		_, err = p.store.Purge(ctx, now)
		return err
	}()
	if err != nil && ctx.Err() == nil {
		p.g.options.Logger.Warn("purging expired video tasks failed", "error", err)
	}
}
