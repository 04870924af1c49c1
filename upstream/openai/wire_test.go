package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// raw is a vendor on a socket: serve gets every connection with its number.
func raw(t *testing.T, o upstream.DriverOptions, serve func(c net.Conn, r *bufio.Reader, n int)) upstream.Driver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c), n)
			}()
		}
	}()
	o.BaseURL = "http://" + l.Addr().String()
	return vendortest.New(t, New, o)
}

// take reads one request; false at the end of the connection.
func take(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// TestHostileHeaders is docs/faults.md, row 8.
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
			up := raw(t, upstream.DriverOptions{}, func(c net.Conn, r *bufio.Reader, _ int) {
				if take(r) {
					_, _ = io.WriteString(c, row.head+"{}")
				}
			})
			if row.code != "" {
				if e, f := vendortest.Refused(t, up, chat(t, false)); e.Code != row.code || !f.Sent {
					t.Errorf("%v, failure %+v", e, f)
				}
				return
			}
			reply, err := up.Do(t.Context(), chat(t, false))
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
			up := raw(t, upstream.DriverOptions{}, func(c net.Conn, r *bufio.Reader, _ int) {
				for first := true; take(r); first = false {
					requests.Add(1)
					if !first {
						die(c)
						return
					}
					_, _ = io.WriteString(c, answer)
				}
			})
			reply, err := up.Do(t.Context(), chat(t, false))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			_ = reply.Body.Close()
			e, f := vendortest.Refused(t, up, chat(t, false))
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
	up := raw(t, o, func(c net.Conn, r *bufio.Reader, _ int) {
		for take(r) {
			requests.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	})
	router := router.Single(up)
	var attempts []upstream.Attempt
	for range 2 {
		reply, err := router.Do(t.Context(), chat(t, false))
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
		up, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		e, f := vendortest.Refused(t, up, chat(t, false))
		if e.Code != fault.NoChannel || f.Sent || f.Status != 0 || strings.Contains(e.Error(), "sk-1") {
			t.Errorf("%s: %v, %+v", name, e, f)
		}
	}
	for _, err := range []error{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.DNSError{}} {
		up, _ := New(upstream.DriverOptions{Transport: tripper(func(*http.Request) (*http.Response, error) { return nil, err })})
		if _, f := vendortest.Refused(t, up, chat(t, false)); f.Sent {
			t.Errorf("a foreign transport's %v counts as sent", err)
		}
	}
}

func TestConnectingTakesFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for given, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Second: time.Second} {
			up, err := New(upstream.DriverOptions{ConnectTimeout: given, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			e, f := vendortest.Refused(t, up, chat(t, false))
			if took := time.Since(start); took != want || e.Code != fault.NoChannel || f.Sent {
				t.Errorf("after %s: %v", took, e)
			}
		}
	})
}

func TestHTTP2(t *testing.T) {
	var requests atomic.Int32
	var behave atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		behave.Load().(http.HandlerFunc)(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	up, err := New(upstream.DriverOptions{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	up.(*driver).OwnTransport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	up.(*driver).OwnTransport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	behave.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto)
	}))
	reply, err := up.Do(t.Context(), chat(t, false))
	if err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	behave.Store(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	e, f := vendortest.Refused(t, up, chat(t, false))
	if string(data) != "HTTP/2.0" || requests.Load() != 2 || e.Code != fault.BadGateway || !f.Sent {
		t.Errorf("%s, %d requests, %v", data, requests.Load(), e)
	}
}

func TestARefusalThatUnfoldsIsReadInPart(t *testing.T) {
	refusal := vendortest.Responds(400, map[string]string{"Content-Encoding": "gzip"}, string(vendortest.Gzip(t, 8<<20)))
	if e, _ := vendortest.Refused(t, newDriver(t, refusal, upstream.DriverOptions{}), chat(t, false)); e.HTTPStatus() != 400 {
		t.Errorf("%v", e)
	}
}

func TestABodyThatCannotBeReadIsNotSent(t *testing.T) {
	c := chat(t, false)
	c.Body = upstream.BytesBody([]byte("--b")).Set("a", nil)
	if _, err := newDriver(t, http.NotFoundHandler(), upstream.DriverOptions{}).Do(t.Context(), c); !fault.Is(err, fault.InternalError) {
		t.Error(err)
	}
}

// TestAVendorThatAnswersBeforeItReadTheRequest is docs/faults.md, row 39.
func TestAVendorThatAnswersBeforeItReadTheRequest(t *testing.T) {
	answer := strings.Repeat("x", 64<<10)
	up := raw(t, upstream.DriverOptions{}, func(c net.Conn, r *bufio.Reader, _ int) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			_, _ = io.Copy(io.Discard, req.Body)
		}
	})
	c := chat(t, false)
	c.Body = c.Body.Set("pad", []byte(`"`+strings.Repeat("y", 256<<10)+`"`))
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
