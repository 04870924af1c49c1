package upstreamtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// samples are of a wire that is the public one, for every operation that up
// supports.
func samples(up upstream.Upstream) map[upstream.Op]upstreamtest.Sample {
	all := make(map[upstream.Op]upstreamtest.Sample)
	for _, op := range upstream.Ops() {
		if upstream.Supports(up, op, "m") {
			all[op] = sample(op)
		}
	}
	return all
}

// sample is the same for every operation, but that only chats stream.
func sample(op upstream.Op) upstreamtest.Sample {
	s := upstreamtest.Sample{
		Model:   "m",
		Request: []byte(`{"model":"m","messages":[]}`),
		Stream:  []byte(`{"model":"m","messages":[],"stream":true}`),
		Answer:  []byte(`{"choices":[{"index":0}]}`),
		Events:  []string{"data: {}\n\n", "data: [DONE]\n\n"},
		Refusal: upstreamtest.Refusal{
			Status: 400, Body: []byte(`{"error":{"message":"No.","code":"why"}}`), Code: "why", Message: "No.",
		},
		Check: func(t *testing.T, reply []byte) {
			if len(reply) < 4 {
				t.Errorf("the answer is %q", reply)
			}
		},
	}
	if op != upstream.ChatCompletion {
		s.Stream, s.Events = nil, nil
	}
	return s
}

// over is a harness of the openai driver inside a middleware.
func over(wrap upstream.Middleware, patience time.Duration) upstreamtest.Harness {
	up, _ := openai.New(upstream.DriverOptions{})
	return upstreamtest.Harness{
		Samples: samples(up), MaxWait: patience,
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			server := httptest.NewServer(vendor)
			t.Cleanup(server.Close)
			up, err := openai.New(upstream.DriverOptions{BaseURL: server.URL, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = up.Close() })
			return wrap(up)
		},
	}
}

// local is an upstream without a vendor: it says a word per read until its
// caller leaves.
func local(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	if ctx.Err() != nil {
		return nil, fault.From(ctx.Err())
	}
	return &upstream.Reply{Status: 200, Body: &words{ctx, 3}}, nil
}

type words struct {
	ctx  context.Context
	left int
}

func (w *words) Read(p []byte) (int, error) {
	switch w.left--; {
	case w.ctx.Err() != nil:
		return 0, w.ctx.Err()
	case w.left < 0:
		return 0, io.EOF
	}
	return copy(p, "word"), nil
}

func (w *words) Close() error { return nil }

func TestARouterConforms(t *testing.T) {
	upstreamtest.Run(t, over(func(up upstream.Upstream) upstream.Upstream { return router.Single(up) }, 0))
}

func TestALocalUpstreamConforms(t *testing.T) {
	upstreamtest.Run(t, upstreamtest.Harness{
		Local:   func(*testing.T) upstream.Upstream { return upstream.Func(local) },
		Samples: samples(upstream.Func(local)),
	})
}

// wrong are middlewares that make a driver break a rule each.
var wrong = map[string]upstream.Middleware{
	"bytes go both ways unchanged": answer(func(r *upstream.Reply) {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(r.Body, strings.NewReader("\n")), r.Body}
	}),
	"a body can be sent again": request(func(c *upstream.Call) { c.Body = c.Body.Set("n", []byte("1")) }),
	"the caller's fault keeps its words": failure(func(e *fault.Error) *fault.Error {
		return e.With(func(e *fault.Error) { e.Message = "Something went wrong." })
	}),
	"the vendor's fault keeps its status": failure(func(e *fault.Error) *fault.Error {
		return e.With(func(e *fault.Error) { e.Code = fault.BadGateway })
	}),
	"the operator's fault is not shown": failure(func(e *fault.Error) *fault.Error {
		return e.With(func(e *fault.Error) { e.Message = e.Error() })
	}),
	"a vendor that is away is not sent to": failure(func(e *fault.Error) *fault.Error {
		return (&upstream.Failure{Sent: true, Err: e}).Fault()
	}),
	"a cut answer is an error": answer(func(r *upstream.Reply) {
		data, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(data))
	}),
	"every event is there before the next is sent": answer(func(r *upstream.Reply) {
		data, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(data))
	}),
	"canceling while waiting reaches the vendor": deaf,
	"canceling while reading reaches the vendor": deaf,
	"closing the answer reaches the vendor":      answer(func(r *upstream.Reply) { r.Body = io.NopCloser(r.Body) }),
	"many callers at once": func(up upstream.Upstream) upstream.Upstream {
		busy := make(chan struct{}, 1)
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
				return up.Do(ctx, c)
			default:
				return nil, errors.New("one at a time")
			}
		})
	},
	"goroutines run": func(up upstream.Upstream) upstream.Upstream {
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			go func() { select {} }()
			return up.Do(ctx, c)
		})
	},
}

func request(edit func(*upstream.Call)) upstream.Middleware {
	return func(up upstream.Upstream) upstream.Upstream {
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			edit(c)
			return up.Do(ctx, c)
		})
	}
}

func answer(edit func(*upstream.Reply)) upstream.Middleware {
	return func(up upstream.Upstream) upstream.Upstream {
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			r, err := up.Do(ctx, c)
			if err == nil {
				edit(r)
			}
			return r, err
		})
	}
}

func failure(edit func(*fault.Error) *fault.Error) upstream.Middleware {
	return func(up upstream.Upstream) upstream.Upstream {
		return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			r, err := up.Do(ctx, c)
			if err != nil {
				return nil, edit(fault.From(err))
			}
			return r, nil
		})
	}
}

// deaf lets go of an answer, but never of a call.
func deaf(up upstream.Upstream) upstream.Upstream {
	return upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_ = cancel
		return up.Do(ctx, c)
	})
}

// TestTheSuiteFindsWhatIsWrong runs the suite in a program of its own for each
// rule, with a driver that breaks it.
func TestTheSuiteFindsWhatIsWrong(t *testing.T) {
	const variable = "UPSTREAMTEST_BREAKS"
	if rule := os.Getenv(variable); rule != "" {
		upstreamtest.Run(t, over(wrong[rule], 200*time.Millisecond))
		return
	}
	for rule := range wrong {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			only := "^TestTheSuiteFindsWhatIsWrong$/^chat$/^(says.*|" + strings.ReplaceAll(rule, " ", "_") + ")$"
			if rule == "goroutines run" {
				only = "^TestTheSuiteFindsWhatIsWrong$/^chat$/^(says.*|bytes.*)$"
			}
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout", "1m", "-test.run", only)
			run.Env = append(os.Environ(), variable+"="+rule)
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), strings.ReplaceAll(rule, " ", "_")) && !strings.Contains(string(out), rule) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
