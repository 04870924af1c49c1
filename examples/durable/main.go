// Command durable keeps accounts, charges and answers in a SQLite file: what
// was paid before the program ended is paid after it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

func main() {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range []string{"first", "second"} {
		if err := serve(run, filepath.Join(dir, "ledger.db")); err != nil {
			log.Fatal(err)
		}
	}
	_ = os.RemoveAll(dir)
}

// serve is the program from its start to its end.
func serve(run, file string) error {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, file, sqlite.Options{}) // ends what a crash left open
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ledger := db.Ledger() // money, answers and video tasks
	if run == "first" {
		if err := ledger.CreateAccount(ctx, "alice", 5*billing.One); err != nil {
			return err
		}
	}
	up, err := vendor.New()
	price, err2 := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "1000.00"}) // per million tokens
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Prices: billing.NewPriceList(map[string]*billing.Price{vendor.Model(): price}),
		Meter: ledger, Idempotency: ledger, Tasks: ledger, // one transaction settles a call, keeps its answer and changes its video
	})
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = db.Run(background) })            // ends holds of dead processes, until it is stopped
	running.Go(func() { _ = g.Run(background) })             // retries captures, polls video tasks, sends webhooks
	defer func() { _ = g.Close(); stop(); running.Wait() }() // calls end and settle, then the background work, last the database

	ctx = gateway.WithIdempotencyKey(auth.NewContext(ctx, &auth.Principal{Account: "alice"}), "order-17")
	answer, err := g.Chat(ctx, &chat.Request{Model: vendor.Model(), Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}})
	if err != nil {
		return err
	}
	balance, err := ledger.Balance(ctx, "alice")
	fmt.Printf("%s run: charged %s, %s left\n", run, answer.Charge, balance.Posted)
	return err
}

// Output:
// first run: charged 0.018, 4.982 left
// second run: charged 0.018, 4.982 left
