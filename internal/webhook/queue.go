package webhook

import (
	"net/url"
	"strings"
	"time"
)

// mostWaiting is how many notices wait for one receiver. More are left alone until
// their leases end.
const mostWaiting = 1024

// task is a notice that is leased.
type task struct {
	notice Notice
	host   string
	until  time.Time
}

// queue is what waits for a worker: one line for each receiver, and receivers take
// turns. It is used by one goroutine.
type queue struct {
	idle    int // workers
	perHost int
	lines   map[string]*line
	ready   []*line // those of which a task may start
}

// line is what waits for one receiver.
type line struct {
	host    string
	waiting []task
	running int
	ready   bool // it is in the queue's list
}

func newQueue(workers, perHost int) *queue {
	return &queue{idle: workers, perHost: perHost, lines: make(map[string]*line)}
}

// host is the receiver of an address.
func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// hungry reports whether a worker is idle and nothing is there for it.
func (q *queue) hungry() bool { return q.idle > 0 && len(q.ready) == 0 }

// put adds a task, unless too many wait for its receiver.
func (q *queue) put(t task, now time.Time) {
	l := q.lines[t.host]
	if l == nil {
		l = &line{host: t.host}
		q.lines[t.host] = l
	}
	for len(l.waiting) > 0 && l.waiting[0].until.Before(now) {
		l.pop()
	}
	if len(l.waiting) < mostWaiting {
		l.waiting = append(l.waiting, t)
	}
	q.tell(l)
}

// next takes the task that is to start, if there is one and a worker for it. One
// whose lease ends before the given time is left to whoever leases it next.
func (q *queue) next(until time.Time) (task, bool) {
	for q.idle > 0 && len(q.ready) > 0 {
		l := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		l.ready = false
		for len(l.waiting) > 0 {
			t := l.pop()
			if t.until.Before(until) {
				continue
			}
			q.idle--
			l.running++
			q.tell(l)
			return t, true
		}
		q.tell(l)
	}
	return task{}, false
}

// done frees the worker of a try.
func (q *queue) done(host string) {
	q.idle++
	if l := q.lines[host]; l != nil {
		l.running--
		q.tell(l)
	}
}

// tell notes whether a task of the line may start, and forgets an empty line.
func (q *queue) tell(l *line) {
	switch {
	case len(l.waiting) == 0 && l.running == 0 && !l.ready:
		delete(q.lines, l.host)
	case len(l.waiting) > 0 && l.running < q.perHost && !l.ready:
		l.ready = true
		q.ready = append(q.ready, l)
	}
}

func (l *line) pop() task {
	t := l.waiting[0]
	l.waiting[0] = task{}
	l.waiting = l.waiting[1:]
	return t
}
