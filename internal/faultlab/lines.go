package faultlab

import (
	"context"
	"log/slog"
	"sync"
)

// lines counts the log lines of requests. It is a slog.Handler.
type lines struct {
	mu       sync.Mutex
	requests map[string]int    // lines by request
	charges  map[string]string // as the lines tell them
	videos   map[string]int    // lines of ended videos by request
}

func newLines() *lines {
	return &lines{requests: map[string]int{}, charges: map[string]string{}, videos: map[string]int{}}
}

// Enabled is true for whatever is not for debugging.
func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle counts a line.
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "request_id" && r.Message == "request":
			l.requests[a.Value.String()]++
		case a.Key == "request_id" && r.Message == "video":
			l.videos[a.Value.String()]++
		}
		return true
	})
	if r.Message == "request" {
		l.charge(r)
	}
	return nil
}

func (l *lines) charge(r slog.Record) {
	id, charge := "", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "request_id":
			id = a.Value.String()
		case "charge":
			charge = a.Value.String()
		}
		return true
	})
	l.charges[id] = charge
}

// WithAttrs is the handler itself: the gateway's lines are counted by their own
// fields.
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup is the handler itself.
func (l *lines) WithGroup(string) slog.Handler { return l }
