package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// pausedChannels are the names of the channels that get no new calls.
func (a *app) pausedChannels() (names []string) {
	for _, c := range a.router().Channels() {
		if c.State == router.Paused {
			names = append(names, c.Name)
		}
	}
	return names
}

// readyChecks are the checks of /readyz; one that fails makes the server unready.
func (a *app) readyChecks() map[string]func() error {
	checks := map[string]func() error{"channels": a.channelsUsable}
	if db := a.storage.db; db != nil {
		checks["store"] = cacheCheck(db.Ping)
	}
	return checks
}

// readyWarnings are what /readyz reports without being unready for it.
func (a *app) readyWarnings() map[string]func() error {
	warnings := map[string]func() error{"channels": a.channelsDegraded}
	if db := a.storage.db; db != nil {
		warnings["prices"], warnings["holds"] = cacheCheck(db.PricesAgree), cacheCheck(db.Stuck)
	}
	return warnings
}

// channelsUsable fails when no channel takes calls.
func (a *app) channelsUsable() error {
	why := "every channel rests after failures"
	for _, c := range a.router().Channels() {
		if c.Usable {
			return nil
		}
		if c.State == router.Paused {
			why = "every channel is paused or rests after failures"
		}
	}
	return errors.New(why)
}

// channelsDegraded fails when a channel is paused, which somebody may have
// forgotten, or when each usable channel is out for some model.
func (a *app) channelsDegraded() error {
	var why []string
	if names := a.pausedChannels(); names != nil {
		why = append(why, plural(len(names), "paused channel")) // only the admin API names them
	}
	servesAllModels := func(c router.ChannelInfo) bool { return c.State == router.Ready || c.State == router.Probing }
	if a.channelsUsable() == nil && !slices.ContainsFunc(a.router().Channels(), servesAllModels) {
		why = append(why, "every channel in use rests, or its vendor told it to wait with some model")
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// checkMaxAge is how long the result of a check of the database is reused.
const checkMaxAge = time.Second

// cachedCheck is a check of the database for /readyz, which anybody may request:
// requests at the same time, and within checkMaxAge, share one query. It is safe
// for concurrent use.
type cachedCheck struct {
	check func(context.Context) error
	now   func() time.Time

	mu  sync.Mutex
	at  time.Time // of the result; zero if there is none
	err error
}

func cacheCheck(check func(context.Context) error) func() error {
	c := &cachedCheck{check: check, now: time.Now}
	return c.result
}

// result is the last result if it is recent, else that of a new query, which has a
// second. The error does not reveal what the database said.
func (c *cachedCheck) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && c.now().Sub(c.at) < checkMaxAge {
		return c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.err = nil
	if err := c.check(ctx); err != nil {
		c.err = errors.New(fault.From(err).Message)
	}
	c.at = c.now()
	return c.err
}
