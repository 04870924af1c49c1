package netguard

import (
	"net/netip"
	"testing"
)

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
