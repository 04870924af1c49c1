//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/store"
)

// variable is the environment's that makes this binary a child: its task.
const variable = "TOLLHOUSE_CRASHTEST_TASK"

func TestMain(m *testing.M) { os.Exit(childproc.Main(m, variable, child)) }

// child does a task and returns the exit code of the process. It ends early,
// and in order, when its standard input ends.
func child(t task, v *voice) int {
	k := newKiller(t, v)
	ctx := context.Background()
	db, err := t.open(ctx, store.Options{Wrap: k.wrap})
	if err != nil {
		v.Say(event{Kind: broken, ID: "open", Error: err.Error()})
		return 1
	}
	k.phase.Store(serving)
	v.Say(event{Kind: opened})
	if t.Postgres {
		go func() { _ = db.Run(ctx) }() // it ends with the process
	}
	work(ctx, db, t, v)
	if err := db.Close(); err != nil {
		v.Say(event{Kind: broken, ID: "close", Error: err.Error()})
	}
	v.Say(event{Kind: finished})
	return 0
}

func work(ctx context.Context, db *store.DB, t task, v *voice) {
	if t.Workers == 0 {
		return
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	first := newWorker(db, t, v, 0)
	for _, name := range t.Accounts {
		first.create(ctx, name)
	}
	first.bound(ctx)
	var all sync.WaitGroup
	for i := range t.Workers {
		w := newWorker(db, t, v, i+1)
		all.Go(func() {
			for range t.Ops {
				select {
				case <-stop:
					return
				default:
					w.step(ctx)
				}
			}
		})
	}
	all.Wait()
}

// worker is one caller of the store.
type worker struct {
	db    *store.DB
	voice *voice
	task  task
	dice  *rand.Rand
	name  string
	count int
	price *billing.Price
	last  request // that was settled
}

func newWorker(db *store.DB, t task, v *voice, number int) *worker {
	dice := rand.New(rand.NewPCG(t.Seed, uint64(number)))
	// A unit is an image; what the other costs makes the price a new one.
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}, billing.Rate{Unit: billing.Second, Amount: fmt.Sprint(1 + t.Seed%1_000_000)})
	if err != nil {
		os.Exit(5)
	}
	return &worker{db: db, voice: v, task: t, dice: dice, name: fmt.Sprintf("%s-%d", t.Prefix, number), price: price}
}

// ask says what is asked for, asks for it, and says what came of it. Errors
// that are none of those that are allowed are a defect.
func (w *worker) ask(e event, allowed []fault.Code, do func() (*billing.Receipt, error)) bool {
	w.voice.Say(e)
	r, err := do()
	answer := event{Kind: e.Kind, Done: true, ID: e.ID, Account: e.Account, N: e.N, More: e.More, Receipt: r}
	if err == nil {
		w.voice.Say(answer)
		return true
	}
	answer.Code, answer.Error = fault.From(err).Code, err.Error()
	for _, code := range allowed {
		if answer.Code == code {
			w.voice.Say(answer)
			return false
		}
	}
	answer.Kind, answer.Error = broken, e.Kind+": "+answer.Error
	w.voice.Say(answer)
	return false
}

// units is an amount of money.
func units(n int64) billing.Money { return billing.Money(n) * billing.One }
