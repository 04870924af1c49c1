package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
)

// reload reads the file again and swaps channels, prices, models, limits and
// the file's keys. Calls under way keep what they started with. A file that is
// refused changes nothing, and the error says where it is wrong.
func (h *house) reload(ctx context.Context) error {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	parts, err := h.load()
	if err == nil {
		err = h.swap(ctx, parts)
	}
	if err != nil {
		h.logger.Error("the new configuration is refused, the old one stays in force", "error", err)
		return &fault.Error{Code: fault.InvalidRequest, Message: "The configuration is refused, the old one stays in force: " + err.Error()}
	}
	h.logger.Info("configuration reloaded", "file", h.file, "channels", len(parts.Config.Channels), "keys", len(parts.Keys))
	return nil
}

func (h *house) load() (*config.Parts, error) {
	data, err := os.ReadFile(h.file)
	if err != nil {
		return nil, err
	}
	c, err := config.Read(h.file, data, h.env)
	if err == nil {
		err = h.restarts(h.parts.Load().Config, c)
	}
	if err != nil {
		return nil, err
	}
	return c.Build()
}

// swap puts the parts in force. The keys come first, since they alone can
// still be refused: one may collide with a key that was made at run time.
func (h *house) swap(ctx context.Context, parts *config.Parts) error {
	old := h.parts.Load()
	err := h.admit(ctx, parts)
	if err == nil {
		err = h.gateway.Reload(h.options(parts))
	}
	if err != nil {
		h.doorman.SetDefaults(old.Config.Limits)
		return errors.Join(err, h.keepKeys(ctx), parts.Close())
	}
	h.parts.Store(parts)
	h.compareCredits(old.Config, parts.Config)
	return old.Close()
}

// compareCredits says that an account's credit is what it was opened with.
func (h *house) compareCredits(old, now *config.Config) {
	for _, a := range old.Accounts {
		for _, b := range now.Accounts {
			if a.Name == b.Name && a.Credit != b.Credit {
				h.logger.Warn("credit in the file is an opening credit: use `tollhouse account credit` for an account that exists", "account", a.Name)
			}
		}
	}
}

// restarts refuses a change of what holds until a restart.
func (h *house) restarts(old, now *config.Config) error {
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
			wrong = append(wrong, config.Problem{Pos: s.now.Pos, Message: fixed(s.name)})
		}
	}
	if !old.Video.Same(now.Video) {
		wrong = append(wrong, config.Problem{Pos: now.Video.Pos, Message: fixed("video")})
	}
	if old.Webhooks.AllowPrivate != now.Webhooks.AllowPrivate {
		wrong = append(wrong, config.Problem{Pos: now.Webhooks.Pos, Message: fixed("webhooks")})
	}
	if wrong == nil {
		return nil
	}
	return &config.Error{File: h.file, Problems: wrong}
}

func fixed(name string) string {
	return name + " cannot change while the server runs: put it back, or restart"
}

// watch notices that a file was changed.
type watch struct {
	file string
	size int64
	time time.Time
}

// newWatch remembers the file as it is.
func newWatch(file string) *watch {
	w := &watch{file: file}
	w.changed()
	return w
}

// changed reports whether the file is another than at the last call. A file
// that is away for a moment, as while it is being replaced, is not.
func (w *watch) changed() bool {
	if w.file == "" {
		return false
	}
	info, err := os.Stat(w.file)
	if err != nil || (info.Size() == w.size && info.ModTime().Equal(w.time)) {
		return false
	}
	w.size, w.time = info.Size(), info.ModTime()
	return true
}
