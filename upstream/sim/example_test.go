package sim_test

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func Example() {
	request, err := json.Marshal(&chat.Request{
		Model:    "delta-k3",
		Messages: []chat.Message{{Role: "user", Content: chat.Text("Hi!")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := sim.New(sim.Options{}).Do(context.Background(), &upstream.Call{
		Op: upstream.ChatCompletion, Model: "delta-k3", Body: upstream.BytesBody(request),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = reply.Body.Close() }()
	var answer chat.Response
	data, _ := io.ReadAll(reply.Body)
	if err := json.Unmarshal(data, &answer); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Choices[0].Message.Content)
	fmt.Println(answer.Usage.PromptTokens, "tokens in,", answer.Usage.CompletionTokens, "out")
	// Output:
	// This is a simulated answer: no model was called. You said: "Hi!"
	// 2 tokens in, 34 out
}

// A program tests what it does when a vendor's stream breaks off.
func Example_fault() {
	vendor := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault {
		return sim.Fault{Break: sim.ErrorFrame, After: 2, NoUsage: true}
	}})
	request := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi!"}]}`)
	reply, err := vendor.Do(context.Background(), &upstream.Call{
		Op: upstream.ChatCompletion, Model: "m", Stream: true, Body: upstream.BytesBody(request),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream := make([]byte, 4096)
	for range 3 {
		n, _ := reply.Body.Read(stream)
		fmt.Printf("%.22s…\n", stream[:n])
	}
	fmt.Println(reply.Body.Close())
	// Output:
	// data: {"id":"chatcmpl-…
	// data: {"id":"chatcmpl-…
	// data: {"error":{"messa…
	// <nil>
}

// A program tests what it does about a video of which it never hears whether it
// was taken.
func Example_lost() {
	lost := sim.New(sim.Options{VideoTime: time.Minute, Fault: func(c *upstream.Call) sim.Fault {
		if c.Op == upstream.SubmitVideo {
			return sim.Fault{Break: sim.Lost}
		}
		return sim.Fault{}
	}})
	_, err := lost.Do(context.Background(), &upstream.Call{
		Op: upstream.SubmitVideo, Model: "gamma-2-0-260128",
		Body: upstream.BytesBody([]byte(`{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a boat"}]}`)),
	})
	fmt.Println(err != nil, lost.Jobs())
	// Output: true 1
}
