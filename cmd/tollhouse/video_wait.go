package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tollhouse-ai/gateway/video"
)

// How often a command asks after a video: at first, and at the least.
const (
	askFirst = 2 * time.Second
	askLast  = 15 * time.Second
)

// mostMisses is how often in a row a server may fail to answer one who waits.
const mostMisses = 5

// wait asks after a video until it has ended, shows how far it is, and then the
// record.
func (a *api) wait(ctx context.Context, d *door, r *video.Response) error {
	line := a.p.progress()
	begun, misses := a.p.clock(), 0
	for !r.Status.Terminal() {
		line.say(r.ID, r.Status, a.p.clock().Sub(time.Unix(r.CreatedAt, 0)))
		pause := cmp.Or(a.p.pace, min(max(a.p.clock().Sub(begun)/20, askFirst), askLast))
		now, err := a.later(ctx, d, r.ID, pause)
		var told *errAPI
		switch {
		case ctx.Err() != nil:
			line.end()
			return fmt.Errorf("stopped waiting. The video goes on by itself: `tollhouse video wait %s` waits for it again", r.ID)
		case err == nil:
			r, misses = now, 0
			continue
		case errors.As(err, &told) && told.passing():
			d.after = told.after
		case errors.As(err, new(*errAway)):
		default:
			line.end()
			return err
		}
		if misses++; misses >= mostMisses {
			line.end()
			return fmt.Errorf("%w. The video goes on by itself: `tollhouse video wait %s` waits for it again", err, r.ID)
		}
	}
	line.end()
	return errors.Join(a.show(r), failure(r))
}

// later asks after a pause, or after the time that the server wants to be left
// alone for, if that is longer.
func (a *api) later(ctx context.Context, d *door, id string, pause time.Duration) (*video.Response, error) {
	timer := time.NewTimer(max(pause, d.after))
	defer timer.Stop()
	d.after = 0
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return a.get(ctx, d, id)
	}
}

// failure is the error of a video that is not there.
func failure(r *video.Response) error {
	switch {
	case r.Status == video.Succeeded:
		return nil
	case r.Error != nil:
		return fmt.Errorf("there is no video, and it costs nothing: %s (%s)", r.Error.Message, r.Error.Code)
	}
	return fmt.Errorf("there is no video, and it costs nothing: it is %s", r.Status)
}

// interruptible ends the context at a signal, so that a command can say what
// goes on without it.
func (p *program) interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals, release := p.notify()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); release() }
}

// progress is a line on stderr about what is waited for: on a terminal one that
// is written again and again, else a line for each change.
type progress struct {
	to       io.Writer
	terminal bool
	last     video.State
	open     bool // the line has no end yet
}

func (p *program) progress() *progress {
	terminal := p.terminal
	if terminal == nil {
		terminal = isTerminal
	}
	return &progress{to: p.stderr, terminal: terminal(p.stderr)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const clearLine = "\r\x1b[K"

// say tells how far the video is. What cannot be written is nobody's loss.
func (l *progress) say(id string, state video.State, age time.Duration) {
	switch {
	case l.terminal:
		l.open = true
		_, _ = fmt.Fprintf(l.to, "%s%s is %s (%s)", clearLine, id, state, max(age, 0).Truncate(time.Second))
	case state != l.last:
		_, _ = fmt.Fprintf(l.to, "%s is %s\n", id, state)
	}
	l.last = state
}

// end takes the line away.
func (l *progress) end() {
	if l.open {
		_, _ = fmt.Fprint(l.to, clearLine)
	}
	l.open = false
}
