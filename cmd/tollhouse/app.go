package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// app is a gateway with its store and telemetry, and the components that a reload
// replaces: all of a server but its listeners.
type app struct {
	file          string // the configuration file; empty where there is nothing to reload
	firstAccount  string // the account for which the banner makes and prints a key; empty for none
	data          string // the data directory
	env           config.Env
	logger        *slog.Logger
	storage       *storage
	authenticator *auth.Keys
	gateway       *gateway.Gateway
	api           *server.Handler // nil where nothing listens
	mp3           *lame.Encoder
	telemetry     *telemetry
	lists         *discovery.Lists // of the models of vendors
	unrecorded    string           // the address of the admin API while another server has the record; else empty

	files      fileWatcher   // of the configuration file and of those that it names
	reloading  chan struct{} // a lock, which has room for one reload
	components atomic.Pointer[config.Components]
	lifetime   context.Context // ends with the app; reloads use it, not their callers' contexts
	cancel     context.CancelFunc
}

// newApp builds the app and applies the source to the store.
func (p *program) newApp(ctx context.Context, src *source, data string, logger *slog.Logger) (_ *app, err error) {
	c := src.config
	components, err := c.Build(nil)
	if err != nil {
		return nil, err
	}
	a := &app{file: src.file, data: data, env: p.env, logger: logger, mp3: &lame.Encoder{Look: p.lookPath}, reloading: make(chan struct{}, 1)}
	a.lifetime, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.files.setRead(src.read)
	limitMemory(c.Server.Memory, os.ReadFile)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
			components.Close()
		}
	}()
	if a.telemetry, err = a.newTelemetry(ctx, c); err != nil {
		return nil, err
	}
	a.storage, err = p.openStorage(ctx, src.store(data), store.Options{
		Count: !c.Prepaid(), Currency: cmp.Or(c.Currency, billing.DefaultCurrency), Logger: logger, Committed: a.telemetry.committed,
	})
	if err != nil {
		return nil, err
	}
	a.authenticator = &auth.Keys{Store: a.storage.keys}
	a.lists = discovery.New(discovery.Options{Changed: a.applyLists, Logger: logger, Rand: rand.Int64N})
	a.lists.Watch(components.Sources())
	if components, err = components.WithLists(a.lists.Of); err != nil {
		return nil, err
	}
	if a.gateway, err = gateway.New(a.gatewayOptions(components)); err != nil {
		return nil, err
	}
	if a.firstAccount, err = a.firstKeyAccount(ctx, src); err != nil {
		return nil, err
	}
	if err = a.applyOwned(ctx, components); err != nil {
		return nil, err
	}
	a.components.Store(components)
	a.registerMetrics()
	return a, nil
}

// firstKeyAccount is the account for which a first key is made: that of the source, while
// the store has neither a key nor another account. A start that failed at a port that was
// taken, before it could print the key, may have made the account.
func (a *app) firstKeyAccount(ctx context.Context, src *source) (string, error) {
	if src.firstAccount == "" {
		return "", nil
	}
	accounts, err := a.storage.ledger.Balances(ctx, "", 2)
	if err != nil {
		return "", err
	}
	keys, err := a.storage.keys.Page(ctx, "", "", 1)
	others := slices.ContainsFunc(accounts, func(b billing.Balance) bool { return b.Account != src.firstAccount })
	if err != nil || others || len(keys) > 0 {
		return "", err
	}
	return src.firstAccount, nil
}

// shutdown ends a reload that is under way and closes upstreams and store.
func (a *app) shutdown() error {
	a.cancel()
	late := time.NewTimer(closeTimeout) // reading a file does not end with a context
	defer late.Stop()
	select {
	case a.reloading <- struct{}{}: // for good
	case <-late.C:
	}
	a.components.Load().Close()
	return a.close()
}

// close closes the store and the telemetry. Nothing uses the app any more.
func (a *app) close() error {
	a.cancel()
	defer a.telemetry.close()
	if a.storage == nil {
		return nil
	}
	return a.storage.close()
}

// startJobs runs the background work until stop is called, which waits for its end.
func (a *app) startJobs(ctx context.Context) (stop func()) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	jobs := []func(context.Context) error{a.gateway.Run, a.telemetry.metrics.Run, func(ctx context.Context) error { return a.lists.Run(a.gateway.Outgoing(ctx)) }}
	if db := a.storage.db; db != nil {
		jobs = append(jobs, db.Run)
	}
	for _, job := range jobs {
		running.Go(func() { _ = job(ctx) }) // it returns nil
	}
	return func() {
		end()
		running.Wait()
	}
}

// gatewayOptions are the gateway's options. A reload uses those that depend on the
// components. The secret of the store is the last one, so that sessions stay where they are
// while those of the file are replaced.
func (a *app) gatewayOptions(c *config.Components) gateway.Options {
	kept := c.Config.ResponsesOptions()
	kept.Store = a.storage.responses
	return gateway.Options{
		Upstream: c.Router, Prices: c.Prices, Models: c.Models, Affinity: c.Config.Affinity, RequirePrice: c.Config.Prepaid(),
		Authenticator: a.authenticator, Meter: a.storage.ledger, Idempotency: a.storage.idempotency, Limiter: a.storage.limiter, Logger: a.logger, Observe: a.telemetry.observers,
		Tasks: a.storage.tasks, Video: c.Config.VideoOptions(), MP3: a.mp3, Admission: c.Config.Server.Admission(),
		Responses: kept, Secrets: slices.Concat(c.Config.Secrets, a.storage.secrets),
	}
}

