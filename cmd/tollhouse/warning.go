package main

import (
	"context"
	"net"
	"slices"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// warnings are what is unsafe or incomplete about a start.
func (h *app) warnings(ctx context.Context, src *source, l *listeners, s *settings) (w []string, err error) {
	if !src.config.Prepaid() && !src.demo {
		w = append(w, "money is off: whoever has a key can use it without bound, and the vendors charge you")
	}
	keys, err := h.storage.keys.Page(ctx, "", "", 1)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		first, err := h.storage.ledger.Balances(ctx, "", 1)
		if err != nil {
			return nil, err
		}
		w = append(w, h.noKeys(first, s))
	}
	if isPublic(l.public.Addr()) {
		w = append(w, "keys and prompts travel in plain HTTP on "+l.public.Addr().String()+": put a TLS proxy in front, or listen on 127.0.0.1")
	}
	if l.admin.Listener != nil && isPublic(l.admin.Addr()) {
		w = append(w, "the admin token travels in plain HTTP on "+l.admin.Addr().String()+": keep --admin on 127.0.0.1")
	}
	if src.config.Webhooks.AllowPrivate && !src.demo {
		w = append(w, "webhooks.allow_private lets whoever has a key make this server post to the network behind it: for development only")
	}
	if err := h.mp3.Ready(); err != nil && speaks(src.config) {
		w = append(w, "speech in MP3, the default, is refused where the vendor gives WAV only: install the program lame (apt-get install lame)")
	}
	w = append(w, h.storage.exposed...)
	if l.admin.Listener != nil { // whose token is in the data directory
		if open, found := writableByOthers(s.data); found && !slices.Contains(w, open) {
			w = append(w, open)
		}
	}
	return append(w, src.notes...), nil
}

// speaks reports whether a model of speech is served.
func speaks(c *config.Config) bool {
	return slices.ContainsFunc(modelRows(c), func(r modelRow) bool { return r.Kind == gateway.KindSpeech })
}

// noKeys tells how to make the first key.
func (h *app) noKeys(accounts []billing.Balance, s *settings) string {
	if s.admin == adminOff && !h.storage.shared() {
		return "there are no API keys, and the admin API is off: write accounts with keys into the config file"
	}
	text, where := "there are no API keys yet: ", dataFlag(s)
	if h.file != "" {
		where = " --config " + shellQuoted(h.file)
	}
	if len(accounts) == 0 {
		return text + "`tollhouse account create NAME" + where + "`, then `tollhouse key create --account NAME" + where + "`"
	}
	return text + "`tollhouse key create --account " + shellQuoted(accounts[0].Account) + where + "`"
}

// isPublic reports whether others than this machine can connect.
func isPublic(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || !tcp.IP.IsLoopback()
}
