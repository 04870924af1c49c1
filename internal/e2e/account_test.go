package e2e

import (
	"sync"
	"testing"
	"time"
)

// witness is the independent account: what clients asked for, and what they
// saw.
type witness struct {
	mu   sync.Mutex
	seen map[string]sight // by request id
	lost int              // answers without an id: the connection broke first
}

// sight is one answer and what it has to cost.
type sight struct {
	answer
	charge int64
}

func newWitness() *witness { return &witness{seen: map[string]sight{}} }

// note keeps an answer to a request of the model m.
func (w *witness) note(q request, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.id() == "" {
		w.lost++
		return
	}
	w.seen[a.id()] = sight{a, q.max * price}
}

// whole is how many clients got all of their answer.
func (w *witness) whole() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.whole() {
			n++
		}
	}
	return n
}

// agrees compares the account with the books, in which no hold may be open. A
// broken answer is one whose gateway was killed: nobody knows what became of it.
func (w *witness) agrees(t testing.TB, b books) {
	t.Helper()
	until(t, 40*time.Second, "every hold ends", func() bool { return b.open() == 0 })
	captured := b.captured()
	whole, withheld, broken := 0, 0, 0
	for id, s := range w.seen {
		r, charged := captured[id]
		delete(captured, id)
		switch {
		case s.whole():
			whole++
			if !charged || r.charge != s.charge || r.overrun != 0 {
				t.Errorf("%s was answered, which costs %d: %+v", id, s.charge, r)
			}
		case s.withheld():
			withheld++
			if charged && r.charge != s.charge { // captured, and only the word of it was lost
				t.Errorf("%s was withheld, and was charged %d of %d", id, r.charge, s.charge)
			}
		case s.err != nil:
			broken++
			if charged && r.charge > s.charge {
				t.Errorf("%s broke off, and was charged %d of %d", id, r.charge, s.charge)
			}
		case charged:
			t.Errorf("%s was charged %d for: %s", id, r.charge, s.answer)
		}
	}
	if len(captured) > w.lost {
		t.Errorf("%d captures are of nobody's requests, of which %d lost their connection: %v", len(captured), w.lost, captured)
	}
	t.Logf("%d whole, %d withheld, %d broken off, %d refused; %d lost their connection, of which %d were charged",
		whole, withheld, broken, len(w.seen)-whole-withheld-broken, w.lost, len(captured))
}

// load has workers ask until stop is called, which waits for them. node says
// whom to ask.
func (w *witness) load(c *crowd, workers int, node func(worker int) *node, ask func(worker, i int) request) (stop func()) {
	over := make(chan struct{})
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			pause := time.NewTicker(5 * time.Millisecond)
			defer pause.Stop()
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				q := ask(worker, i)
				a := c.chat(node(worker), q)
				w.note(q, a)
				if !a.whole() {
					<-pause.C
				}
			}
		})
	}
	return func() { close(over); running.Wait() }
}

// mixed is a load of whole answers and streams.
func mixed(worker, i int) request {
	return request{text: "hello", max: int64(1 + (worker+i)%7), stream: (worker+i)%3 == 0}
}
