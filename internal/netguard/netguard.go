// Package netguard refuses addresses that are not public: those that lead to this machine or
// its network (docs/reference/faults.md, row 33).
package netguard

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
)

// network is a block of addresses that are not public.
type network struct {
	Prefix string
	What   string
	Source string // who says so
}

// denied is IANA's registries of special addresses, the blocks within which other
// networks are reached, and what a public host cannot have. The first that has an
// address names it.
var denied = []network{
	{"0.0.0.0/8", "this host", "RFC 791"},
	{"10.0.0.0/8", "private use", "RFC 1918"},
	{"100.64.0.0/10", "shared by customers of a carrier", "RFC 6598"},
	{"127.0.0.0/8", "loopback", "RFC 1122"},
	{"168.63.129.16/32", "the host of a virtual machine", "Azure's documentation"},
	{"169.254.0.0/16", "link-local", "RFC 3927"},
	{"172.16.0.0/12", "private use", "RFC 1918"},
	{"192.0.0.0/24", "protocol assignments", "RFC 6890"},
	{"192.0.2.0/24", "documentation", "RFC 5737"},
	{"192.31.196.0/24", "a sink for DNS", "RFC 7535"},
	{"192.52.193.0/24", "multicast tunnels", "RFC 7450"},
	{"192.88.99.0/24", "6to4 relays", "RFC 7526"},
	{"192.168.0.0/16", "private use", "RFC 1918"},
	{"192.175.48.0/24", "a sink for DNS", "RFC 7534"},
	{"198.18.0.0/15", "benchmarks", "RFC 2544"},
	{"198.51.100.0/24", "documentation", "RFC 5737"},
	{"203.0.113.0/24", "documentation", "RFC 5737"},
	{"224.0.0.0/4", "multicast", "RFC 5771"},
	{"255.255.255.255/32", "broadcast", "RFC 919"},
	{"240.0.0.0/4", "reserved", "RFC 1112"},

	{"::/128", "unspecified", "RFC 4291"},
	{"::1/128", "loopback", "RFC 4291"},
	{"::ffff:0:0/96", "IPv4 in IPv6", "RFC 4291"},
	{"::ffff:0:0:0/96", "IPv4 in IPv6", "RFC 2765"},
	{"::/96", "IPv4 in IPv6", "RFC 4291"},
	{"64:ff9b::/96", "IPv4 behind a translator", "RFC 6052"},
	{"64:ff9b:1::/48", "IPv4 behind a translator", "RFC 8215"},
	{"100::/64", "discarded", "RFC 6666"},
	{"100:0:0:1::/64", "a dummy", "RFC 9780"},
	{"2001::/32", "Teredo", "RFC 4380"},
	{"2001:2::/48", "benchmarks", "RFC 5180"},
	{"2001:10::/28", "no address but a hash", "RFC 4843"},
	{"2001:20::/28", "no address but a hash", "RFC 7343"},
	{"2001:30::/28", "drones", "RFC 9374"},
	{"2001::/23", "protocol assignments", "RFC 2928"},
	{"2001:db8::/32", "documentation", "RFC 3849"},
	{"2002::/16", "6to4", "RFC 3056"},
	{"2620:4f:8000::/48", "a sink for DNS", "RFC 7534"},
	{"3fff::/20", "documentation", "RFC 9637"},
	{"5f00::/16", "segment routing", "RFC 9602"},
	{"fc00::/7", "private use", "RFC 4193"},
	{"fe80::/10", "link-local", "RFC 4291"},
	{"fec0::/10", "site-local", "RFC 3879"},
	{"ff00::/8", "multicast", "RFC 4291"},
	{"::/3", "not assigned to public hosts", "RFC 4291"}, // which are in 2000::/3
	{"4000::/2", "not assigned to public hosts", "RFC 4291"},
	{"8000::/1", "not assigned to public hosts", "RFC 4291"},
}

var prefixes = sync.OnceValues(func() (parsed []netip.Prefix, err error) {
	for _, r := range denied {
		p, err := netip.ParsePrefix(r.Prefix)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
})

// Inside is the error of an address that is not public. It does not hold the
// address, which others must not learn.
type Inside network

// Error names the kind of address.
func (n *Inside) Error() string {
	return fmt.Sprintf("the host's address is not public (%s, %s)", n.What, n.Source)
}

// Guard is Check for a [net.Dialer]: it checks the address that a socket is about to
// connect to. So what a name resolved to earlier does not matter.
func Guard(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return Check(at.Addr())
}

// Check fails with an *[Inside] unless the address is public.
func Check(ip netip.Addr) error {
	all, err := prefixes()
	if err != nil {
		return err
	}
	for i, p := range all {
		if p.Contains(ip.WithZone("")) { // no prefix contains an address with a zone
			return (*Inside)(&denied[i])
		}
	}
	if !ip.IsValid() || ip.Zone() != "" {
		return &Inside{What: "of one link only", Source: "RFC 4007"}
	}
	return nil
}
