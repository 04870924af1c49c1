package main

import (
	"net"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// warnings are what is unsafe or incomplete about a start.
func warnings(src *source, l *listeners, s *settings) []string {
	var w []string
	if !src.config.Prepaid() && !src.demo {
		w = append(w, "money is off: whoever has a key can use it without bound, and the vendors charge you")
	}
	if src.guest == "" && !hasKeys(src.config) {
		w = append(w, noKeys(src.config, s))
	}
	if isPublic(l.public.Addr()) {
		w = append(w, "keys and prompts travel in plain HTTP on "+l.public.Addr().String()+": put a TLS proxy in front, or listen on 127.0.0.1")
	}
	if l.admin.Listener != nil && isPublic(l.admin.Addr()) {
		w = append(w, "the admin token travels in plain HTTP on "+l.admin.Addr().String()+": keep --admin on 127.0.0.1")
	}
	return append(w, src.notes...)
}

func hasKeys(c *config.Config) bool {
	for _, a := range c.Accounts {
		if len(a.Keys) > 0 {
			return true
		}
	}
	return false
}

// noKeys tells how to make the first key.
func noKeys(c *config.Config, s *settings) string {
	if s.admin == adminOff {
		return "there are no API keys, and the admin API is off: write accounts with keys into the config file"
	}
	text := "there are no API keys yet: "
	if len(c.Accounts) == 0 {
		return text + "`tollhouse account create NAME`, then `tollhouse key create --account NAME`"
	}
	return text + "`tollhouse key create --account " + c.Accounts[0].Name + "`"
}

// isPublic reports whether others than this machine can connect.
func isPublic(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || !tcp.IP.IsLoopback()
}
