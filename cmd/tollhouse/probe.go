package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// probeAge is how long the result of a probe stands for those who ask after it.
const checkMaxAge = time.Second

// probe is a check of the database for /readyz, to which no key is needed: those
// who ask at one time, and within probeAge, share one query. It is safe for
// concurrent use.
type cachedCheck struct {
	check func(context.Context) error
	now   func() time.Time

	mu  sync.Mutex
	at  time.Time // of the result; zero if there is none
	err error
}

func cacheCheck(check func(context.Context) error) func() error {
	p := &cachedCheck{check: check, now: time.Now}
	return p.result
}

// result is the last one if it is young, else that of a query, which is ended
// after a second. It keeps from the world what the database said.
func (p *cachedCheck) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && p.now().Sub(p.at) < checkMaxAge {
		return p.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.err = nil
	if err := p.check(ctx); err != nil {
		p.err = errors.New(fault.From(err).Message)
	}
	p.at = p.now()
	return p.err
}
