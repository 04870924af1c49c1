package router_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// trickle is a body that gives one byte after each pause and then its end.
type trickle struct {
	ctx    context.Context
	pauses []time.Duration
}

func (b *trickle) Read(p []byte) (int, error) {
	if len(b.pauses) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(b.pauses[0]):
		b.pauses = b.pauses[1:]
		p[0] = '.'
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// slow is a vendor that takes its time before its headers and before each byte.
func slow(headers time.Duration, pauses ...time.Duration) *vendor {
	return plays(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		select {
		case <-time.After(headers):
			return says(&trickle{ctx, pauses}), nil
		case <-ctx.Done():
			return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
		}
	})
}

func TestTimeOuts(t *testing.T) {
	const s, m = time.Second, time.Minute
	short := router.Timeouts{Headers: 10 * s, Idle: 2 * s, Total: 30 * s}
	long := make([]time.Duration, 40)
	for i := range long {
		long[i] = s
	}
	for name, row := range map[string]struct {
		limits  router.Timeouts
		headers time.Duration
		pauses  []time.Duration
		want    string // of the message; empty if the answer is whole
		after   time.Duration
	}{
		"in time":                    {short, 8 * s, []time.Duration{s, s, s}, "", 11 * s},
		"no headers":                 {short, m, nil, "begin its answer within 10s", 10 * s},
		"headers but no byte":        {short, s, []time.Duration{m}, "begin its answer within 10s", 10 * s},
		"no silence before the byte": {short, s, []time.Duration{8 * s}, "", 9 * s},
		"silence":                    {short, s, []time.Duration{s, s, m}, "fell silent for 2s", 5 * s},
		"silence just bearable":      {short, s, []time.Duration{s, 2*s - 1, 2*s - 1}, "", 6*s - 2},
		"too long":                   {short, s, long, "end its answer within 30s", 30 * s},
		"headers by default":         {router.Timeouts{}, time.Hour, nil, "begin its answer within 10m0s", 10 * m},
		"idle by default":            {router.Timeouts{}, 0, []time.Duration{9 * m, time.Hour}, "fell silent for 1m0s", 10 * m},
		"total by default":           {router.Timeouts{Idle: time.Hour}, 0, []time.Duration{s, time.Hour}, "end its answer within 30m0s", 30 * m},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := slow(row.headers, row.pauses...), plays("elsewhere")
				c := every("1", first, 1)
				c.Timeout = row.limits
				r := newRouter(t, router.Options{}, c, every("2", second, 2))
				start := time.Now()
				_, err := answer(t.Context(), r, call(t, hello))
				if took := time.Since(start); took != row.after {
					t.Errorf("it took %s, want %s", took, row.after)
				}
				if row.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if e := fault.From(err); e == nil || e.HTTPStatus() != 504 || e.Code != fault.RequestTimeout || !strings.Contains(e.Message, row.want) {
					t.Errorf("error %v", err)
				}
				if second.asked() != 0 {
					t.Error("what may have been billed was asked for again")
				}
			})
		})
	}
}

func TestATimeOutBeforeSendingFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := plays(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
			<-ctx.Done()
			return nil, (&upstream.Failure{Err: ctx.Err()}).Fault()
		})
		r := newRouter(t, router.Options{}, every("1", dials, 1), every("2", plays("ok"), 2))
		if got, err := answer(t.Context(), r, call(t, hello)); got != "ok" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A gateway without room for a large answer reads on later.
func TestATimeOutOfAnUnreadAnswerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for reads, failures := range map[bool]int64{false: 0, true: 1} {
			c := every("1", slow(0, 0, time.Hour), 1)
			c.Timeout = router.Timeouts{Idle: time.Hour, Total: time.Minute}
			r := newRouter(t, router.Options{}, c)
			asks := asking{Router: r, read: func(ctx context.Context, reply *upstream.Reply) error {
				_, err := reply.Body.Read(make([]byte, 1))
				if err == nil && reads {
					_, err = reply.Body.Read(make([]byte, 1))
				}
				<-ctx.Done()
				return errors.Join(err, ctx.Err())
			}}
			_, err := asks.Do(t.Context(), call(t, hello))
			if now := r.Channels()[0]; !fault.Is(err, fault.RequestTimeout) || now.Failures != failures || now.InFlight != 0 {
				t.Errorf("reads %v: %v, %+v", reads, err, now)
			}
		}
	})
}

func TestWithheldTimeDoesNotCountAsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, router.Options{}, every("1", slow(time.Second, 0), 1))
		asks := asking{Router: r, read: func(_ context.Context, reply *upstream.Reply) error {
			time.Sleep(time.Minute)
			reply.Withheld = time.Minute
			return nil
		}}
		reply, err := asks.Do(t.Context(), call(t, hello))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		if now := r.Channels()[0]; now.Latency != time.Second {
			t.Errorf("%+v", now)
		}
	})
}

func TestASlowReaderIsNoIdleTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := every("1", slow(0, 0, 0, 0, 0), 1)
		c.Timeout = router.Timeouts{Idle: time.Second}
		reply, err := newRouter(t, router.Options{}, c).Do(t.Context(), call(t, hello))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		for range 4 {
			time.Sleep(5 * time.Minute)
			if _, err := reply.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reply.Body.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	})
}

func TestTheCallersOwnDeadlineIsNoTimeOutOfTheChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := slow(time.Hour)
		r := router.Single(v)
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := answer(ctx, r, call(t, hello))
			cancel()
			if code(err) != fault.RequestTimeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}
		if !r.Channels()[0].Usable {
			t.Error("the channel's breaker is open")
		}
	})
}

func TestCloseEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply, err := router.Single(slow(0, time.Hour)).Do(t.Context(), call(t, hello))
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := reply.Body.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		if err := reply.Body.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil || err == io.EOF {
			t.Errorf("the read ended by %v", err)
		}
	})
}

// A client that takes its answer slowly must not open the breaker of its channel.
func TestATimeOutOfASlowReaderIsNoFailure(t *testing.T) {
	for name, row := range map[string]struct {
		upstream, reader time.Duration // for each byte
		failures         int64
	}{
		"a slow reader":   {time.Second, 7 * time.Second, 0},
		"a slow upstream": {7 * time.Second, time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			pauses := slices.Repeat([]time.Duration{row.upstream}, 100)
			c := every("c", slow(0, pauses...), 0)
			c.Timeout = router.Timeouts{Total: time.Minute}
			r := newRouter(t, router.Options{}, c)
			reply, err := r.Do(t.Context(), call(t, hello))
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = reply.Body.Read(make([]byte, 1))
				time.Sleep(row.reader)
			}
			_ = reply.Body.Close()
			if now := r.Channels()[0]; code(err) != fault.RequestTimeout || now.Failures != row.failures || now.InFlight != 0 {
				t.Errorf("%s: %v, %+v", name, err, now)
			}
		})
	}
}

func TestAnAnswerThatWasReadOrClosedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			leave func(io.ReadCloser)
			then  error // of a read
		}{
			"closed": {func(b io.ReadCloser) { _ = errors.Join(b.Close(), b.Close()) }, nil},
			"read":   {func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) }, io.EOF},
		} {
			var ended context.Context
			body := &closable{Reader: strings.NewReader("ok")}
			r := newRouter(t, router.Options{}, narrow("c", upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				ended = ctx
				return &upstream.Reply{Status: 200, Body: body}, nil
			}), 1, 0), every("other", plays("other"), 1))
			reply, err := r.Do(t.Context(), call(t, hello))
			if err != nil || ended.Err() != nil {
				t.Fatalf("%v; the call ended by %v", err, ended.Err())
			}
			if got, _ := answer(t.Context(), r, call(t, hello)); got != "other" {
				t.Errorf("%s: before the end the next got %q", name, got)
			}
			row.leave(reply.Body)
			if _, err := reply.Body.Read(make([]byte, 4)); err == nil || row.then != nil && err != row.then {
				t.Errorf("%s: then a read says %v", name, err)
			}
			if n := r.Channels()[0].InFlight; n != 0 || name == "closed" && !body.closed {
				t.Errorf("%s: %d in flight, closed %t", name, n, body.closed)
			}
			time.Sleep(24 * time.Hour) // and no time-out comes
			if cause := context.Cause(ended); cause != context.Canceled {
				t.Errorf("%s: the call's context ended by %v", name, cause)
			}
		}
	})
}

func TestACutAnswerIsABadGateway(t *testing.T) {
	got, err := answer(t.Context(), router.Single(plays(halfAnAnswer)), call(t, hello))
	var f *upstream.Failure
	if got != "half" || code(err) != fault.BadGateway || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &f) || !f.Sent {
		t.Errorf("%q, %v", got, err)
	}
}

// halfAnAnswer is an answer whose connection breaks.
func halfAnAnswer(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return says(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
}
