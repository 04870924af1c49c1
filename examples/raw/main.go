// Command raw passes on requests that it does not parse: bytes in, bytes or a
// stream out, with the same checks, limits and bill as over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		pass(g, `{"model":"`+vendor.Model()+`","messages":[{"role":"user","content":"Hello."}]}`),
		pass(g, `{"model":"`+vendor.Model()+`","messages":[{"role":"user","content":"Hello."}],"stream":true}`),
		pass(g, `{"model":"`+vendor.Model()+`","messages":"Hello."}`),
	)
	if err != nil {
		log.Fatal(err)
	}
}

// pass sends one request and counts what comes.
func pass(g *gateway.Gateway, body string) error {
	request := &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(body)}
	response, err := g.Do(context.Background(), gateway.Caller{}, request)
	if err != nil {
		f := fault.From(err)
		fmt.Println("refused:", f.HTTPStatus(), f.Param)
		return nil
	}
	defer response.Close()
	if response.Stream != nil {
		n, err := io.Copy(io.Discard, response.Stream)
		fmt.Println("stream:", response.Header.Get("Content-Type"), n > 0)
		return err
	}
	fmt.Println("whole:", response.Header.Get("Content-Type"), len(response.Body) > 0)
	return nil
}

// Output:
// whole: application/json true
// stream: text/event-stream true
// refused: 400 messages
