package netguard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}

func TestEveryRangeOfTheTableIsRefusedFromItsFirstToItsLastAddress(t *testing.T) {
	parsed, err := prefixes()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range parsed {
		r := denied[i]
		if p.Masked() != p || r.What == "" || r.Source == "" {
			t.Errorf("the row %+v is no prefix with a meaning and a source", r)
		}
		for _, ip := range []netip.Addr{p.Addr(), last(p)} {
			var closed *Inside
			if err := Check(ip); !errors.As(err, &closed) {
				t.Errorf("%s of %s: %v", ip, r.Prefix, err)
			}
		}
	}
}

func TestARangeEndsWhereTheTableSaysSo(t *testing.T) {
	for address, want := range map[string]string{
		"0.255.255.255": "this host", "1.0.0.0": "", "9.255.255.255": "", "10.0.0.0": "private", "10.255.255.255": "private", "11.0.0.0": "",
		"100.63.255.255": "", "100.64.0.0": "carrier", "100.100.100.200": "carrier", "100.127.255.255": "carrier", "100.128.0.0": "",
		"126.255.255.255": "", "127.0.0.0": "loopback", "127.255.255.255": "loopback", "128.0.0.0": "",
		"168.63.129.15": "", "168.63.129.16": "machine", "168.63.129.17": "",
		"169.253.255.255": "", "169.254.169.254": "link-local", "169.255.0.0": "",
		"172.15.255.255": "", "172.16.0.0": "private", "172.31.255.255": "private", "172.32.0.0": "",
		"192.0.0.192": "protocol", "192.0.1.0": "", "192.0.2.1": "documentation", "192.0.3.0": "",
		"192.167.255.255": "", "192.168.0.0": "private", "192.168.255.255": "private", "192.169.0.0": "",
		"192.88.98.255": "", "192.88.99.1": "6to4", "192.88.100.0": "",
		"198.17.255.255": "", "198.18.0.0": "benchmarks", "198.19.255.255": "benchmarks", "198.20.0.0": "",
		"198.51.99.255": "", "198.51.100.7": "documentation", "198.51.101.0": "", "203.0.112.255": "", "203.0.113.1": "documentation", "203.0.114.0": "",
		"223.255.255.255": "", "224.0.0.0": "multicast", "239.255.255.255": "multicast", "240.0.0.0": "reserved", "255.255.255.254": "reserved", "255.255.255.255": "broadcast",
		"1.1.1.1": "", "8.8.8.8": "",

		"::": "unspecified", "::1": "loopback", "::2": "IPv4 in", "::7f00:1": "IPv4 in", "::ffff:127.0.0.1": "IPv4 in", "::ffff:1.1.1.1": "IPv4 in", "::ffff:0:127.0.0.1": "IPv4 in",
		"64:ff9b::7f00:1": "translator", "64:ff9b::1.1.1.1": "translator", "64:ff9b:1::1": "translator", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff": "translator", "64:ff9b:2::": "not assigned",
		"100::1": "discarded", "100:0:0:1::1": "dummy", "100:0:0:2::": "not assigned", "1fff:ffff::": "not assigned",
		"2000::": "", "2001::1": "Teredo", "2001:0:7f00:1::": "Teredo", "2001:1::1": "protocol", "2001:2::1": "benchmarks", "2001:10::1": "hash", "2001:2f::1": "hash", "2001:30::1": "drones",
		"2001:1ff:ffff::": "protocol", "2001:200::": "", "2001:db7:ffff::": "", "2001:db8::1": "documentation", "2001:db9::": "", "2001:4860:4860::8888": "",
		"2002:7f00:1::": "6to4", "2003::": "", "2606:4700::1111": "", "2620:4f:8000::1": "DNS", "2a00::1": "", "3ffe:ffff::": "",
		"3fff::1": "documentation", "3fff:fff:ffff::": "documentation", "3fff:1000::": "", "4000::": "not assigned", "5f00::1": "segment", "6000::": "not assigned", "8000::": "not assigned",
		"fc00::1": "private", "fd00:ec2::254": "private", "fdff:ffff::": "private", "fe00::1": "not assigned", "fe80::1": "link-local", "febf::1": "link-local", "fec0::1": "site-local", "feff::1": "site-local", "ff02::1": "multicast",
		"fe80::1%eth0": "link-local", "2606:4700::1111%eth0": "one link",
	} {
		err := Check(netip.MustParseAddr(address))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), address) {
			t.Errorf("the error tells the address: %v", err)
		}
	}
	if Check(netip.Addr{}) == nil {
		t.Error("no address at all was allowed")
	}
}

// FuzzAnAddressThatIsAllowedIsPublic: nothing that the standard library calls by
// a special name is ever allowed, in whatever way it is written or wrapped.
func FuzzAnAddressThatIsAllowedIsPublic(f *testing.F) {
	for _, text := range []string{"1.1.1.1", "127.0.0.1", "::ffff:127.0.0.1", "2606:4700::1111", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%lo", "100.64.0.1", "::", "2001:0:7f00:1::"} {
		a := netip.MustParseAddr(text).WithZone("").As16()
		f.Add(a[:])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		ip, ok := netip.AddrFromSlice(raw)
		if !ok || Check(ip) != nil {
			return
		}
		if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsMulticast() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.Is4In6() {
			t.Errorf("%s is allowed", ip)
		}
		if ip.Is4() && Check(netip.AddrFrom16(ip.As16())) == nil {
			t.Errorf("%s is allowed within IPv6", ip)
		}
	})
}
