package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// DebugLog is an Observer that writes a line for each attempt and event, at level
// debug: details that nobody wants of every request for long. Of each kind it
// writes so many a second, and then says how many it has left out. Like the line
// of a request its lines hold no prompt, key or vendor's text.
type DebugLog struct {
	Logger    *slog.Logger     // required
	PerSecond int              // lines of each kind; zero means 10
	Now       func() time.Time // time.Now if nil; by it lines are counted

	mu    sync.Mutex
	kinds map[string]*sample
}

// sample counts the lines of one kind in one second.
type sample struct {
	second  int64
	written int
	left    int // out, since the last line
}

// Observer is what Options.Observe takes. The DebugLog must not be copied.
func (d *DebugLog) Observer() Observer {
	return Observer{Attempted: d.attempted, Event: d.event}
}

func (d *DebugLog) attempted(ctx context.Context, a AttemptEvent) {
	d.line(ctx, "attempt", func(attrs []slog.Attr) []slog.Attr {
		attrs = append(attrs, slog.String("request_id", a.RequestID), slog.String("op", string(a.Op)), slog.String("channel", a.Channel),
			slog.String("model", clip(a.Model)), slog.Time("started", a.Started), slog.Duration("took", a.Duration))
		if a.Code != "" {
			attrs = append(attrs, slog.Int("status", a.Status), slog.String("error", a.Error))
		}
		return attrs
	})
}

func (d *DebugLog) event(ctx context.Context, e Event) {
	d.line(ctx, e.Kind(), func(attrs []slog.Attr) []slog.Attr {
		switch e := e.(type) {
		case TaskMoved:
			return append(attrs, slog.String("task", e.Task), slog.String("request_id", e.RequestID), slog.String("account", e.Account),
				slog.String("channel", e.Channel), slog.String("from", string(e.From)), slog.String("to", string(e.To)), slog.Duration("age", e.Age))
		case NoticeTried:
			return append(attrs, slog.String("id", e.ID), slog.String("account", e.Account), slog.String("outcome", e.Outcome),
				slog.Int("status", e.Status), slog.Int("tries", e.Tries), slog.Bool("final", e.Final), slog.Duration("took", e.Duration))
		case CaptureRetried:
			return append(attrs, slog.String("request_id", e.RequestID), slog.String("account", e.Account), slog.String("state", e.State),
				slog.Int("tries", e.Tries), slog.String("code", string(e.Code)))
		}
		return attrs
	})
}

// line writes one line, if this second has room for another of its kind.
func (d *DebugLog) line(ctx context.Context, kind string, attrs func([]slog.Attr) []slog.Attr) {
	if !d.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	left, ok := d.takeLine(kind)
	if !ok {
		return
	}
	all := attrs(make([]slog.Attr, 0, 8))
	if left > 0 {
		all = append(all, slog.Int("left_out", left))
	}
	d.Logger.LogAttrs(ctx, slog.LevelDebug, kind, all...)
}

// takeLine takes room for a line, and tells how many were left out before it.
func (d *DebugLog) takeLine(kind string) (left int, ok bool) {
	now, most := time.Now, d.PerSecond
	if d.Now != nil {
		now = d.Now
	}
	if most <= 0 {
		most = 10
	}
	second := now().Unix()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.kinds[kind]
	if s == nil {
		if d.kinds == nil {
			d.kinds = make(map[string]*sample)
		}
		s = new(sample)
		d.kinds[kind] = s
	}
	if s.second != second {
		s.second, s.written = second, 0
	}
	if s.written >= most {
		s.left++
		return 0, false
	}
	s.written++
	left, s.left = s.left, 0
	return left, true
}
