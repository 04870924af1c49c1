package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/store"
)

// house is a gateway with what it remembers, and what a reload replaces.
type house struct {
	file    string // empty where there is nothing to reload
	data    string // the data directory
	env     config.Env
	logger  *slog.Logger
	storage *storage
	doorman *auth.Keys
	gateway *gateway.Gateway
	mp3     *lame.Encoder
	eyes    *eyes

	watch     watch         // over the file and those that it names
	reloading chan struct{} // has room for one reload
	parts     atomic.Pointer[config.Components]
	life      context.Context // ends with the house: reloads outlast whoever asked for them
	end       context.CancelFunc
}

// newHouse builds everything behind the listeners.
func (p *program) newHouse(ctx context.Context, src *source, data string, logger *slog.Logger) (_ *house, err error) {
	c := src.config
	parts, err := c.Build(nil)
	if err != nil {
		return nil, err
	}
	h := &house{file: src.file, data: data, env: p.env, logger: logger, mp3: &lame.Encoder{Look: p.look}, reloading: make(chan struct{}, 1)}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.watch.loaded(src.seen)
	limitMemory(c.Server.Memory, os.ReadFile)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close(), parts.Close())
		}
	}()
	if h.eyes, err = h.newEyes(ctx, c); err != nil {
		return nil, err
	}
	h.storage, err = openStorage(ctx, src.store(data), store.Options{
		Count: !c.Prepaid(), Currency: c.Currency.Or(billing.DefaultCurrency), Logger: logger, Committed: h.eyes.committed,
	})
	if err != nil {
		return nil, err
	}
	h.doorman = &auth.Keys{Store: h.storage.keys}
	if h.gateway, err = gateway.New(h.options(parts)); err != nil {
		return nil, err
	}
	if err = h.settleIn(ctx, src, parts); err != nil {
		return nil, err
	}
	h.parts.Store(parts)
	h.look()
	return h, nil
}

// settleIn takes over what the source brings. A guest comes to an empty store
// only: its key is printed once.
func (h *house) settleIn(ctx context.Context, src *source, parts *config.Components) error {
	if src.guest != "" {
		used, err := h.inUse(ctx, src.guest)
		if err != nil {
			return err
		}
		if used {
			src.guest = ""
		}
	}
	return h.admit(ctx, parts)
}

// inUse reports whether the store has a key, or an account of somebody else than
// the guest. The guest's own account may be of a start that failed before it
// could print the key, at a port that was taken.
func (h *house) inUse(ctx context.Context, guest string) (bool, error) {
	accounts, err := h.storage.ledger.Balances(ctx, "", 2)
	if err != nil {
		return false, err
	}
	keys, err := h.storage.keys.Page(ctx, "", "", 1)
	others := slices.ContainsFunc(accounts, func(b billing.Balance) bool { return b.Account != guest })
	return others || len(keys) > 0, err
}

// shut gives up a reload that is under way, and lets go of the vendors and the
// store.
func (h *house) shut() error {
	h.end()
	late := time.NewTimer(partingTime) // a file that never comes ends for no context
	defer late.Stop()
	select {
	case h.reloading <- struct{}{}: // for good
	case <-late.C:
	}
	return errors.Join(h.parts.Load().Close(), h.close())
}

// close lets go of the store. Nothing uses the house any more.
func (h *house) close() error {
	h.end()
	defer h.eyes.close()
	if h.storage == nil {
		return nil
	}
	return h.storage.close()
}

// run does the background work of the house until stop is called, which waits
// for its end.
func (h *house) run(ctx context.Context) (stop func()) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, job := range append(h.storage.jobs(), h.gateway.Run, h.eyes.metrics.Run) {
		running.Go(func() { _ = job(ctx) }) // it returns nil
	}
	return func() {
		end()
		running.Wait()
	}
}

// options are those of the gateway; a reload uses what depends on the parts.
func (h *house) options(p *config.Components) gateway.Options {
	return gateway.Options{
		Upstream: p.Router, Prices: p.Prices, Models: p.Models, RequirePrice: p.Config.Prepaid(),
		Authenticator: h.doorman, Meter: h.storage.ledger, Idempotency: h.storage.answers, Limiter: h.storage.limiter, Logger: h.logger, Observe: h.eyes.observer,
		Tasks: h.storage.tasks, Video: p.Config.VideoOptions(), MP3: h.mp3, Admission: p.Config.Server.Admission(),
	}
}

// admit takes over the accounts, keys, prices and limits of the parts. If it
// fails, the keys are those of before.
func (h *house) admit(ctx context.Context, p *config.Components) error {
	if err := h.storage.keys.replace(ctx, p.Keys); err != nil {
		return err
	}
	err := h.openAccounts(ctx, p.Config)
	if err == nil {
		err = h.storage.load(ctx, p.Prices)
	}
	if err != nil {
		return errors.Join(err, h.keepKeys(ctx))
	}
	h.doorman.SetDefaults(p.Config.Limits)
	return nil
}

// keepKeys puts the keys back that are in force.
func (h *house) keepKeys(ctx context.Context) error {
	old := h.parts.Load()
	if old == nil {
		return nil
	}
	ctx, cancel := h.unhurried(ctx)
	defer cancel()
	return h.storage.keys.replace(ctx, old.Keys)
}

// openAccounts creates the accounts that the ledger does not have yet. One that
// it has keeps its balance.
func (h *house) openAccounts(ctx context.Context, c *config.Config) error {
	for _, a := range c.Accounts {
		found, err := h.storage.ledger.Exists(ctx, a.Name)
		if err == nil && !found {
			err = h.openAccount(ctx, &a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openAccount creates an account. A node that starts at the same moment may be
// first.
func (h *house) openAccount(ctx context.Context, a *config.Account) error {
	failed := h.storage.ledger.CreateAccount(ctx, a.Name, a.Credit)
	if failed == nil {
		return nil
	}
	if found, err := h.storage.ledger.Exists(ctx, a.Name); err == nil && found {
		return nil
	}
	return failed
}

// guestKey makes the one key that is printed at a start.
func (h *house) guestKey(ctx context.Context, account string) (secret.String, error) {
	key, token, err := auth.NewKey(auth.KeyOptions{Account: account, Name: "first key"})
	if err == nil {
		err = h.storage.keys.Add(ctx, key)
	}
	return token, err
}
