package config

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
)

// Server is how much the server takes on at one time. A number of zero means the
// default.
type Server struct {
	Pos                 Pos
	MaxCalls            int64
	MaxWaiting          int64
	MaxConnections      int64
	MaxConnectionsPerIP int64
	Memory              int64 // bytes that the process may take
	TrustedProxies      []netip.Prefix
}

// Same reports whether the two say the same, wherever they stand.
func (s *Server) Same(o *Server) bool {
	return s.MaxCalls == o.MaxCalls && s.MaxWaiting == o.MaxWaiting && s.Memory == o.Memory &&
		s.MaxConnections == o.MaxConnections && s.MaxConnectionsPerIP == o.MaxConnectionsPerIP &&
		slices.Equal(s.TrustedProxies, o.TrustedProxies)
}

// Admission is that of the gateway.
func (s *Server) Admission() gateway.Admission {
	return gateway.Admission{MaxCalls: int(s.MaxCalls), MaxWaiting: int(s.MaxWaiting)}
}

func (r *reader) server(n ast.Node, s *Server) {
	s.Pos = position(n)
	r.object(n, "server", fields{
		"max_calls":              r.positive(&s.MaxCalls, "max_calls"),
		"max_waiting":            r.positive(&s.MaxWaiting, "max_waiting"),
		"max_connections":        r.positive(&s.MaxConnections, "max_connections"),
		"max_connections_per_ip": r.positive(&s.MaxConnectionsPerIP, "max_connections_per_ip"),
		"memory":                 into(r, &s.Memory, "memory", parseBytes),
		"trusted_proxies": func(n ast.Node) {
			r.list(n, "trusted_proxies", func(n ast.Node) {
				s.TrustedProxies = append(s.TrustedProxies, parsed(r, n, "an item of trusted_proxies", parsePrefix))
			})
		},
	})
}

// most reads how many of something there may be.
func (r *reader) positive(to *int64, what string) func(ast.Node) {
	return into(r, to, what, func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return 0, errors.New("it must be a whole number, 1 or more; leave it out for the default")
		}
		return n, nil
	})
}

// units are those of a size, the longest names first.
var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// parseBytes reads a size of memory.
func parseBytes(text string) (int64, error) {
	const least = 64 << 20
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err == nil && n > 0 && n <= math.MaxInt64/u.bytes && n*u.bytes >= least {
			return n * u.bytes, nil
		}
	}
	return 0, errors.New("write a size such as 512MiB or 2GiB, at least 64MiB")
}

// parsePrefix reads an address or a network.
func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, errors.New("write an address such as 10.0.0.7, or a network such as 10.0.0.0/8")
}
