package router_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// still is an upstream that costs nothing.
type still struct{ reply upstream.Reply }

func (s *still) Do(context.Context, *upstream.Call) (*upstream.Reply, error) { return &s.reply, nil }

type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Close() error             { return nil }

// BenchmarkRouter is what a Router adds to a call: an answer, read to its end.
func BenchmarkRouter(b *testing.B) {
	up := &still{upstream.Reply{Status: 200, Body: empty{}}}
	named := func(name, id string) router.Channel {
		return router.Channel{Name: name, Upstream: up, Models: map[string]string{"m": id}}
	}
	discovered := map[string]string{"m": "vendor-model"}
	for i := range 9_999 {
		discovered[fmt.Sprint("other-", i)] = "id"
	}
	for name, r := range map[string]*router.Router{
		"sole":            router.Single(up),
		"three channels":  newRouter(b, router.Options{}, named("1", "m"), named("2", "m"), named("3", "m")),
		"model rewritten": newRouter(b, router.Options{}, named("1", "vendor-model")),
		"one of 10,000":   newRouter(b, router.Options{}, router.Channel{Name: "1", Upstream: up, Discovered: discovered}),
	} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			c := call(b, hello)
			buf := make([]byte, 512)
			b.ReportAllocs()
			for b.Loop() {
				reply, err := r.Do(ctx, c)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = reply.Body.Read(buf)
				_ = reply.Body.Close()
			}
		})
	}
}

// BenchmarkRead is what a Router adds to each read of a stream.
func BenchmarkRead(b *testing.B) {
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return says(readFunc(func(p []byte) (int, error) { return len(p), nil })), nil
	})
	reply, err := router.Single(up).Do(b.Context(), call(b, hello))
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	buf := make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = reply.Body.Read(buf)
	}
}

// BenchmarkNewRouter is what a changed list costs, once: a router of 10,000 models, of which
// each operation has its routes.
func BenchmarkNewRouter(b *testing.B) {
	discovered := make(map[string]string)
	for i := range 10_000 {
		discovered[fmt.Sprint("groq/", i)] = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := newRouter(b, router.Options{}, router.Channel{Name: "1", Upstream: &still{}, Discovered: discovered})
		r.Wrap(func(up upstream.Upstream) upstream.Upstream { return up })
	}
}
