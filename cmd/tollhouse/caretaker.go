package main

import (
	"context"
	"time"
)

// caretaker reloads beside the loop that hears the signals: neither a slow store
// nor a file system that is away may keep a server from ending. It does one thing
// at a time; of the hang-ups meanwhile one is remembered. It belongs to that loop.
type reloader struct {
	app *app
	busy  bool
	pending bool          // it was told to reload while it was busy
	done  chan struct{} // has room for one
}

func newReloader(h *app) *reloader { return &reloader{app: h, done: make(chan struct{}, 1)} }

// begin does something that may take long; then done says so.
func (c *reloader) start(do func()) {
	c.busy = true
	go func() {
		do()
		c.done <- struct{}{}
	}()
}

// idle is ticks, unless the caretaker is busy.
func (c *reloader) whenIdle(ticks <-chan time.Time) <-chan time.Time {
	if c.busy {
		return nil
	}
	return ticks
}

// hangUp answers SIGHUP, after what is under way: the file may have changed since
// that was read.
func (c *reloader) request(ctx context.Context) {
	if c.pending = c.busy; !c.pending {
		c.start(func() { c.app.reloadOnSignal(ctx) })
	}
}

// ended takes note of done.
func (c *reloader) finished(ctx context.Context) {
	if c.busy = false; c.pending {
		c.request(ctx)
	}
}

// hangUp reloads because somebody said so.
func (h *app) reloadOnSignal(ctx context.Context) {
	if h.file == "" {
		h.logger.Warn("there is no config file to reload")
		return
	}
	_ = h.reload(ctx) // logged
}

// follow reloads if the file is another.
func (h *app) reloadIfChanged(ctx context.Context) {
	if h.files.changed() {
		_ = h.reload(ctx) // logged
	}
}
