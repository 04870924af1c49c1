package video

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// mostLink is the longest address, in bytes: signed ones are long.
const mostLink = 8192

// isLink reports whether text is an http or https address.
func isLink(text string) bool {
	_, ok := link(text)
	return ok
}

func link(text string) (*url.URL, bool) {
	if len(text) > mostLink {
		return nil, false
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, false
	}
	return u, true
}

// notLink is the refusal of what is no address.
func notLink(param string) *fault.Error {
	return must(URLInvalid, param, "an http or https address")
}

// checkWebhook refuses an address to which no notice would ever go, so that the
// caller hears of it now. Whether the address that a name stands for is public,
// is decided when it is dialled.
func checkWebhook(text string, private bool) error {
	const param = "webhook_url"
	u, ok := link(text)
	switch {
	case !ok:
		return notLink(param)
	case private:
		return nil
	case u.Scheme != "https" || u.Port() != "" && u.Port() != "443" || u.User != nil:
		return must(URLInvalid, param, "an https address on port 443 without a user name")
	case !public(u.Hostname()):
		return must(URLInvalid, param, "the address of a public host")
	}
	return nil
}

// public is false for a host that is certainly not: an address of a private
// network, or a name that stands for one everywhere.
func public(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return true
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && ip.Zone() == ""
}
