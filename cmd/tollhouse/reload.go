package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
)

// reload reads the file again and swaps channels, prices, models, limits and
// the file's keys. Calls under way keep what they started with. A file that is
// refused changes nothing, and the error says where it is wrong. It is not given
// up half-way where whoever asked for it leaves, but where the house ends.
func (h *app) reload(ctx context.Context) error {
	if err := h.lockReload(ctx); err != nil {
		return err
	}
	defer func() { <-h.reloading }()
	ctx, cancel := h.detachedContext(ctx)
	defer cancel()
	parts, err := h.load()
	if err == nil {
		err = h.activate(ctx, parts)
	}
	if err != nil && h.lifetime.Err() != nil {
		h.logger.Warn("a reload was given up, since the server ends")
		return errShuttingDown
	}
	if err != nil {
		h.logger.Error("the new configuration is refused, the old one stays in force", "error", err)
		return &fault.Error{Code: fault.InvalidRequest, Message: "The configuration is refused, the old one stays in force: " + err.Error()}
	}
	h.logger.Info("configuration reloaded", "file", h.file, "channels", len(parts.Config.Channels), "keys", len(parts.Keys))
	if names := h.pausedChannels(); names != nil {
		h.logger.Warn("channels are still paused", "channels", names)
	}
	return nil
}

