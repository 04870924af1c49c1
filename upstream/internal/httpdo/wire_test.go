package httpdo

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

func TestTheHeadersOfAContextTravelBesideTheDriversOwn(t *testing.T) {
	var got http.Header
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer vendor.Close()
	c, err := New(upstream.DriverOptions{BaseURL: vendor.URL}, Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	wire := http.Header{"Traceparent": {"00-1-2-01"}, "X-Version": {"theirs"}, "Authorization": {"Bearer theirs"}}
	header := http.Header{"X-Version": {"ours"}, "Authorization": {"Bearer ours"}}
	resp, _, err := c.Get(upstream.WithWire(t.Context(), wire), c.Base, header)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for name, want := range map[string]string{"Traceparent": "00-1-2-01", "X-Version": "ours", "Authorization": "Bearer ours"} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	if len(wire) != 3 || upstream.Wire(t.Context()) != nil {
		t.Error("the context's headers were changed, or come from nowhere")
	}
}
