package mcp

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
)

// checkOrigin refuses what a web page of somewhere else sends: a page can make a
// browser call a server that only the browser's machine reaches, under a name
// that it lets point there (DNS rebinding).
func (h *Handler) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(h.o.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && local(u.Hostname()) {
		return nil
	}
	return fault.New(fault.PermissionDenied, "Web pages of this origin may not call. The operator names those that may in the configuration, under mcp.origins.")
}

// share lets the browser give the answer to the page that asked, whose origin was
// checked.
func share(h http.Header, r *http.Request) {
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, X-Request-Id, Retry-After, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "POST, DELETE")
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
	}
}

// local reports whether a host is this machine, whoever asks.
func local(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
