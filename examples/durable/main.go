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
	ctx, end := context.WithCancel(context.Background()) // a server ends by a signal: signal.NotifyContext
	defer end()
	db, err := sqlite.Open(ctx, file, sqlite.Options{}) // ends what a crash left open
	if err != nil {
		return err
	}
	ledger := db.Ledger() // money, answers and video tasks
	up, err := vendor.New()
	price, err2 := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "1000.00"}) // per million tokens
	g, err3 := gateway.New(gateway.Options{
		Upstream: up, Prices: billing.NewPriceList(map[string]*billing.Price{vendor.Model(): price}),
		Meter: ledger, // and keeps answers and video tasks: one transaction settles a call with both
	})
	if err := errors.Join(err, err2, err3); err != nil {
		return errors.Join(err, db.Close())
	}
	return gateway.Serve(ctx, g, db, program(func(ctx context.Context) error {
		defer end()
		if err := ledger.EnsureAccount(ctx, "alice", 5*billing.One); err != nil { // once
			return err
		}
		ctx = gateway.WithIdempotencyKey(auth.NewContext(ctx, &auth.Principal{Account: "alice"}), "order-17")
		answer, err := g.Chat(ctx, &chat.Request{Model: vendor.Model(), Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}})
		if err != nil {
			return err
		}
		balance, err := ledger.Balance(ctx, "alice")
		fmt.Printf("%s run: charged %s, %s left\n", run, answer.Charge, balance.Posted)
		return err
	}))
}

// program is a service of our own, beside the gateway and the database.
type program func(ctx context.Context) error

// Run implements gateway.Service.
func (p program) Run(ctx context.Context) error { return p(ctx) }

// Output:
// first run: charged 0.018, 4.982 left
// second run: charged 0.018, 4.982 left