// takeTurn waits until no other reload is under way. Whoever leaves meanwhile asks
// for none.
func (h *app) lockReload(ctx context.Context) error {
	select {
	case h.reloading <- struct{}{}:
		return nil
	default:
	}
	select {
	case h.reloading <- struct{}{}:
		return nil
	case <-h.lifetime.Done():
		return errShuttingDown
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
}

// errEnding is why there is no reload any more.
var errShuttingDown = fault.New(fault.ServiceUnavailable, "The server is ending, and reads its configuration no more.")

// reloadTime bounds what a reload waits for its store.
const reloadTime = 20 * time.Second

// unhurried is a context for what must not end half-way with ctx. It ends with
// the house, to whose next start the file counts anyway.
func (h *app) detachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadTime)
	release := context.AfterFunc(h.lifetime, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

func (h *app) load() (*config.Components, error) {
	c, seen, err := readConfig(h.file, h.env)
	h.files.setRead(seen)
	old := h.components.Load()
	if err == nil {
		err = h.refuseFixedChanges(old.Config, c)
	}
	if err != nil {
		return nil, err
	}
	return c.Build(old)
}

// swap puts the parts in force. The keys come first, since they alone can
// still be refused: one may collide with a key that was made at run time.
func (h *app) activate(ctx context.Context, parts *config.Components) error {
	old := h.components.Load()
	err := h.applyOwned(ctx, parts)
	if err == nil {
		err = h.gateway.Reload(h.gatewayOptions(parts))
	}
	if err != nil {
		h.authenticator.SetDefaults(old.Config.Limits)
		parts.CloseBut(old)
		return errors.Join(err, h.restoreKeys(ctx))
	}
	h.components.Store(parts)
	h.compareCredits(old.Config, parts.Config)
	old.CloseBut(parts)
	return nil
}

// compareCredits says that an account's credit is what it was opened with.
func (h *app) compareCredits(old, now *config.Config) {
	for _, a := range old.Accounts {
		for _, b := range now.Accounts {
			if a.Name == b.Name && a.Credit != b.Credit {
				h.logger.Warn("credit in the file is an opening credit: use `tollhouse account credit` for an account that exists", "account", a.Name)
			}
		}
	}
}

// restarts refuses a change of what holds until a restart.
func (h *app) refuseFixedChanges(old, now *config.Config) error {
	var wrong []config.Problem
	for _, s := range []struct {
		name      string
		old, now  config.Setting
		otherwise string
	}{
		{"listen", old.Listen, now.Listen, defaultListen},
		{"admin", old.Admin, now.Admin, defaultAdmin},
		{"data", old.Data, now.Data, defaultData},
		{"store", old.Store, now.Store, config.StoreIn(h.data, config.Setting{})},
		{"billing", old.Billing, now.Billing, config.Prepaid},
		{"currency", old.Currency, now.Currency, defaultCurrency},
	} {
		if s.old.Or(s.otherwise) != s.now.Or(s.otherwise) {
			wrong = append(wrong, config.Problem{Pos: s.now.Pos, Message: needsRestart(s.name)})
		}
	}
	if !old.Video.Same(now.Video) {
		wrong = append(wrong, config.Problem{Pos: now.Video.Pos, Message: needsRestart("video")})
	}
	if old.Webhooks.AllowPrivate != now.Webhooks.AllowPrivate {
		wrong = append(wrong, config.Problem{Pos: now.Webhooks.Pos, Message: needsRestart("webhooks")})
	}
	if !old.Server.Same(&now.Server) {
		wrong = append(wrong, config.Problem{Pos: now.Server.Pos, Message: needsRestart("server")})
	}
	if !old.Telemetry.Same(&now.Telemetry) {
		wrong = append(wrong, config.Problem{Pos: now.Telemetry.Pos, Message: needsRestart("telemetry")})
	}
	if old.Metrics.Public != now.Metrics.Public {
		wrong = append(wrong, config.Problem{Pos: now.Metrics.Pos, Message: needsRestart("metrics")})
	}
	if !old.MCP.Same(&now.MCP) {
		wrong = append(wrong, config.Problem{Pos: now.MCP.Pos, Message: needsRestart("mcp")})
	}
	if wrong == nil {
		return nil
	}
	return &config.Error{File: h.file, Problems: wrong}
}

func needsRestart(name string) string {
	return name + " cannot change while the server runs: put it back, or restart"
}

// caretaker reloads beside the loop that hears the signals: neither a slow store
// nor a file system that is away may keep a server from ending. It does one thing
// at a time; of the hang-ups meanwhile one is remembered. It belongs to that loop.
type reloader struct {
	app     *app
	busy    bool
	pending bool          // it was told to reload while it was busy
	done    chan struct{} // has room for one
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

// look is how files were at one moment, by path; nil for one that was not there.
type fileStates map[string]fs.FileInfo

// readConfig reads and checks a configuration file. seen are the file and the
// files of keys that it names, each as it was before it was read. The error is
// a *config.Error where the file can be read.
func readConfig(name string, env config.Env) (c *config.Config, seen fileStates, err error) {
	seen = fileStates{}
	if seen[name], err = os.Stat(name); err != nil {
		seen[name] = nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, seen, err // "open NAME: no such file or directory"
	}
	c, err = config.Read(name, data, env)
	var refused *config.Error
	switch {
	case errors.As(err, &refused):
		seen.add(refused.KeyFiles)
	case err == nil:
		seen.add(c.KeyFiles)
	}
	return c, seen, err
}

func (l fileStates) add(files []config.KeyFile) {
	for _, f := range files {
		l[f.Path] = f.Info
	}
}

// again looks at the same files. One that is away for a moment, as while it is
// being replaced, is taken to be as it was.
func (l fileStates) restat() fileStates {
	now := make(fileStates, len(l))
	for path, before := range l {
		info, err := os.Stat(path)
		if err != nil {
			info = before
		}
		now[path] = info
	}
	return now
}

func (l fileStates) same(other fileStates) bool {
	for path, a := range l {
		b := other[path]
		switch {
		case a == nil && b == nil:
		case a == nil || b == nil:
			return false
		case a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || !os.SameFile(a, b):
			return false
		}
	}
	return len(l) == len(other)
}

// watch notices that a file was changed. It is safe for concurrent use.
type fileWatcher struct {
	mu   sync.Mutex
	read fileStates // the files as they were read; none where there is nothing to watch
	last fileStates // as they were at the last call of changed
}

// changed reports whether a file is another than the one that was read. A file
// that changed since the last call may still be being written, and waits for
// the next.
func (w *fileWatcher) changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.read.restat()
	settled := now.same(w.last)
	w.last = now
	return settled && !now.same(w.read)
}

// loaded says how the files were when they were read, refused or not.
func (w *fileWatcher) setRead(seen fileStates) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = seen
}
