// Command goopenai-http puts a gateway with keys and prices behind HTTP and
// calls it with an SDK.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func main() {
	ctx := context.Background()
	up, err := vendor.New()
	price, badPrice := billing.NewPrice( // per million tokens
		billing.Rate{Unit: billing.Input, Amount: "0.60"}, billing.Rate{Unit: billing.Output, Amount: "2.50"})
	key, token, badKey := auth.NewKey(auth.KeyOptions{Account: "acme"}) // the token is shown only here
	keys, ledger := new(memory.Keys), memory.NewLedger(memory.LedgerOptions{})
	err = errors.Join(err, badPrice, badKey, keys.Add(ctx, key), ledger.CreateAccount(ctx, "acme", 25*billing.One))
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Authenticator: &auth.Keys{Store: keys}, Meter: ledger,
		Prices: billing.NewPriceList(map[string]*billing.Price{vendor.Model(): price}),
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	if err != nil {
		log.Fatal(err)
	}
	s := &http.Server{Handler: server.New(g, server.Options{}), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(listener) }()

	for _, t := range []string{token.Reveal(), "sk-somebody-elses"} {
		fmt.Println(ask(ctx, "http://"+listener.Addr().String()+"/v1", t))
	}
	// First the gateway, which lets running calls end, then the connections.
	if err := errors.Join(g.Shutdown(ctx), s.Shutdown(ctx)); err != nil {
		log.Fatal(err)
	}
	balance, err := ledger.Balance(ctx, "acme")
	fmt.Println("balance:", balance.Available(), err)
}

func ask(ctx context.Context, baseURL, token string) string {
	config := openai.DefaultConfig(token)
	config.BaseURL = baseURL
	answer, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: vendor.Model(), Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Is the gate open?"}},
	})
	if refused := (*openai.APIError)(nil); errors.As(err, &refused) {
		return fmt.Sprint("refused: ", refused.HTTPStatusCode, " ", refused.Code)
	} else if err != nil {
		return err.Error()
	}
	return fmt.Sprint("charged: ", answer.Header().Get("X-Gateway-Charge"), " for ", answer.Usage.TotalTokens, " tokens")
}

// Output:
// charged: 0.0000555 for 26 tokens
// refused: 401 unauthorized
// balance: 24.9999445 <nil>
