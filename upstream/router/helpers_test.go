package router_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// step is what a vendor does with a call.
type step = func(context.Context, *upstream.Call) (*upstream.Reply, error)

// vendor is an upstream with a script: what it does call by call, the last
// entry for good.
type vendor struct {
	mu     sync.Mutex
	script []any // a string to answer, an error, or a step
	calls  []upstream.Call
	only   string // the one model it supports; empty for all
	onlyOp upstream.Op
}

func plays(script ...any) *vendor { return &vendor{script: script} }

func (v *vendor) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	v.mu.Lock()
	next := v.script[min(len(v.calls), len(v.script)-1)]
	v.calls = append(v.calls, *c)
	v.mu.Unlock()
	switch s := next.(type) {
	case string:
		return says(strings.NewReader(s)), nil
	case error:
		return nil, s
	case step:
		return s(ctx, c)
	}
	panic(next)
}

func (v *vendor) Supports(op upstream.Op, model string) bool {
	return (v.only == "" || v.only == model) && (v.onlyOp == "" || v.onlyOp == op)
}

func (v *vendor) asked() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.calls)
}

// says is a reply that reads from r.
func says(r io.Reader) *upstream.Reply {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(r)}
}

// closable is a body that knows whether it was closed.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// failed are the faults that a driver makes of a vendor's status.
func failed(status int) error {
	return (&upstream.Failure{
		Status: status, Sent: true, Err: errors.New("vendor's text"),
		Fatal:   status == 401 || status == 403 || status == 407,
		Refused: status == 429 || status == 503,
	}).Fault()
}

// later is a vendor's refusal that says when to come back.
func later(status int, wait time.Duration) error {
	return fault.From(failed(status)).With(func(e *fault.Error) { e.RetryAfter = wait })
}

// unsent is a connection that never was.
func unsent() error { return (&upstream.Failure{Err: errors.New("no route to host")}).Fault() }

// lost is a connection that broke under the request.
func lost() error { return (&upstream.Failure{Sent: true, Err: io.ErrUnexpectedEOF}).Fault() }

// asking is a router whose replies read judges and whose attempts ended gets; each may be nil.
type asking struct {
	*router.Router
	read  func(context.Context, *upstream.Reply) error
	ended func(upstream.Attempt)
}

func (a asking) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	tries := a.Begin(c)
	defer tries.Close()
	for tries.Next(ctx) {
		reply, err := tries.Send(ctx)
		if err == nil && a.read != nil {
			err = a.read(tries.Context(), reply)
		}
		failed := tries.End(err)
		if a.ended != nil {
			a.ended(tries.Attempt())
		}
		if failed == nil {
			return reply, nil
		}
	}
	return &upstream.Reply{Attempts: tries.Attempts()}, tries.Err()
}

func every(name string, up upstream.Upstream, priority int) router.Channel {
	return router.Channel{Name: name, Upstream: up, Priority: priority, Models: map[string]string{"*": "*"}}
}

func narrow(name string, up upstream.Upstream, most, rpm int) router.Channel {
	c := every(name, up, 0)
	c.MaxConcurrent, c.RPM = most, rpm
	return c
}

func newRouter(t testing.TB, o router.Options, channels ...router.Channel) *router.Router {
	t.Helper()
	r, err := router.New(channels, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func call(t testing.TB, body string) *upstream.Call {
	t.Helper()
	o, err := rawjson.Index([]byte(body), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	model, _ := rawjson.String(o.Raw("model"))
	return &upstream.Call{Op: upstream.ChatCompletion, Model: model, Body: upstream.ObjectBody(o)}
}

// answer makes the call and reads the whole answer.
func answer(ctx context.Context, up upstream.Upstream, c *upstream.Call) (string, error) {
	reply, err := up.Do(ctx, c)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(reply.Body)
	return string(data), errors.Join(err, reply.Body.Close())
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
