package httpdo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// oddKey has characters that stand in an address in another form.
const oddKey = "sk/odd+key=="

func TestAKeyIsCarriedAsTheVendorWantsIt(t *testing.T) {
	var got *http.Request
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer vendor.Close()
	own := upstream.Auth{By: upstream.ByHeader, Name: "X-Api-Key"}
	for _, row := range []struct {
		auth          string
		own           upstream.Auth
		query         string // of the call
		header, value string // that the vendor gets
		wantQuery     string
	}{
		{"", upstream.Auth{}, "", "Authorization", "Bearer " + oddKey, ""},
		{"", own, "", "X-Api-Key", oddKey, ""},
		{"bearer", own, "beta=true", "Authorization", "Bearer " + oddKey, "beta=true"},
		{"header:api-key", upstream.Auth{}, "", "Api-Key", oddKey, ""},
		{"header:authorization", upstream.Auth{}, "", "Authorization", oddKey, ""},
		{"query:key", own, "", "", "", "key=sk%2Fodd%2Bkey%3D%3D"},
		{"query:key", own, "beta=true", "", "", "beta=true&key=sk%2Fodd%2Bkey%3D%3D"},
	} {
		auth, err := upstream.ParseAuth(row.auth)
		if err != nil {
			t.Fatal(err)
		}
		o := upstream.DriverOptions{BaseURL: vendor.URL, Keys: vendortest.Keys(oddKey), Auth: auth, Headers: map[string]string{"x-title": "shop"}}
		c := newClient(t, o, Vendor{Auth: row.own})
		to := *c.Base
		to.RawQuery = row.query
		resp, _, err := c.Get(t.Context(), new(upstream.Call), &to, Header("*/*", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		carried := 0
		for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
			if value := got.Header.Get(name); value != "" {
				carried++
				if name != row.header || value != row.value {
					t.Errorf("auth %q: %s is %q, want %s %q", row.auth, name, value, row.header, row.value)
				}
			}
		}
		if (carried == 1) != (row.header != "") || got.URL.RawQuery != row.wantQuery || got.Header.Get("X-Title") != "shop" {
			t.Errorf("auth %q: query %q, headers %v", row.auth, got.URL.RawQuery, got.Header)
		}
		if to.RawQuery != row.query {
			t.Error("the address that all calls share has a key in it")
		}
	}
}

func TestAWayToCarryAKeyThatCannotWorkIsRefused(t *testing.T) {
	for auth, want := range map[string]string{
		"none": "take keys out", "header:Host": "for something else", "header:cookie": "for something else", "header:content-type": "for something else",
	} {
		a, err := upstream.ParseAuth(auth)
		if err != nil {
			t.Fatal(err)
		}
		o := upstream.DriverOptions{BaseURL: "http://a.example", Keys: vendortest.Keys(oddKey), Auth: a}
		if _, err := New(o, Vendor{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("auth %q: %v", auth, err)
		}
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A key in the address may come back in whatever talks about the address.
func TestAKeyInTheAddressIsInNoError(t *testing.T) {
	answer := func(status int, header http.Header, body string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			for name, values := range header {
				header[name] = []string{strings.ReplaceAll(values[0], "URL", r.URL.String())}
			}
			body := strings.ReplaceAll(body, "URL", r.URL.String())
			return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	for name, transport := range map[string]func(*http.Request) (*http.Response, error){
		"a transport that prints the address": func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("no route")}
		},
		"one that wraps it": func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy: %w", &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("no route")})
		},
		"one that writes it": func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("no route to %s", r.URL) },
		"a redirect":         answer(302, http.Header{"Location": {"https://elsewhere.example/?KEY=x&from=URL"}}, ""),
		"a refusal":          answer(400, http.Header{}, `{"error":{"message":"bad URL"}}`),
		"a failure":          answer(500, http.Header{}, `cannot GET URL`),
		"a coding":           answer(200, http.Header{"Content-Encoding": {"URL"}}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			o := upstream.DriverOptions{
				BaseURL: "http://a.example", Keys: vendortest.Keys(oddKey), Auth: upstream.Auth{By: upstream.ByQuery, Name: "key"}, Transport: roundTripFunc(transport),
			}
			c := newClient(t, o, Vendor{Refused: func(c *Client, status int, data []byte, h http.Header) error {
				e, _ := c.Refused(status, string(data), h)
				c.QuoteError(e, VendorError{Message: string(data), Body: data})
				return e
			}})
			resp, _, err := c.Get(t.Context(), new(upstream.Call), c.Base, Header("*/*", ""))
			if err == nil {
				_, err = c.Body(resp)
			}
			if err == nil {
				t.Fatal("it is no error")
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, "odd") {
					t.Errorf("%T: %s", e, text)
				}
			}
		})
	}
}
