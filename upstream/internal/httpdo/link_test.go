package httpdo

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// The address that an answer came from is then the proxy's, which is inside.
func TestBehindAProxyALinkMayNotLeadInside(t *testing.T) {
	fetched := 0
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/file" {
			fetched++
		}
	}))
	defer inside.Close()
	all := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, inside.Listener.Addr().String())
	}
	for _, row := range []struct {
		proxy   string
		fetched int
	}{{"", 1}, {"http://proxy.example:3128", 0}} {
		c, err := New(upstream.DriverOptions{BaseURL: "http://vendor.example", Dial: all}, Defaults{})
		if err != nil {
			t.Fatal(err)
		}
		c.OwnTransport.Proxy = func(*http.Request) (*url.URL, error) {
			if row.proxy == "" {
				return nil, nil
			}
			return url.Parse(row.proxy)
		}
		fetched = 0
		ctx := TrackOrigin(t.Context())
		answer, _, err := c.Get(ctx, c.Base.JoinPath("answer"), http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		file, err := c.FetchLink(ctx, "http://vendor.example/file")
		if err == nil {
			_ = file.Body.Close()
		} else if !strings.Contains(err.Error(), "not public") {
			t.Errorf("proxy %q: %v", row.proxy, err)
		}
		if fetched != row.fetched {
			t.Errorf("proxy %q: fetched %d times, %v", row.proxy, fetched, err)
		}
		_ = c.Close()
	}
}
