// Command observe tells of each request and of its attempts, one of which fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	away := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, &upstream.Failure{Err: errors.New("nobody is there")}
	})
	every := map[string]string{"*": "*"}
	router, err := router.New([]router.Channel{
		{Name: "broken", Upstream: away, Models: every},
		{Name: "simulated", Upstream: sim.New(sim.Options{}), Models: every, Priority: 1},
	}, router.Options{})
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: router, Observe: []gateway.Observer{{
		Attempted: func(_ context.Context, a gateway.AttemptEvent) {
			fmt.Printf("attempt at %s: %q\n", a.Channel, a.Code)
		},
		End: func(_ context.Context, f *gateway.RequestEvent) {
			fmt.Printf("%s of %s by %s: %s\n", f.Op, f.Model, f.Channel, f.Outcome)
			if r := f.Receipt; r != nil { // nil if nothing was held
				fmt.Printf("%d tokens in, %d out\n", r.Usage.Input, r.Usage.Output)
			}
		},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	question := chat.Message{Role: "user", Content: chat.Text("What does the bridge cost?")}
	if _, err := g.Chat(context.Background(), &chat.Request{Model: "delta-k3", Messages: []chat.Message{question}}); err != nil {
		log.Fatal(err)
	}
}

// Output:
// attempt at broken: "service_unavailable"
// attempt at simulated: ""
// chat of delta-k3 by simulated: complete
// 6 tokens in, 38 out
