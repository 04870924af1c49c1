package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
)

// reloadTimeout bounds how long a reload waits for the store.
const reloadTimeout = 20 * time.Second

// errShuttingDown is why there is no reload any more.
var errShuttingDown = fault.New(fault.ServiceUnavailable, "The server is ending, and reads its configuration no more.")

// followConfig reloads at each hang-up, and at a tick if a file has changed, until
// ctx ends. It runs beside the loop that receives the signals, so that neither a
// slow store nor a file system that does not answer keeps a server from ending.
// hangUps has room for one: of the hang-ups during a reload one is remembered,
// since the file may have changed after it was read. A tick also takes over the record of
// the admin address from a server that has ended.
func (a *app) followConfig(ctx context.Context, hangUps <-chan struct{}, ticks <-chan time.Time) {
	if ticks == nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangUps:
			if a.file == "" {
				a.logger.Warn("there is no configuration file to reload")
				continue
			}
			_ = a.reload(ctx) // it logs its error
		case <-ticks:
			a.recordLater()
			if a.files.changed() {
				_ = a.reload(ctx)
			}
		}
	}
}

// reload reads the file again and replaces channels, prices, models, limits and
// the file's keys. Requests under way keep what they started with. A file that is
// refused changes nothing, and the error says where it is wrong. Once begun, a
// reload does not end with ctx, but with the app.
func (a *app) reload(ctx context.Context) error {
	if err := a.lockReload(ctx); err != nil {
		return err
	}
	defer func() { <-a.reloading }()
	ctx, cancel := a.detachedContext(ctx)
	defer cancel()
	next, err := a.readComponents()
	if err == nil {
		err = a.activate(ctx, next)
	}
	if err != nil && a.lifetime.Err() != nil {
		a.logger.Warn("reload cancelled: the server is shutting down")
		return errShuttingDown
	}
	if err != nil {
		a.logger.Error("the new configuration was refused; the old one stays in force", "error", err)
		return &fault.Error{Code: fault.InvalidRequest, Message: "The configuration is refused, the old one stays in force: " + err.Error()}
	}
	a.logger.Info("configuration reloaded", "file", a.file, "channels", len(next.Config.Channels), "keys", len(next.Keys))
	if names := a.pausedChannels(); names != nil {
		a.logger.Warn("channels are still paused", "channels", names)
	}
	return nil
}

