package webhook

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/netguard"
)

const (
	maxURL        = 8192 // bytes; signed addresses are long
	maxHostLength = 253  // characters of a name in the DNS
	https         = "443"
)

// CheckURL says what is wrong with an address for webhooks, as far as that can be
// known without looking its host up: it must be https on port 443, without a user
// name, and must not name what only this machine or network can reach. With
// private, it may be http too, with any port, host and user name. The error never
// holds the address.
func CheckURL(text string, private bool) error {
	_, err := parseURL(text, private)
	return err
}

func parseURL(text string, private bool) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, errors.New("the address is longer than " + strconv.Itoa(maxURL) + " bytes")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		return nil, errors.New("the address must be of the form https://host/path")
	case u.Scheme != "https" && !(private && u.Scheme == "http"):
		return nil, errors.New("the address must begin with https://")
	case u.User != nil && !private:
		return nil, errors.New("the address must not have a user name or a password")
	case u.Port() != "" && u.Port() != https && !private:
		return nil, errors.New("the address must be on port 443")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the address's port must be a number up to 65535")
		}
	}
	return u, checkHost(u, private)
}

// checkHost takes names of the DNS in ASCII and addresses in their one plain
// form: what resolvers and libraries read differently is refused.
func checkHost(u *url.URL, private bool) error {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		if private {
			return nil
		}
		return netguard.Check(ip)
	}
	switch {
	case strings.HasPrefix(u.Host, "["):
		return errors.New("the address has an invalid IPv6 address as its host")
	case !isName(host):
		return errors.New("the address's host must be a name of letters a to z, digits, hyphens and dots, without a dot at its end; write others in their xn-- form")
	case endsInNumber(host):
		return errors.New("the address's host must be a name, or an IPv4 address of four decimal numbers")
	case !private && isLocal(host):
		return errors.New("the address's host must be public")
	}
	return nil
}

// isName reports whether host is a name as the DNS has them.
func isName(host string) bool {
	if len(host) > maxHostLength {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

// endsInNumber reports whether some resolvers would read host as an IPv4 address:
// 2130706433, 0x7f.1, 017700000001.
func endsInNumber(host string) bool {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// isLocal reports whether a name stands for this machine or network everywhere:
// one without a dot, and what RFC 6761, RFC 6762 and ICANN set aside.
func isLocal(host string) bool {
	dot := strings.LastIndexByte(host, '.')
	last := strings.ToLower(host[dot+1:])
	return dot < 0 || last == "localhost" || last == "local" || last == "internal"
}
