package main

import (
	"context"
	"time"
)

// caretaker reloads beside the loop that hears the signals: neither a slow store
// nor a file system that is away may keep a server from ending. It does one thing
// at a time; of the hang-ups meanwhile one is remembered. It belongs to that loop.
type caretaker struct {
	house *house
	busy  bool
	again bool          // it was told to reload while it was busy
	done  chan struct{} // has room for one
}

func newCaretaker(h *house) *caretaker { return &caretaker{house: h, done: make(chan struct{}, 1)} }

// begin does something that may take long; then done says so.
func (c *caretaker) begin(do func()) {
	c.busy = true
	go func() {
		do()
		c.done <- struct{}{}
	}()
}

// idle is ticks, unless the caretaker is busy.
func (c *caretaker) idle(ticks <-chan time.Time) <-chan time.Time {
	if c.busy {
		return nil
	}
	return ticks
}

// hangUp answers SIGHUP, after what is under way: the file may have changed since
// that was read.
func (c *caretaker) hangUp(ctx context.Context) {
	if c.again = c.busy; !c.again {
		c.begin(func() { c.house.hangUp(ctx) })
	}
}

// ended takes note of done.
func (c *caretaker) ended(ctx context.Context) {
	if c.busy = false; c.again {
		c.hangUp(ctx)
	}
}

// hangUp reloads because somebody said so.
func (h *house) hangUp(ctx context.Context) {
	if h.file == "" {
		h.logger.Warn("there is no config file to reload")
		return
	}
	_ = h.reload(ctx) // logged
}

// follow reloads if the file is another.
func (h *house) follow(ctx context.Context) {
	if h.watch.changed() {
		_ = h.reload(ctx) // logged
	}
}
