package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// A gateway with prices and accounts answers a call and says what it cost.
func Example() {
	ctx := context.Background()
	price, err := billing.NewPrice( // per million tokens
		billing.Rate{Unit: billing.Input, Amount: "0.60"},
		billing.Rate{Unit: billing.Output, Amount: "2.50"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(ctx, "acme", 25*billing.One); err != nil {
		fmt.Println(err)
		return
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}),
		Meter:    ledger,
		Prices:   billing.NewPriceList(map[string]*billing.Price{"my-model": price}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx = auth.NewContext(ctx, &auth.Principal{Account: "acme"})
	answer, err := g.Chat(ctx, &chat.Request{
		Model: "my-model", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	balance, err := ledger.Balance(ctx, "acme")
	fmt.Println(answer.Choices[0].Message.Content)
	fmt.Println(answer.Charge, "of 25.00, left", balance.Available(), err)
	// Output:
	// This is a simulated answer: no model was called. You said: "Hello."
	// 0.0000462 of 25.00, left 24.9999538 <nil>
}

// A Router asks the channel of the lowest priority number first, and the next
// one where that fails before anything was answered.
func ExampleNew() {
	down := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Status: 503} }})
	routing, err := router.New([]router.Channel{
		{Name: "main", Upstream: down, Models: map[string]string{"my-model": "vendor-model-5"}},
		{Name: "spare", Upstream: sim.New(sim.Options{}), Models: map[string]string{"my-model": "other-model-2"}, Priority: 1},
	}, router.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger := memory.NewLedger(memory.LedgerOptions{Count: true}) // usage without money
	g, err := gateway.New(gateway.Options{Upstream: routing, Meter: ledger})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	answer, err := g.Chat(ctx, &chat.Request{
		Model: "my-model", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := ledger.Receipt(ctx, "local", answer.RequestID)
	fmt.Println(answer.Model, "was answered by", receipt.Channel, err)
	// Output:
	// my-model was answered by spare <nil>
}

// Every error is a *fault.Error: act on its code, show its message.
func ExampleGateway_Chat() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{Models: []string{"my-model"}})})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = g.Chat(context.Background(), &chat.Request{Model: "my-model"})
	f := fault.From(err)
	fmt.Println(f.Code, f.HTTPStatus(), f.Param)
	fmt.Println(f.Message)
	// Output:
	// invalid_request_error 400 messages
	// "messages" must be a non-empty array of message objects.
}

// The chunks come as they are produced. Breaking out of the loop hangs up: what
// was received until then is charged.
func ExampleGateway_ChatStream() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream, err := g.ChatStream(context.Background(), &chat.Request{
		Model: "my-model", Messages: []chat.Message{{Role: "user", Content: chat.Text("Count to a thousand.")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	received := 0
	for chunk, err := range stream.Chunks() {
		if err != nil {
			fmt.Println(err) // comes last
			return
		}
		for _, choice := range chunk.Choices {
			fmt.Print(choice.Delta.Content)
		}
		if received++; received == 6 {
			break
		}
	}
	receipt, _ := stream.Receipt()
	fmt.Printf("… (%s, estimated: %t)\n", receipt.Reason, receipt.Usage.Estimated)
	// Output:
	// This is a simulated answer… (client_gone, estimated: true)
}

// What an operator may change while calls run: channels, prices and facts about
// models. A running call keeps what it started with.
func ExampleGateway_Reload() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{Models: []string{"old-model"}})})
	if err != nil {
		fmt.Println(err)
		return
	}
	routing, err := router.New([]router.Channel{{
		Name: "main", Upstream: sim.New(sim.Options{}), Models: map[string]string{"new-model": "vendor-model-6"},
	}}, router.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := g.Reload(gateway.Options{Upstream: routing}); err != nil {
		fmt.Println(err) // and nothing has changed
		return
	}
	models, err := g.Models(context.Background())
	for _, m := range models {
		fmt.Println(m.ID, err)
	}
	// Output:
	// new-model <nil>
}

// Shutdown lets running calls end, and Run's work ends with its context.
func ExampleGateway_Run() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	background, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.Run(background) }()

	// Here the program serves.

	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := g.Shutdown(patience); err != nil {
		fmt.Println("running calls were cut short and settled:", err)
	}
	stop()
	fmt.Println(<-done, g.ShuttingDown(), g.Unsettled())
	// Output:
	// <nil> true 0
}

// The file can be on disk (images.PathFile), in memory, or come from a reader
// (images.ReaderFile).
func ExampleGateway_EditImage() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close() }()
	var cube bytes.Buffer
	if err := png.Encode(&cube, image.NewGray(image.Rect(0, 0, 64, 64))); err != nil {
		fmt.Println(err)
		return
	}

	r, err := g.EditImage(context.Background(), &images.Edit{
		Model:  "imagegen-2",
		Prompt: "make it blue",
		Images: []images.File{images.BytesFile("cube.png", cube.Bytes())},
		Size:   "1024x1024",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := r.Images()[0].Bytes()
	fmt.Printf("%.3s, %v\n", file[1:], err)
	// Output: PNG, <nil>
}
