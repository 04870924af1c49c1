package store

import (
	"encoding/hex"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/video"
)

// tasks are those that a batch has in its hands.
type tasks struct {
	known   map[string]*taskRow   // by id
	of      map[string]*taskRow   // open, by the id of their request
	open    map[ownKey]int64      // how many a key has, where that was asked for
	similar map[string][]*taskRow // that may stand in the way of the same submission, by fingerprint

	wanted   map[string]bool
	requests map[string]bool
	news     []*video.CreateTask

	touched       []*taskRow
	notices       []video.Notice
	endedRequests []any // requests whose claims end with their task
}

func newTasks() tasks {
	return tasks{
		known: map[string]*taskRow{}, of: map[string]*taskRow{}, open: map[ownKey]int64{}, similar: map[string][]*taskRow{},
		wanted: map[string]bool{}, requests: map[string]bool{},
	}
}

// checkNewTask refuses a task that must not be made. It changes nothing.
func (b *batch) checkNewTask(n *video.CreateTask) error {
	if b.tasks.known[n.Task.ID] != nil || n.Task.ID == "" {
		return fault.New(fault.InternalError, "The gateway used the id of a task twice. Nothing was charged; send the request again.")
	}
	if !n.Retried {
		for _, r := range b.tasks.similar[hex.EncodeToString(n.Task.Fingerprint[:])] {
			if r.repeats(n, b.now) {
				return video.Repeated(&r.Task)
			}
		}
	}
	if n.Most > 0 && b.tasks.open[ownKey{n.Task.Account, n.Task.Key}] >= n.Most {
		return video.TooMany(n.Most)
	}
	return nil
}

// addTask makes a task that was admitted.
func (b *batch) addTask(n *video.CreateTask, held bool) {
	r := &taskRow{Task: n.Task, noted: b.now, held: held, fresh: true}
	mark := hex.EncodeToString(r.Fingerprint[:])
	b.tasks.known[r.ID] = r
	b.tasks.similar[mark] = append(b.tasks.similar[mark], r)
	b.tasks.open[ownKey{r.Account, r.Key}]++
	b.touchTask(r)
}

// applyStep makes a step that follows.
func (b *batch) applyStep(r *taskRow, s *video.Step) {
	t, n := &r.Task, &s.Task
	if t.AcceptedAt.IsZero() && !n.AcceptedAt.IsZero() {
		r.noted = b.now
	}
	t.Channel, t.UpstreamID, t.State, t.Version = n.Channel, n.UpstreamID, n.State, n.Version
	t.AcceptedAt, t.UpdatedAt, t.ExpiresAt, t.PurgeAt, t.PolledAt = n.AcceptedAt, n.UpdatedAt, n.ExpiresAt, n.PurgeAt, n.PolledAt
	t.Answer, t.Failure = n.Answer, n.Failure
	if s.Notice != nil {
		b.tasks.notices = append(b.tasks.notices, *s.Notice)
	}
	if t.State.Terminal() {
		b.endTask(r)
	}
	b.touchTask(r)
}

// dropTask forgets a task; nil is none.
func (b *batch) dropTask(r *taskRow) {
	if r == nil || r.dropped {
		return
	}
	r.dropped = true
	if !r.State.Terminal() {
		b.endTask(r)
	}
	b.touchTask(r)
}

// endTask ends what an open task has: its place among its key's, and the claim that
// an answer did not end.
func (b *batch) endTask(r *taskRow) {
	b.tasks.open[ownKey{r.Account, r.Key}]--
	b.tasks.endedRequests = append(b.tasks.endedRequests, r.RequestID)
}

func (b *batch) touchTask(r *taskRow) {
	r.changed = true
	if !r.listed {
		r.listed = true
		b.tasks.touched = append(b.tasks.touched, r)
	}
}

// writeTasks writes what the operations decided on tasks.
func (b *batch) writeTasks() error {
	var fresh, changed, dropped []any
	for _, r := range b.tasks.touched {
		living, err := r.living()
		if err != nil {
			return err
		}
		switch {
		case r.fresh && r.dropped:
		case r.dropped:
			dropped = append(dropped, r.ID)
		case r.fresh:
			submitted, err := r.submitted()
			if err != nil {
				return err
			}
			fresh = append(append(append(fresh, submitted...), living...), "", int64(0))
		default:
			changed = append(append(changed, r.ID, r.before), living...)
		}
		r.fresh, r.changed, r.listed, r.before = false, false, false, r.Version
	}
	b.wrote = b.wrote || len(b.tasks.touched) > 0
	b.tasks.touched = nil
	if err := b.tx.execAll(b.ctx, &b.sql.insertTask, fresh); err != nil {
		return err
	}
	if err := b.tx.execAll(b.ctx, &b.sql.updateTask, changed); err != nil {
		return err
	}
	return b.tx.execAll(b.ctx, &b.sql.deleteTask, dropped)
}

// writeNotices writes the notices of the steps, due at once.
func (b *batch) writeNotices() error {
	args := make([]any, 0, len(b.tasks.notices)*b.sql.insertNotice.width)
	for i := range b.tasks.notices {
		n := &b.tasks.notices[i]
		args = append(args, n.ID, n.Account, n.TaskID, n.URL, string(n.Body), nanos(n.At), string(webhook.Waiting), int64(0), "", b.now, int64(0), "", int64(0))
	}
	return b.tx.execAll(b.ctx, &b.sql.insertNotice, args)
}
