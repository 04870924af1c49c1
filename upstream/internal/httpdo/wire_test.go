package httpdo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// TestHostileHeaders is docs/reference/faults.md, row 8.
func TestHostileHeaders(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
	for name, row := range map[string]struct {
		head string
		want http.Header
		code fault.Code
	}{
		"plain":           {ok + "Content-Type: application/json\r\n\r\n", http.Header{"Content-Type": {"application/json"}}, ""},
		"cookie and more": {ok + "Set-Cookie: a=b\r\nServer: x\r\nConnection: keep-alive\r\nX-Request-Id: r\r\nTrailer: T\r\nContent-Type: application/json\r\n\r\n", http.Header{"Content-Type": {"application/json"}}, ""},
		"interim answers": {"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + ok + "\r\n", nil, ""},
		"strange type":    {ok + "Content-Type: Text/Plain ; a=\"b\\\"c\"\r\n\r\n", http.Header{"Content-Type": {`text/plain; a="b\"c"`}}, ""},
		"broken type":     {ok + "Content-Type: application/json; =\r\n\r\n", nil, ""},
		"bare CR":         {ok + "Content-Type: application/json\rSet-Cookie: a=b\r\n\r\n", nil, ""},
		"folded":          {ok + "Content-Type: application/json\r\n Set-Cookie: a=b\r\n\r\n", nil, ""},
		"switching":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", nil, fault.BadGateway},
		"no HTTP":         {"SSH-2.0-x\r\n\r\n", nil, fault.BadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			up := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if took(r) {
					_, _ = io.WriteString(c, row.head+"{}")
				}
			}).up
			if row.code != "" {
				if e, f := vendortest.Refused(t, up, call(t, false, 0)); e.Code != row.code || !f.Sent {
					t.Errorf("%v, failure %+v", e, f)
				}
				return
			}
			reply, err := up.Do(t.Context(), call(t, false, 0))
			if err != nil {
				if name == "bare CR" || name == "folded" {
					return // refusing it is as good
				}
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if name == "folded" {
				if strings.ContainsAny(reply.Header.Get("Content-Type"), "\r\n") {
					t.Errorf("%q", reply.Header)
				}
				return
			}
			if diff := cmp.Diff(row.want, reply.Header); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestABilledRequestIsNeverSentTwice: on a connection that was used before, a
// vendor takes the request and hangs up.
func TestABilledRequestIsNeverSentTwice(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for name, die := range map[string]func(net.Conn){
		"end":   func(c net.Conn) { _ = c.Close() },
		"reset": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"half a head": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 O")
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			up := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				for first := true; took(r); first = false {
					requests.Add(1)
					if !first {
						die(c)
						return
					}
					_, _ = io.WriteString(c, answer)
				}
			}).up
			reply, err := up.Do(t.Context(), call(t, false, 0))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			_ = reply.Body.Close()
			e, f := vendortest.Refused(t, up, call(t, false, 0))
			if e.Code != fault.BadGateway || !f.Sent || requests.Load() != 2 {
				t.Errorf("%v, sent %v, %d requests reached the vendor, want 2", e, f.Sent, requests.Load())
			}
		})
	}
}

// stuck is a connection whose next writes fail with nothing written.
type stuck struct {
	net.Conn
	broken *atomic.Bool
}

func (s stuck) Write(p []byte) (int, error) {
	if s.broken.Load() {
		return 0, syscall.EPIPE
	}
	return s.Conn.Write(p)
}

func TestAnIdleConnectionThatDiedIsNoRequestSentAndTheRouterAsksAgain(t *testing.T) {
	var broken atomic.Bool
	var dials atomic.Int32
	o := upstream.DriverOptions{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if dials.Add(1) > 1 || err != nil {
			return c, err
		}
		return stuck{c, &broken}, nil
	}}
	var requests atomic.Int32
	up := listen(t, o, func(_ *hostile, c net.Conn, r *bufio.Reader) {
		for took(r) {
			requests.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}).up
	router := router.Single(up)
	var attempts []upstream.Attempt
	for range 2 {
		reply, err := router.Do(t.Context(), call(t, false, 0))
		if err != nil {
			t.Fatal(err)
		}
		attempts = append(attempts, reply.Attempts...)
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		broken.Store(true)
	}
	if len(attempts) != 3 || requests.Load() != 2 || dials.Load() != 2 {
		t.Fatalf("%d attempts, %d requests, %d connections", len(attempts), requests.Load(), dials.Load())
	}
	var f *upstream.Failure
	if !errors.As(attempts[1].Err, &f) || f.Sent {
		t.Errorf("the attempt on the dead connection: %v", attempts[1].Err)
	}
}

func TestAConnectionThatNeverWasIsNoRequestSent(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS() // with a certificate that nobody trusts
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, o := range map[string]upstream.DriverOptions{
		"refused":     {BaseURL: "http://127.0.0.1:1"},
		"certificate": {BaseURL: secure.URL},
		"no TLS":      {BaseURL: strings.Replace(plain.URL, "http:", "https:", 1)},
		"dial fails": {Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("sk-1 is the key")
		}},
	} {
		o.Keys = []secret.String{secret.New("sk-1")}
		e, f := vendortest.Refused(t, vendortest.New(t, openai.New, o), call(t, false, 0))
		if e.Code != fault.NoChannel || f.Sent || f.Status != 0 || strings.Contains(e.Error(), "sk-1") {
			t.Errorf("%s: %v, %+v", name, e, f)
		}
	}
}

func TestARefusalThatUnfoldsIsReadInPart(t *testing.T) {
	refusal := vendortest.Responds(400, map[string]string{"Content-Encoding": "gzip"}, string(vendortest.Gzip(t, 8<<20)))
	if e, _ := vendortest.Refused(t, vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, refusal)}), call(t, false, 0)); e.HTTPStatus() != 400 {
		t.Errorf("%v", e)
	}
}

func TestABodyThatCannotBeReadIsNotSent(t *testing.T) {
	c := call(t, false, 0)
	c.Body = upstream.BytesBody([]byte("--b")).Set("a", nil)
	if _, err := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, http.NotFoundHandler())}).Do(t.Context(), c); !fault.Is(err, fault.InternalError) {
		t.Error(err)
	}
}

// TestAVendorThatAnswersBeforeItReadTheRequest is docs/reference/faults.md, row 39.
func TestAVendorThatAnswersBeforeItReadTheRequest(t *testing.T) {
	answer := strings.Repeat("x", 64<<10)
	up := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			_, _ = io.Copy(io.Discard, req.Body)
		}
	}).up
	c := call(t, false, 256<<10)
	for range 300 {
		reply, err := up.Do(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, reply.Body)
		if n != int64(len(answer)) || errors.Join(err, reply.Body.Close()) != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"/elsewhere", "http://%zz"} {
			asked := 0
			up := vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked > 1 {
					status = 200
				}
				vendortest.Responds(status, map[string]string{"Location": location}, "")(w, r)
			}))})
			e, f := vendortest.Refused(t, up, call(t, false, 0))
			if e.Code != fault.BadGateway || !f.Sent || asked != 1 {
				t.Errorf("%d: %v, asked %d times", status, e, asked)
			}
		}
	}
}