// applyOwned writes the accounts, keys, prices and limits of the components to the
// store. If that fails, the keys are restored.
func (a *app) applyOwned(ctx context.Context, c *config.Components) error {
	if err := a.storage.keys.Replace(ctx, c.Keys); err != nil {
		return err
	}
	err := a.createAccounts(ctx, c.Config)
	if err == nil {
		err = a.storage.publishPrices(ctx, c.Prices)
	}
	if err != nil {
		return errors.Join(err, a.restoreKeys(ctx))
	}
	a.setLimits(c.Config)
	return nil
}

// setLimits replaces the limits of keys without their own and of whole accounts.
func (a *app) setLimits(c *config.Config) {
	a.authenticator.SetDefaults(c.Limits)
	a.storage.limiter.SetAccountLimits(c.AccountLimits())
}

// restoreKeys writes the keys of the components in use to the store.
func (a *app) restoreKeys(ctx context.Context) error {
	old := a.components.Load()
	if old == nil {
		return nil
	}
	ctx, cancel := a.detachedContext(ctx)
	defer cancel()
	return a.storage.keys.Replace(ctx, old.Keys)
}

// accountsAtOnce is how many accounts createAccounts creates at a time: the store writes
// those that wait together in one transaction.
const accountsAtOnce = 64

// createAccounts creates the accounts that the ledger does not have yet.
func (a *app) createAccounts(ctx context.Context, c *config.Config) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(accountsAtOnce)
	for _, account := range c.Accounts {
		workers.Go(func() error { return a.createAccount(ctx, account) })
	}
	return workers.Wait()
}

// createAccount creates an account. One that the ledger has keeps its balance. Another
// node that starts at the same moment may create the account first.
func (a *app) createAccount(ctx context.Context, account config.Account) error {
	found, err := a.storage.ledger.Exists(ctx, account.Name)
	if err != nil || found {
		return err
	}
	if err := a.storage.ledger.CreateAccount(ctx, account.Name, account.Credit); err != nil {
		if found, failed := a.storage.ledger.Exists(ctx, account.Name); failed != nil || !found {
			return err
		}
	}
	return nil
}

// createFirstKey makes the key that is printed at a first start.
func (a *app) createFirstKey(ctx context.Context, account string) (secret.String, error) {
	key, token, err := auth.NewKey(auth.KeyOptions{Account: account, Name: "first key"})
	if err == nil {
		err = a.storage.keys.Add(ctx, key)
	}
	return token, err
}

// router is the router in use.
func (a *app) router() *router.Router { return a.components.Load().Router }

// pausedChannels are the names of the channels that get no new calls.
func (a *app) pausedChannels() (names []string) {
	for _, c := range a.router().Channels() {
		if c.State == router.StatePaused {
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
		warnings["prices"], warnings["holds"], warnings["damaged"] = cacheCheck(db.PricesAgree), cacheCheck(db.Stuck), cacheCheck(db.Damaged)
		warnings["keys"] = cacheCheck(db.DamagedKeys)
	}
	return warnings
}

// channelsUsable fails when no channel takes calls.
func (a *app) channelsUsable() error {
	why := "the circuit of every channel is open after failures"
	for _, c := range a.router().Channels() {
		switch {
		case c.Usable && len(c.Models) > 0:
			return nil
		case c.Usable:
			why = "no channel that is usable has a model to serve: lists of vendors' models have not come, or nothing on them has a price"
		case c.State == router.StatePaused:
			why = "every channel is paused, or its circuit is open after failures"
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
	if n := a.failedLists(); n > 0 {
		why = append(why, "listing models failed at "+plural(n, "channel"))
	}
	servesAllModels := func(c router.ChannelInfo) bool {
		return c.State == router.StateClosed || c.State == router.StateHalfOpen
	}
	if a.channelsUsable() == nil && !slices.ContainsFunc(a.router().Channels(), servesAllModels) {
		why = append(why, "the circuit of every channel in use is open, or some model of it is in a cooldown")
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// checkMaxAge is how long the result of a check of the database is reused.
const checkMaxAge = time.Second

// cacheCheck is a check of the database for /readyz, which anybody may request: requests
// at the same time, and within checkMaxAge, share one query, which has a second. The error
// does not reveal what the database said. The check is safe for concurrent use.
func cacheCheck(check func(context.Context) error) func() error {
	var (
		mu   sync.Mutex
		at   time.Time // of last; zero if there is none
		last error
	)
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if !at.IsZero() && time.Since(at) < checkMaxAge {
			return last
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		last = nil
		if err := check(ctx); err != nil {
			last = errors.New(fault.From(err).Message)
		}
		at = time.Now()
		return last
	}
}

// failedLists is how many channels have no current list of their vendor's models.
func (a *app) failedLists() (n int) {
	for _, s := range a.components.Load().Sources() {
		if list := a.lists.Of(s); list.Err != nil {
			n++
		}
	}
	return n
}
