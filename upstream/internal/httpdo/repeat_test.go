package httpdo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// script is a transport that answers in order: a status, with what follows it as Retry-After,
// or an error that has the text.
type script struct {
	answers []string
	sent    []time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := s.answers[min(len(s.sent), len(s.answers)-1)]
	s.sent = append(s.sent, time.Now())
	status, after, _ := strings.Cut(answer, " ")
	codes := map[string]int{"200": 200, "302": 302, "404": 404, "429": 429, "500": 500, "501": 501, "503": 503}
	code, known := codes[status]
	if !known {
		return nil, errors.New(answer)
	}
	h := http.Header{"Location": {"/elsewhere"}}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

func (s *script) CloseIdleConnections() { panic("a GET closed the connections of other calls") }

func TestAGetThatFailsIsSentOnceMore(t *testing.T) {
	const forever = time.Hour
	for _, row := range []struct {
		name    string
		answers []string
		within  time.Duration
		want    int // the status; 0 for an error
		tries   int
		after   time.Duration // the first try
	}{
		{"an answer", []string{"200"}, forever, 200, 1, 0},
		{"what is not there", []string{"404"}, forever, 404, 1, 0},
		{"a redirect", []string{"302"}, forever, 302, 1, 0},
		{"what the vendor cannot do", []string{"501"}, forever, 501, 1, 0},
		{"no connection", []string{"connection refused", "200"}, forever, 200, 2, 0},
		{"an error of the vendor's", []string{"500", "200"}, forever, 200, 2, 0},
		{"twice", []string{"500", "503", "200"}, forever, 503, 2, 0},
		{"no connection twice", []string{"connection refused"}, forever, 0, 2, 0},
		{"a limit that says when it ends", []string{"429 3", "200"}, forever, 200, 2, 3 * time.Second},
		{"a limit that does not say so", []string{"429", "200"}, forever, 429, 1, 0},
		{"a fraction", []string{"503 1.5", "200"}, forever, 200, 2, 1500 * time.Millisecond},
		{"a limit for too long", []string{"429 6", "200"}, forever, 429, 1, 0},
		{"a limit for longer than the call", []string{"429 3", "200"}, 2 * time.Second, 429, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: row.answers}
				c := newClient(t, upstream.DriverOptions{Transport: s}, Vendor{})
				ctx, cancel := context.WithTimeout(t.Context(), row.within)
				defer cancel()
				resp, _, err := c.Get(ctx, new(upstream.Call), c.Base, Header("*/*", ""))
				got := 0
				if err == nil {
					got = resp.StatusCode
					readRefusal(resp.Body)
				}
				if got != row.want || len(s.sent) != row.tries {
					t.Fatalf("got %d (%v) after %d tries, want %d after %d", got, err, len(s.sent), row.want, row.tries)
				}
				if after := s.sent[len(s.sent)-1].Sub(s.sent[0]); after != row.after {
					t.Errorf("the second try came after %s, want %s", after, row.after)
				}
			})
		})
	}
}

func TestNothingButAGetIsSentTwice(t *testing.T) {
	for name, send := range map[string]func(*Client) (*http.Response, *upstream.Key, error){
		"POST": func(c *Client) (*http.Response, *upstream.Key, error) {
			return c.Post(t.Context(), new(upstream.Call), c.Base, Header("*/*", ""), upstream.BytesBody([]byte("{}")))
		},
		"DELETE": func(c *Client) (*http.Response, *upstream.Key, error) {
			return c.Delete(t.Context(), new(upstream.Call), c.Base, Header("*/*", ""))
		},
	} {
		s := &script{answers: []string{"503", "200"}}
		c := newClient(t, upstream.DriverOptions{Transport: s}, Vendor{})
		resp, _, err := send(c)
		if err != nil || resp.StatusCode != 503 || len(s.sent) != 1 {
			t.Errorf("%s: %v after %d tries", name, err, len(s.sent))
		}
		readRefusal(resp.Body)
	}
}

func TestALinkIsFetchedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []string{"503", "200"}}
		c := newClient(t, upstream.DriverOptions{Transport: s}, Vendor{})
		resp, err := c.FetchLink(t.Context(), "http://store.example/a.wav")
		if err != nil || resp.StatusCode != 200 || len(s.sent) != 2 {
			t.Fatalf("%v after %d tries", err, len(s.sent))
		}
		readRefusal(resp.Body)
	})
}
