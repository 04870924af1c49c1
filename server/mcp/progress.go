package mcp

import (
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The least time between two notices of progress, and how often one comes where
// nothing is known but that time passes.
const (
	noticeEvery = 250 * time.Millisecond
	tickEvery   = 5 * time.Second
)

// token is what the client wants notices of the progress under; nil for none.
func (c *call) token() any { return c.request.Params.GetProgressToken() }

// notify tells the client how far the call is. The numbers of one call must
// grow. A client that does not take it loses nothing.
func (c *call) notify(progress float64, message string) {
	if c.token() == nil {
		return
	}
	_ = c.request.Session.NotifyProgress(c.ctx, &sdk.ProgressNotificationParams{
		ProgressToken: c.token(), Progress: progress, Message: message,
	})
}

// ticking notifies of the time that passes until done is called, after which no
// notice leaves any more. A call that streams has other notices.
func (c *call) ticking() (done func()) {
	if c.args.stream {
		return func() {}
	}
	return c.tick("waiting for the model")
}

// tick notifies every few seconds that what is still so.
func (c *call) tick(what string) (done func()) {
	if c.token() == nil {
		return func() {}
	}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(tickEvery)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-c.ctx.Done():
				return
			case <-ticker.C:
				seconds := time.Since(c.began).Round(time.Second).Seconds()
				c.notify(seconds, fmt.Sprintf("%s for %.0f s", what, seconds))
			}
		}
	})
	return func() {
		close(end)
		running.Wait()
	}
}

// counter notifies of what has come, now and then.
type counter struct {
	c    *call
	n    int
	last time.Time
}

// add counts n more.
func (p *counter) add(n int) {
	p.n += n
	if now := time.Now(); n > 0 && now.Sub(p.last) >= noticeEvery {
		p.last = now
		p.c.notify(float64(p.n), fmt.Sprintf("%d characters", p.n))
	}
}