// lockReload waits until no other reload is under way, or until ctx or the app
// ends. A free lock is taken even if ctx has ended.
func (a *app) lockReload(ctx context.Context) error {
	select {
	case a.reloading <- struct{}{}:
		return nil
	default:
	}
	select {
	case a.reloading <- struct{}{}:
		return nil
	case <-a.lifetime.Done():
		return errShuttingDown
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// detachedContext is a context for changes that must not stop half-way when ctx
// ends. It ends after reloadTimeout, or with the app, whose next start applies the
// file anyway.
func (a *app) detachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadTimeout)
	release := context.AfterFunc(a.lifetime, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// readComponents reads the file and builds what takes the place of the components
// in use.
func (a *app) readComponents() (*config.Components, error) {
	c, read, err := readConfig(a.file, a.env)
	a.files.setRead(read)
	old := a.components.Load()
	if err == nil {
		err = a.refuseFixedChanges(old.Config, c)
	}
	if err != nil {
		return nil, err
	}
	return c.Build(old)
}

// activate puts the components in use. The keys come first, since they alone can
// still be refused: one may collide with a key that was made at run time.
func (a *app) activate(ctx context.Context, next *config.Components) error {
	old := a.components.Load()
	err := a.applyOwned(ctx, next)
	if err == nil {
		err = a.gateway.Reload(a.gatewayOptions(next))
	}
	if err != nil {
		a.setLimits(old.Config)
		next.CloseExcept(old)
		return errors.Join(err, a.restoreKeys(ctx))
	}
	a.components.Store(next)
	if a.api != nil {
		a.api.SetCORS(next.Config.CORS)
	}
	a.warnOfCredits(old.Config, next.Config)
	old.CloseExcept(next)
	a.lists.Watch(next.Sources())
	a.useLists() // of which one may have come meanwhile
	return nil
}

// warnOfCredits warns of a changed credit of an account that exists: the file has
// opening credits only.
func (a *app) warnOfCredits(old, now *config.Config) {
	credits := make(map[string]billing.Money, len(old.Accounts))
	for _, account := range old.Accounts {
		credits[account.Name] = account.Credit
	}
	for _, account := range now.Accounts {
		if before, ok := credits[account.Name]; ok && before != account.Credit {
			a.logger.Warn("credit in the file is only an opening credit: use `tollhouse account credit` for an existing account", "account", account.Name)
		}
	}
}

// refuseFixedChanges refuses changes of what only a restart can change.
func (a *app) refuseFixedChanges(old, now *config.Config) error {
	same := func(old, now, otherwise string) bool { return cmp.Or(old, otherwise) == cmp.Or(now, otherwise) }
	var wrong []config.Problem
	for _, s := range []struct {
		name string
		same bool
	}{
		{"listen", same(old.Listen, now.Listen, defaultListen)},
		{"admin", same(old.Admin, now.Admin, defaultAdmin)},
		{"data", same(old.Data, now.Data, defaultData)},
		{"store", same(old.Store, now.Store, config.StoreIn(a.data, ""))},
		{"billing", same(old.Billing, now.Billing, config.Prepaid)},
		{"currency", same(old.Currency, now.Currency, billing.DefaultCurrency)},
		{"responses", old.Responses == now.Responses},
		{"secrets", reflect.DeepEqual(old.Secrets, now.Secrets)},
		{"video", old.Video == now.Video},
		{"webhooks", old.Webhooks == now.Webhooks},
		{"server", reflect.DeepEqual(old.Server, now.Server)},
		{"telemetry", reflect.DeepEqual(old.Telemetry, now.Telemetry)},
		{"metrics", old.Metrics == now.Metrics},
		{"mcp", reflect.DeepEqual(old.MCP, now.MCP)},
	} {
		if !s.same {
			wrong = append(wrong, config.Problem{Pos: now.Positions[s.name], Message: s.name + " cannot change while the server runs: put it back, or restart"})
		}
	}
	if wrong == nil {
		return nil
	}
	return &config.Error{File: a.file, Problems: wrong}
}

// fileStates are the states of files at one moment, by path; nil for one that did
// not exist.
type fileStates map[string]fs.FileInfo

// readConfig reads and checks a configuration file. read are the states of the
// file and of the key files that it names, each from before it was read. The error
// is a *config.Error if the file could be read.
func readConfig(name string, env config.Env) (c *config.Config, read fileStates, err error) {
	read = fileStates{}
	if read[name], err = os.Stat(name); err != nil {
		read[name] = nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, read, err // "open NAME: no such file or directory"
	}
	c, err = config.Read(name, data, env)
	var files []config.KeyFile
	if refused, ok := errors.AsType[*config.Error](err); ok {
		files = refused.KeyFiles
	} else if err == nil {
		files = c.KeyFiles
	}
	for _, f := range files {
		read[f.Path] = f.Info
	}
	return c, read, err
}

// restat looks at the same files again. One that does not exist for a moment, as
// while it is being replaced, is taken to be unchanged.
func (s fileStates) restat() fileStates {
	now := make(fileStates, len(s))
	for path, before := range s {
		info, err := os.Stat(path)
		if err != nil {
			info = before
		}
		now[path] = info
	}
	return now
}

// same compares the size, the time and the identity of each file: one that was put in the
// place of another may have the size and the time of that.
func (s fileStates) same(other fileStates) bool {
	return maps.EqualFunc(s, other, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
	})
}

// fileWatcher notices that a file was changed. It is safe for concurrent use.
type fileWatcher struct {
	mu   sync.Mutex
	read fileStates // when they were read; empty where there is nothing to watch
	last fileStates // at the last call of changed
}

// changed reports whether a file differs from the one that was read. A file that
// has changed since the last call may still be being written, and counts only at
// the next one.
func (w *fileWatcher) changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.read.restat()
	settled := now.same(w.last)
	w.last = now
	return settled && !now.same(w.read)
}

// setRead stores the states of the files that were read, refused or not.
func (w *fileWatcher) setRead(read fileStates) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = read
}

// applyLists serves what the vendors' lists have now. It is called after one changed.
func (a *app) applyLists(ctx context.Context) {
	if a.lockReload(ctx) != nil { // the server ends, or the channel is followed no more
		return
	}
	defer func() { <-a.reloading }()
	a.useLists()
}

// useLists replaces the router by one that serves what the lists have now. Channels,
// keys, prices and limits stay as they are, and so do the state of each channel and the
// calls that run. Lists that change nothing replace nothing. The reload lock is held.
func (a *app) useLists() {
	old := a.components.Load()
	next, err := old.WithLists(a.lists.Of)
	if err == nil && next == old {
		return
	}
	if err == nil {
		err = a.gateway.Reload(a.gatewayOptions(next))
	}
	if err != nil {
		a.logger.Error("serving the discovered models failed; the old ones stay in force", "error", err)
		return
	}
	a.components.Store(next)
}
