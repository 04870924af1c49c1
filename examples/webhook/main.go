// Command webhook is told of the end of a video, and verifies who tells.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/video"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// event is a notice of the gateway. It may come more than once, with the same ID.
type event struct {
	ID, Type string
	Data     struct{ ID, Status string }
}

func receive(verifier *webhooks.Webhook, told chan<- event) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || verifier.Verify(body, r.Header) != nil { // the bytes as they came
			http.Error(w, "this is no webhook of the gateway", http.StatusBadRequest)
			return
		}
		var e event
		if json.Unmarshal(body, &e) == nil {
			told <- e
		}
	}
}

func run(ctx context.Context) error {
	tasks := memory.NewTasks(nil, nil) // `tollhouse webhook secret` has that of a server
	secret, err := tasks.WebhookSecret(ctx, "local", false)
	if err != nil {
		return err
	}
	verifier, err := webhooks.NewWebhook(secret.Reveal())
	if err != nil {
		return err
	}
	told := make(chan event, 1)
	receiver := httptest.NewServer(receive(verifier, told))
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{VideoTime: -1}), Tasks: tasks,
		Video: gateway.VideoOptions{Poll: time.Millisecond, AllowPrivate: true}, // for this machine's own address
	})
	if err != nil {
		return err
	}
	go func() { _ = g.Run(ctx) }() // it asks after videos, and delivers notices
	if _, err := g.SubmitVideo(ctx, &video.Request{
		Model: "beta2.6-t2v", Input: []byte(`{"prompt":"a boat"}`), WebhookURL: receiver.URL,
	}); err != nil {
		return err
	}
	e := <-told
	fmt.Println(e.Type, e.Data.Status)
	return nil
}

// Output:
// video.generation.succeeded succeeded
