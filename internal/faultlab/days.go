package faultlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/speech"
)

// days are what happens to the gateway itself until ctx ends: reloads with other
// prices, moments in which the ledger is away or every vendor fails, restarts over
// the same ledger, and money that is paid in.
func (l *Lab) days(ctx context.Context) {
	s := l.source
	for n := 0; wait(ctx, s.span(time.Second, 20*time.Second)+time.Microsecond/4); n++ {
		if err := l.topUp(n); err != nil {
			l.blame("paying in: %v", err)
		}
		if l.options.Calm {
			continue
		}
		switch s.IntN(24) {
		case 0, 1:
			l.till.away.begin(l.now()+s.span(100*time.Millisecond, 20*time.Second), pick(s, refuses, refuses, hangs, loses, slow))
		case 2:
			l.restart(ctx, s.span(0, 10*time.Second))
		case 3:
			l.storms.Store(int64(l.now() + s.span(time.Second, 50*time.Second)))
		default:
			if err := l.reload(); err != nil {
				l.blame("a reload: %v", err)
			}
		}
	}
}

// topUp pays a little into the accounts of the poor.
func (l *Lab) topUp(n int) error {
	ctx := context.Background()
	if n%20 == 0 {
		if err := l.allow(ctx); err != nil {
			return err
		}
	}
	for i := rich; i < rich+poor; i++ {
		if err := l.options.Ledger.Credit(ctx, accountOf(i), billing.One/10_000, fmt.Sprintf("top-up %d", n)); err != nil {
			return err
		}
	}
	return nil
}

// reload puts the next prices in force.
func (l *Lab) reload() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	o, err := l.routes(l.generation + 1)
	if err != nil {
		return err
	}
	if err := l.gateway.Reload(o); err != nil {
		return err
	}
	l.generation++
	return nil
}

// restart ends the gateway, with some patience for what runs, and opens another
// over the same ledger. A ledger that is away comes back before that: what was
// not durable when a gateway ends is lost with it, in memory.
func (l *Lab) restart(ctx context.Context, patience time.Duration) {
	l.turn.RLock()
	old := l.gateway
	l.turn.RUnlock()
	drain, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	context.AfterFunc(drain, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.downs = append(l.downs, l.now())
	})
	_ = old.Shutdown(drain) // its error says that the patience was not enough
	l.settleDown()
	l.stop()
	l.running.Wait()
	l.turn.Lock()
	defer l.turn.Unlock()
	if err := l.open(); err != nil {
		l.blame("a restart: %v", err)
	}
}

// wasDown reports whether running calls were cancelled at a time.
func (l *Lab) wasDown(at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.downs, at)
}

// settleDown waits until the gateway owes no captures.
func (l *Lab) settleDown() {
	const longest = 5 * time.Minute
	for since := l.now(); l.gateway.Unsettled() > 0; time.Sleep(100 * time.Millisecond) {
		if l.now()-since > longest {
			l.blame("after %s with nothing new the gateway still owes %d captures", longest, l.gateway.Unsettled())
			return
		}
	}
}

// noEncoder makes no MP3.
type noEncoder struct{}

var errNoEncoder = errors.New("the lab has no encoder")

// Ready says that no MP3 can be made.
func (noEncoder) Ready() error { return errNoEncoder }

// Encode makes none.
func (noEncoder) Encode(context.Context, speech.PCM, io.Reader) (io.ReadCloser, error) {
	return nil, errNoEncoder
}
