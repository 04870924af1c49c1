package webhook

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/public"
)

func TestAnAddressHasItsForm(t *testing.T) {
	const (
		never   = iota
		private // with AllowPrivate alone
		always
	)
	for text, want := range map[string]int{
		"https://example.com": always, "https://example.com/": always, "https://EXAMPLE.com:443/hook?a=b#c": always, "HTTPS://example.com/": always,
		"https://a.b-c.example.co.uk/x": always, "https://xn--bcher-kva.example/": always, "https://_x.example.com/": always, "https://1.example.com/": always, "https://example.a1/": always,
		"https://1.1.1.1/": always, "https://[2606:4700::1111]/": always, "https://[2606:4700::1111]:443/": always, "https://example.com:/": always,

		"http://example.com/": private, "https://example.com:8443/": private, "https://example.com:80/": private, "http://example.com:443/": private,
		"https://user@example.com/": private, "https://user:pass@example.com/": private, "https://@example.com/": private,
		"https://127.0.0.1/": private, "http://127.0.0.1:8080/hook": private, "https://[::1]/": private, "http://[::1]:8080/": private, "https://10.0.0.1/": private,
		"https://localhost/": private, "https://printer.local/": private, "https://metadata.google.internal/": private, "https://intranet/": private, "https://a.localhost/": private,
		"https://[fe80::1%25eth0]/": private, "https://[2606:4700::1111%25eth0]/": private, "https://[::ffff:1.1.1.1]/": private,
		"https://example.com:65535/": private, "https://example.com:1/": private,

		"": never, "https://": never, "https:///x": never, "https:example.com": never, "//example.com/": never, "/hook": never, "example.com": never, "example.com:443": never,
		"ftp://example.com/": never, "file:///etc/passwd": never, "gopher://example.com/": never, "unix:///run/x.sock": never, "javascript:alert(1)": never,
		"https://example.com:0/": never, "https://example.com:65536/": never, "https://example.com:x/": never, "https://example.com:-1/": never, "https://:443/": never,
		"https://example.com./": never, "https://example..com/": never, "https://.example.com/": never, "https://-a.example.com/": never, "https://a-.example.com/": never,
		"https://exämple.com/": never, "https://example.com\x00/": never, "https://exa mple.com/": never, "https://exam%70le.com/": never, "https://ex%C3%A4mple.com/": never,
		"https://example.com\\@127.0.0.1/": never, "https://[example.com]/": never, "https://[::1/": never, "https://[1.1.1.1]/": never, "https://a*b.example/": never,
		"https://" + strings.Repeat("a", 64) + ".example/": never, "https://" + strings.Repeat("a.", 127) + "com/": never, "https://example.com/" + strings.Repeat("a", 8192): never,
		"https://2130706433/": never, "https://127.1/": never, "https://0x7f.0.0.1/": never, "https://example.0x7f/": never, "https://example.0x/": never, "https://1.1.1.1.1/": never, "https://256.1.1.1/": never, "https://01.1.1.1/": never,
	} {
		if err := CheckURL(text, false); (err == nil) != (want == always) {
			t.Errorf("%.80q: %v", text, err)
		} else if err != nil && len(text) > 9 && strings.Contains(err.Error(), text) {
			t.Errorf("the error tells the address: %v", err)
		}
		if err := CheckURL(text, true); (err == nil) != (want != never) {
			t.Errorf("%.80q, private allowed: %v", text, err)
		}
	}
}

func FuzzAnAddressThatIsAcceptedHasAnAllowedForm(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	for _, s := range []string{"https://example.com/hook?a=b", "https://1.1.1.1:443", "https://[2606:4700::1111]/", "http://user@10.0.0.1:8080/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseURL(text, false)
		if _, lax := parseURL(text, true); err == nil && lax != nil {
			t.Errorf("%q is refused where private addresses are allowed: %v", text, lax)
		}
		if err != nil {
			return
		}
		host := u.Hostname()
		if u.Scheme != "https" || u.User != nil || u.Port() != "" && u.Port() != "443" || host == "" || len(text) > maxURL || u.Opaque != "" {
			t.Fatalf("%q was accepted as %#v", text, u)
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			if public.Check(ip) != nil || ip.Zone() != "" {
				t.Fatalf("%q was accepted", text)
			}
			return
		}
		for _, c := range host {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", c) {
				t.Fatalf("%q was accepted with the host %q", text, host)
			}
		}
		last := host[strings.LastIndexByte(host, '.')+1:]
		if last == "" || !strings.Contains(host, ".") || strings.Trim(last, "0123456789") == "" || strings.EqualFold(last, "localhost") {
			t.Fatalf("%q was accepted with the host %q", text, host)
		}
	})
}
