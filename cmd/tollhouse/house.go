package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// house is a gateway with its ledger and keys, and what a reload replaces.
type house struct {
	file    string // empty where there is nothing to reload
	env     config.Env
	logger  *slog.Logger
	ledger  *billing.Ledger
	keys    *auth.MemoryKeys
	doorman *auth.Keys
	gateway *gateway.Gateway

	reloading sync.Mutex // one at a time
	parts     atomic.Pointer[config.Parts]
}

// newHouse builds everything behind the listeners.
func (p *program) newHouse(src *source, logger *slog.Logger) (*house, error) {
	c := src.config
	parts, err := c.Build()
	if err != nil {
		return nil, err
	}
	h := &house{file: src.file, env: p.env, logger: logger, keys: new(auth.MemoryKeys)}
	h.ledger = billing.NewLedger(billing.LedgerOptions{Count: !c.Prepaid(), Currency: c.Currency.Or(billing.DefaultCurrency)})
	h.doorman = &auth.Keys{Store: h.keys}
	h.gateway, err = gateway.New(h.options(parts))
	if err == nil {
		err = h.admit(parts)
	}
	if err != nil {
		_ = parts.Close() // idle connections only
		return nil, err
	}
	h.parts.Store(parts)
	return h, nil
}

// options are those of the gateway; a reload uses what depends on the parts.
func (h *house) options(p *config.Parts) gateway.Options {
	return gateway.Options{
		Upstream: p.Router, Prices: p.Prices, Models: p.Models, RequirePrice: p.Config.Prepaid(),
		Authenticator: h.doorman, Meter: h.ledger, Logger: h.logger,
	}
}

// admit takes over the accounts, keys and limits of the parts. If it fails, the
// keys are those of before.
func (h *house) admit(p *config.Parts) error {
	if err := h.keys.Replace(p.Keys); err != nil {
		return err
	}
	if err := h.openAccounts(p.Config); err != nil {
		return errors.Join(err, h.keepKeys())
	}
	h.doorman.SetDefaults(p.Config.Limits)
	return nil
}

// keepKeys puts the keys back that are in force.
func (h *house) keepKeys() error {
	if old := h.parts.Load(); old != nil {
		return h.keys.Replace(old.Keys)
	}
	return nil
}

// openAccounts creates the accounts that the ledger does not have yet. One that
// it has keeps its balance.
func (h *house) openAccounts(c *config.Config) error {
	ctx := context.Background() // in memory, nothing waits
	names, err := h.ledger.AccountNames(ctx)
	if err != nil {
		return err
	}
	have := make(map[string]bool, len(names))
	for _, name := range names {
		have[name] = true
	}
	for _, a := range c.Accounts {
		if have[a.Name] {
			continue
		}
		if err := h.ledger.CreateAccount(ctx, a.Name, a.Credit); err != nil {
			return err
		}
	}
	return nil
}

// guestKey makes the one key that is printed at a start.
func (h *house) guestKey(account string) (secret.String, error) {
	key, token, err := auth.NewKey(auth.KeyOptions{Account: account, Name: "first key"})
	if err == nil {
		err = h.keys.Add(context.Background(), key)
	}
	return token, err
}

// usable is a check of /readyz.
func (h *house) usable() error {
	for _, c := range h.channels() {
		if c.Usable {
			return nil
		}
	}
	return errors.New("every channel rests after failures")
}

func (h *house) channels() []upstream.ChannelInfo { return h.parts.Load().Router.Channels() }
