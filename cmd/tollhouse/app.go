package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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
type app struct {
	file          string // empty where there is nothing to reload
	data          string // the data directory
	env           config.Env
	logger        *slog.Logger
	storage       *storage
	authenticator *auth.Keys
	gateway       *gateway.Gateway
	mp3           *lame.Encoder
	telemetry     *telemetry

	files      fileWatcher   // over the file and those that it names
	reloading  chan struct{} // has room for one reload
	components atomic.Pointer[config.Components]
	lifetime   context.Context // ends with the house: reloads outlast whoever asked for them
	cancel     context.CancelFunc
}

// newHouse builds everything behind the listeners.
func (p *program) newApp(ctx context.Context, src *source, data string, logger *slog.Logger) (_ *app, err error) {
	c := src.config
	parts, err := c.Build(nil)
	if err != nil {
		return nil, err
	}
	h := &app{file: src.file, data: data, env: p.env, logger: logger, mp3: &lame.Encoder{Look: p.lookPath}, reloading: make(chan struct{}, 1)}
	h.lifetime, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	h.files.setRead(src.read)
	limitMemory(c.Server.Memory, os.ReadFile)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close(), parts.Close())
		}
	}()
	if h.telemetry, err = h.newTelemetry(ctx, c); err != nil {
		return nil, err
	}
	h.storage, err = openStorage(ctx, src.store(data), store.Options{
		Count: !c.Prepaid(), Currency: c.Currency.Or(billing.DefaultCurrency), Logger: logger, Committed: h.telemetry.committed,
	})
	if err != nil {
		return nil, err
	}
	h.authenticator = &auth.Keys{Store: h.storage.keys}
	if h.gateway, err = gateway.New(h.gatewayOptions(parts)); err != nil {
		return nil, err
	}
	if err = h.start(ctx, src, parts); err != nil {
		return nil, err
	}
	h.components.Store(parts)
	h.registerMetrics()
	return h, nil
}

// settleIn takes over what the source brings. A guest comes to an empty store
// only: its key is printed once.
func (h *app) start(ctx context.Context, src *source, parts *config.Components) error {
	if src.firstAccount != "" {
		used, err := h.storeInUse(ctx, src.firstAccount)
		if err != nil {
			return err
		}
		if used {
			src.firstAccount = ""
		}
	}
	return h.applyOwned(ctx, parts)
}

// inUse reports whether the store has a key, or an account of somebody else than
// the guest. The guest's own account may be of a start that failed before it
// could print the key, at a port that was taken.
func (h *app) storeInUse(ctx context.Context, guest string) (bool, error) {
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
func (h *app) shutdown() error {
	h.cancel()
	late := time.NewTimer(closeTimeout) // a file that never comes ends for no context
	defer late.Stop()
	select {
	case h.reloading <- struct{}{}: // for good
	case <-late.C:
	}
	return errors.Join(h.components.Load().Close(), h.close())
}

// close lets go of the store. Nothing uses the house any more.
func (h *app) close() error {
	h.cancel()
	defer h.telemetry.close()
	if h.storage == nil {
		return nil
	}
	return h.storage.close()
}

// run does the background work of the house until stop is called, which waits
// for its end.
func (h *app) startJobs(ctx context.Context) (stop func()) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, job := range append(h.storage.jobs(), h.gateway.Run, h.telemetry.metrics.Run) {
		running.Go(func() { _ = job(ctx) }) // it returns nil
	}
	return func() {
		end()
		running.Wait()
	}
}

// options are those of the gateway; a reload uses what depends on the parts.
func (h *app) gatewayOptions(p *config.Components) gateway.Options {
	return gateway.Options{
		Upstream: p.Router, Prices: p.Prices, Models: p.Models, RequirePrice: p.Config.Prepaid(),
		Authenticator: h.authenticator, Meter: h.storage.ledger, Idempotency: h.storage.idempotency, Limiter: h.storage.limiter, Logger: h.logger, Observe: h.telemetry.observer,
		Tasks: h.storage.tasks, Video: p.Config.VideoOptions(), MP3: h.mp3, Admission: p.Config.Server.Admission(),
	}
}

// admit takes over the accounts, keys, prices and limits of the parts. If it
// fails, the keys are those of before.
func (h *app) applyOwned(ctx context.Context, p *config.Components) error {
	if err := h.storage.keys.replace(ctx, p.Keys); err != nil {
		return err
	}
	err := h.createAccounts(ctx, p.Config)
	if err == nil {
		err = h.storage.publishPrices(ctx, p.Prices)
	}
	if err != nil {
		return errors.Join(err, h.restoreKeys(ctx))
	}
	h.authenticator.SetDefaults(p.Config.Limits)
	return nil
}

// keepKeys puts the keys back that are in force.
func (h *app) restoreKeys(ctx context.Context) error {
	old := h.components.Load()
	if old == nil {
		return nil
	}
	ctx, cancel := h.detachedContext(ctx)
	defer cancel()
	return h.storage.keys.replace(ctx, old.Keys)
}

// openAccounts creates the accounts that the ledger does not have yet. One that
// it has keeps its balance.
func (h *app) createAccounts(ctx context.Context, c *config.Config) error {
	for _, a := range c.Accounts {
		found, err := h.storage.ledger.Exists(ctx, a.Name)
		if err == nil && !found {
			err = h.createAccount(ctx, &a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openAccount creates an account. A node that starts at the same moment may be
// first.
func (h *app) createAccount(ctx context.Context, a *config.Account) error {
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
func (h *app) createFirstKey(ctx context.Context, account string) (secret.String, error) {
	key, token, err := auth.NewKey(auth.KeyOptions{Account: account, Name: "first key"})
	if err == nil {
		err = h.storage.keys.Add(ctx, key)
	}
	return token, err
}

// limitMemory tells the runtime how much memory there is: what the configuration
// says, else what GOMEMLIMIT says, else nine tenths of the container's. A gateway
// refuses new calls before it comes to that.
func limitMemory(asked int64, read func(name string) ([]byte, error)) {
	switch {
	case asked > 0:
		debug.SetMemoryLimit(asked)
	case debug.SetMemoryLimit(-1) == math.MaxInt64:
		if most := container(read); most > 0 {
			debug.SetMemoryLimit(most / 10 * 9)
		}
	}
}

// container is the memory limit of the container that the process runs in; 0 if
// it has none.
func container(read func(name string) ([]byte, error)) int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := read(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n > 0 && n < 1<<50 { // no limit is "max", or a very large number
			return n
		}
	}
	return 0
}
