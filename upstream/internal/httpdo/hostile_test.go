package httpdo_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// hostile is a vendor on a real socket, and the channel that leads to it.
type hostile struct {
	up    *openai.Upstream
	conns sync.WaitGroup // of connections that the script still has
	ended chan struct{}  // closed when the test is over
	mute  chan struct{}  // the script says nothing more
	gone  chan time.Time // when a connection was over, as the vendor saw it
}

// listen starts a vendor whose connections are served by the script.
func listen(t *testing.T, script func(h *hostile, c net.Conn, r *bufio.Reader)) *hostile {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{ended: make(chan struct{}), mute: make(chan struct{}, 64), gone: make(chan time.Time, 64)}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.conns.Go(func() {
				defer c.Close()
				script(h, c, bufio.NewReader(c))
			})
		}
	}()
	if h.up, err = openai.New(openai.Options{BaseURL: "http://" + l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(h.ended)
		_ = l.Close()
		_ = h.up.Close()
		<-accepted
		h.conns.Wait() // hangs, and fails the test, if the gateway keeps a connection
	})
	return h
}

// took reads a request; false at the end of the connection.
func took(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// over says nothing more and waits until the other side has closed the connection.
func (h *hostile) over(r *bufio.Reader) {
	h.mute <- struct{}{}
	_, _ = io.Copy(io.Discard, r)
	h.gone <- time.Now()
}

func call(t testing.TB, stream bool, padding int) *upstream.Call {
	t.Helper()
	o, err := rawjson.Index([]byte(`{"model":"m","messages":[],"pad":"`+strings.Repeat("x", padding)+`"}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Stream: stream, RequestID: "req_1", Body: upstream.ObjectBody(o)}
}

// read makes a call through a Router, as the gateway does, and reads the answer
// to its end.
func (h *hostile) read(ctx context.Context, c *upstream.Call, limits upstream.Timeouts) (string, error) {
	router, err := upstream.NewRouter([]upstream.Channel{{
		Name: "only", Upstream: h.up, Models: map[string]string{"m": "m"}, Timeout: limits,
	}}, upstream.RouterOptions{})
	if err != nil {
		return "", err
	}
	reply, err := router.Do(ctx, c)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(reply.Body)
	return string(data), errors.Join(err, reply.Body.Close())
}

// badGateway reports whether err is a 502 of a request that the vendor has.
func badGateway(err error) bool {
	var f *upstream.Failure
	return fault.Is(err, fault.BadGateway) && errors.As(err, &f) && f.Sent
}
