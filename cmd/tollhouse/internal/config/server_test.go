package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTheServersBoundsAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]Server{
		"":                                     {},
		"server: {}":                           {},
		"server: {max_calls: 100}":             {MaxCalls: 100},
		"server: {max_waiting: 7}":             {MaxWaiting: 7},
		"server: {max_connections: 5000}":      {MaxConnections: 5000},
		"server: {max_connections_per_ip: 50}": {MaxConnectionsPerIP: 50},
		"server: {memory: 2GiB}":               {Memory: 2 << 30},
		"server: {memory: 512 MiB}":            {Memory: 512 << 20},
		"server: {trusted_proxies: [10.1.2.3/8, 192.0.2.1, '2001:db8::1']}": {TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
		}},
	} {
		got := read(t, sound+text).Server
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Server{}, "Pos"), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestABoundOfTheServerThatIsNoneIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"server: {max_calls: 0}":                      "max_calls: it must be a whole number, 1 or more",
		"server: {max_waiting: -1}":                   "max_waiting: it must be a whole number, 1 or more",
		"server: {max_connections: many}":             "max_connections: it must be a whole number, 1 or more",
		"server: {max_connections_per_ip: 1.5}":       "max_connections_per_ip: it must be a whole number, 1 or more",
		"server: {memory: 2}":                         "memory: write a size such as 512MiB or 2GiB",
		"server: {memory: 63MiB}":                     "memory: write a size such as 512MiB or 2GiB",
		"server: {memory: 9999999999TiB}":             "memory: write a size such as 512MiB or 2GiB",
		"server: {trusted_proxies: [example.com]}":    "trusted_proxies: write an address such as 10.0.0.7",
		"server: {trusted_proxies: ['fe80::1%eth0']}": "trusted_proxies: write an address such as 10.0.0.7",
		"server: {max_cals: 1}":                       `server has no field "max_cals"`,
	} {
		_, err := Read("t.yaml", []byte(sound+text), env)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestASectionOfTheServerIsTheSameWhereverItStands(t *testing.T) {
	plain := read(t, sound+"server: {max_calls: 5, trusted_proxies: [10.0.0.1]}").Server
	for text, same := range map[string]bool{
		"limits: {rpm: 1}\nserver: {trusted_proxies: [10.0.0.1/32], max_calls: 5}": true,
		"server: {max_calls: 6, trusted_proxies: [10.0.0.1]}":                      false,
		"server: {max_calls: 5, trusted_proxies: [10.0.0.2]}":                      false,
		"server: {max_calls: 5}":                                                   false,
		"":                                                                         false,
	} {
		other := read(t, sound+text).Server
		if got := plain.Same(&other); got != same {
			t.Errorf("%q: %t", text, got)
		}
	}
}
