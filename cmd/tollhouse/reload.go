package main

import (
	"context"
	"errors"
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
