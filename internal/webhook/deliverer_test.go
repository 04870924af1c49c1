package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/webhook"
)

// fakeOutbox is a webhook.Outbox in memory whose calls fail as a test says.
type fakeOutbox struct {
	secret webhook.Secret
	ahead  time.Duration // of the process's clock, by which it is given times

	mu    sync.Mutex
	all   map[string]*webhook.Status
	until map[string]time.Time // leases
	fail  map[string]int       // calls that fail yet, by name; negative for panics
	calls map[string]int
}

func newOutbox(t testing.TB, fail map[string]int, ds ...webhook.Delivery) *fakeOutbox {
	f := &fakeOutbox{secret: newSecret(t), all: map[string]*webhook.Status{}, until: map[string]time.Time{}, fail: maps.Clone(fail), calls: map[string]int{}}
	f.add(ds...)
	return f
}

func (f *fakeOutbox) add(ds ...webhook.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		f.all[d.ID] = &webhook.Status{Delivery: d, State: webhook.Waiting}
	}
}

// call counts a call; the caller holds the lock.
func (f *fakeOutbox) call(name string) error {
	f.calls[name]++
	switch n := f.fail[name]; {
	case n > 0:
		f.fail[name]--
		return errors.New("the database is away")
	case n < 0:
		f.fail[name]++
		panic("a bug in the database")
	}
	return nil
}

func (f *fakeOutbox) Due(_ context.Context, _ string, until time.Time, n int) (due []webhook.Delivery, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("due"); err != nil {
		return nil, err
	}
	for _, s := range f.all {
		if len(due) < n && s.State == webhook.Waiting && !s.Next.After(time.Now()) && !f.until[s.ID].After(time.Now()) {
			due = append(due, s.Delivery)
			f.until[s.ID] = until.Add(-f.ahead)
		}
	}
	return due, nil
}

func (f *fakeOutbox) Done(ctx context.Context, id string, _ time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmp.Or(ctx.Err(), f.call("done")); err != nil {
		return err
	}
	f.all[id].State = webhook.Sent
	return nil
}

func (f *fakeOutbox) Failed(_ context.Context, d webhook.Delivery, next time.Time, reason string, final bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("failed"); err != nil {
		return err
	}
	s := f.all[d.ID]
	s.Tries, s.Reason, s.Next, f.until[d.ID] = d.Tries+1, reason, next.Add(-f.ahead), time.Time{}
	if final {
		s.State = webhook.Failed
	}
	return nil
}

func (f *fakeOutbox) Secrets(context.Context, string) ([]webhook.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []webhook.Secret{f.secret}, f.call("secrets")
}

func (f *fakeOutbox) status(id string) webhook.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.all[id]
}

func (f *fakeOutbox) count(state webhook.State) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		if s.State == state {
			n++
		}
	}
	return n
}

// attempts records the attempts of a deliverer, and answers the nth by result, which
// may be nil.
type attempts struct {
	result func(n int) Result

	mu  sync.Mutex
	all []webhook.Delivery
	at  []time.Time
}

func (r *attempts) post(_ context.Context, d webhook.Delivery, at time.Time, _ []webhook.Secret) Result {
	r.mu.Lock()
	r.all, r.at = append(r.all, d), append(r.at, at)
	n := len(r.all)
	r.mu.Unlock()
	if r.result == nil {
		return Result{Outcome: Delivered}
	}
	return r.result(n)
}

func (r *attempts) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// start runs a deliverer in a bubble. The returned function ends it.
func start(o DelivererOptions) (d *Deliverer, end func()) {
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Now == nil {
		o.Now, o.Clock = time.Now, time.Now
	}
	d = NewDeliverer(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	return d, func() {
		cancel()
		<-done
	}
}

// event is a delivery to a host, of the account acme.
func event(n int, host string) webhook.Delivery {
	id := fmt.Sprintf("evt_%05d", n)
	return webhook.Delivery{ID: id, Account: "acme", URL: "http://" + host + "/hook", Body: []byte(`{"id":"` + id + `"}`), CreatedAt: time.Now()}
}

// events are deliveries to as many hosts.
func events(n int) (all []webhook.Delivery) {
	for i := range n {
		all = append(all, event(i, fmt.Sprintf("h%d.example", i)))
	}
	return all
}

// pipes is a listener whose connections never touch the network.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.ended); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTenThousandDeliveriesReachAReceiverThatFailsHalfTheTime(t *testing.T) {
	all := longtest.Count(10_000, 1_000)
	synctest.Test(t, func(t *testing.T) {
		outbox := newOutbox(t, nil)
		for i := range all {
			outbox.add(event(i, fmt.Sprintf("h%d.example", i%20)))
		}
		verifier, err := standardwebhooks.NewWebhook(outbox.secret.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		got, fails, tries := make(map[string]int), make(map[string]int), 0
		coin := rand.New(rand.NewPCG(1, 2))
		network := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			id := r.Header.Get("webhook-id")
			if err := verifier.Verify(data, r.Header); err != nil || string(data) != `{"id":"`+id+`"}` {
				t.Errorf("%s: %v, %s", id, err, data)
			}
			tries++
			fails[id]++
			if coin.IntN(2) == 0 || fails[id] > 6 { // so that none fails for three days
				fails[id] = 0
				got[id]++
				return
			}
			switch coin.IntN(3) {
			case 0:
				got[id]++ // received, but the answer is lost
				panic(http.ErrAbortHandler)
			case 1:
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})}
		served := make(chan error)
		go func() { served <- server.Serve(network) }()
		_, end := start(DelivererOptions{Outbox: outbox, Owner: "a", Post: NewClient(Options{AllowPrivate: true, Dial: network.dial}).Post})
		for began := time.Now(); time.Since(began) < giveUpAfter && outbox.count(webhook.Waiting) > 0; {
			time.Sleep(time.Minute) // of the bubble
		}
		end()
		_ = server.Close()
		<-served
		if len(got) != all || outbox.count(webhook.Sent) != all || tries < all*15/10 || tries > all*3 {
			t.Errorf("%d were received and %d are sent after %d tries", len(got), outbox.count(webhook.Sent), tries)
		}
	})
}

func TestAProcessWithAWrongClockTriesAsLongAndAsOftenAsAnother(t *testing.T) {
	waits := []time.Duration{0, 5 * time.Second, 5*time.Minute + 5*time.Second, 35 * time.Minute, 155 * time.Minute, 455 * time.Minute, 1055 * time.Minute, 1895 * time.Minute, 3095 * time.Minute, 72 * time.Hour}
	for _, ahead := range []time.Duration{0, 4 * 24 * time.Hour, -4 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			outbox, began := newOutbox(t, nil, event(1, "down.example")), time.Now()
			outbox.ahead = ahead
			tried := &attempts{result: func(int) Result { return Result{Retry, 500, "down"} }}
			_, end := start(DelivererOptions{
				Outbox: outbox, Post: tried.post, Now: func() time.Time { return time.Now().Add(ahead) }, Clock: time.Now,
				Rand: func(n int64) int64 { return n / 2 },
			})
			time.Sleep(10 * 24 * time.Hour)
			end()
			if len(tried.at) != len(waits) {
				t.Fatalf("%s ahead: %d attempts, want %d", ahead, len(tried.at), len(waits))
			}
			for i, at := range tried.at {
				if late := at.Add(-ahead).Sub(began) - waits[i]; late < 0 || late > time.Minute {
					t.Errorf("%s ahead: attempt %d is %s late", ahead, i+1, late)
				}
			}
			if s := outbox.status("evt_00001"); s.State != webhook.Failed {
				t.Errorf("%s ahead: %+v", ahead, s)
			}
		})
	}
}

func TestTheResultOfAnAttemptDecides(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func() Result // of the first attempt; those after it succeed
		state webhook.State
		tries int // that failed
	}{
		{"delivered", func() Result { return Result{Outcome: Delivered} }, webhook.Sent, 0},
		{"gone", func() Result { return Result{Gone, 410, "it said 410"} }, webhook.Failed, 1},
		{"an address that is not public now", func() Result { return Result{Refused, 0, "not public"} }, webhook.Sent, 1},
		{"a failure", func() Result { return Result{Retry, 500, "it said 500"} }, webhook.Sent, 1},
		{"a panic", func() Result { panic("geheim") }, webhook.Sent, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outbox := newOutbox(t, nil, event(1, "a.example"))
				tried := &attempts{result: func(n int) Result {
					if n == 1 {
						return c.first()
					}
					return Result{Outcome: Delivered}
				}}
				_, end := start(DelivererOptions{Outbox: outbox, Post: tried.post})
				time.Sleep(time.Minute)
				end()
				s := outbox.status("evt_00001")
				if s.State != c.state || s.Tries != c.tries || (s.Reason == "") != (c.tries == 0) || strings.Contains(s.Reason, "geheim") {
					t.Errorf("got %+v, want %s after %d failed tries", s, c.state, c.tries)
				}
			})
		})
	}
}

func TestANewDeliveryDoesNotWaitForThePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, tried := newOutbox(t, nil), &attempts{}
		d, end := start(DelivererOptions{Outbox: outbox, Post: tried.post})
		defer end()
		synctest.Wait()
		outbox.add(event(1, "a.example"))
		d.Wake()
		d.Wake()
		synctest.Wait()
		if n := tried.count(); n != 1 {
			t.Errorf("%d attempts after Wake", n)
		}
		outbox.add(event(2, "a.example"))
		time.Sleep(poll)
		synctest.Wait()
		if n := tried.count(); n != 2 {
			t.Errorf("%d attempts after the poll", n)
		}
	})
}

func TestNoMoreIsLeasedThanThereAreWorkersFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := newOutbox(t, nil)
		for _, account := range []string{"acme", "other"} {
			for _, d := range events(500) {
				d.ID, d.Account = account+d.ID, account
				outbox.add(d)
			}
		}
		running := make(chan struct{}, 1000)
		_, end := start(DelivererOptions{Outbox: outbox, Post: func(ctx context.Context, _ webhook.Delivery, _ time.Time, _ []webhook.Secret) Result {
			running <- struct{}{}
			<-ctx.Done()
			return Result{Outcome: Retry}
		}})
		time.Sleep(30 * time.Second)
		left, _ := outbox.Due(t.Context(), "another", time.Now().Add(time.Minute), 1000)
		if len(running) > workers || len(left) < 1000-3*batch {
			t.Errorf("%d attempts run, and %d are left for others", len(running), len(left))
		}
		end()
	})
}

func TestAnAccountWithManySilentReceiversDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := newOutbox(t, nil, events(9600)...)
		delivered := make(chan time.Time, 1)
		d, end := start(DelivererOptions{Outbox: outbox, Post: func(ctx context.Context, d webhook.Delivery, _ time.Time, _ []webhook.Secret) Result {
			if host(d.URL) == "quick.example" {
				delivered <- time.Now()
				return Result{Outcome: Delivered}
			}
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return Result{Retry, 0, "silent"}
		}})
		time.Sleep(15 * time.Second) // in the middle of the second attempts
		other := event(0, "quick.example")
		other.ID, other.Account = "evt_", "other"
		added := time.Now()
		outbox.add(other)
		d.Wake()
		if waited := (<-delivered).Sub(added); waited > 0 {
			t.Errorf("the other account waited %s", waited)
		}
		end()
	})
}

func TestAnOutboxThatIsAwayDelaysAndLosesNothing(t *testing.T) {
	for _, fail := range []map[string]int{
		{"due": 6}, {"due": -6}, {"done": 3}, {"done": -3}, {"failed": 3}, {"failed": -3}, {"secrets": 3}, {"secrets": -3},
		{"due": 4, "done": -2, "failed": 2, "secrets": 2}, {"done": 15}, {"failed": 15},
	} {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outbox := newOutbox(t, fail, event(1, "a.example"))
				tried := &attempts{result: func(n int) Result {
					if n == 1 {
						return Result{Retry, 500, "it said 500"}
					}
					return Result{Outcome: Delivered}
				}}
				_, end := start(DelivererOptions{Outbox: outbox, Post: tried.post})
				time.Sleep(10 * time.Minute)
				end()
				if s := outbox.status("evt_00001"); s.State != webhook.Sent {
					t.Errorf("%+v", s)
				}
				if n := tried.count(); n < 2 || n > 5 {
					t.Errorf("%d attempts", n)
				}
				if n := outbox.calls["due"]; n > 130 { // a poll is 5 s, and new ones come fewer
					t.Errorf("the outbox was polled %d times", n)
				}
			})
		})
	}
}

func TestADeathBetweenTheTryAndItsRecordDeliversAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, tried := newOutbox(t, map[string]int{"done": 1}, event(1, "a.example")), &attempts{}
		_, end := start(DelivererOptions{Outbox: outbox, Owner: "a", Post: tried.post})
		synctest.Wait()
		end() // before it could record that it was received
		_, end = start(DelivererOptions{Outbox: outbox, Owner: "b", Post: tried.post})
		time.Sleep(59 * time.Second)
		if n := tried.count(); n != 1 {
			t.Errorf("%d attempts before the lease ended", n)
		}
		time.Sleep(10 * time.Second)
		end()
		if all := tried.all; len(all) != 2 || all[0].ID != all[1].ID || string(all[0].Body) != string(all[1].Body) || !tried.at[1].After(tried.at[0]) {
			t.Errorf("%+v", all)
		}
	})
}

func TestRunEndsWithItsContextAndCountsNothingThatItBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := newOutbox(t, nil, events(10)...)
		_, end := start(DelivererOptions{Outbox: outbox, Post: func(ctx context.Context, d webhook.Delivery, _ time.Time, _ []webhook.Secret) Result {
			<-ctx.Done()
			if d.ID == "evt_00000" {
				return Result{Outcome: Delivered} // the answer was on its way
			}
			return Result{Retry, 0, "stopped"}
		}})
		synctest.Wait()
		began := time.Now()
		end()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		if outbox.status("evt_00000").State != webhook.Sent || outbox.count(webhook.Waiting) != 9 || outbox.calls["failed"] != 0 {
			t.Errorf("%d wait, and %d failed", outbox.count(webhook.Waiting), outbox.calls["failed"])
		}
	})
}

func TestAWaitIsATenthLongerOrShorterAndEnds(t *testing.T) {
	first := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		age := time.Duration(rapid.Int64Range(int64(-time.Hour), int64(80*time.Hour)).Draw(t, "age"))
		tries := rapid.IntRange(-1, 1000).Draw(t, "tries")
		at, more := nextAttempt(tries, first, first.Add(age), rand.Int64N)
		if more != (age < giveUpAfter) {
			t.Fatalf("%s: more is %t", age, more)
		}
		if !more {
			return
		}
		usual := delays[min(max(tries, 1), 9)-1]
		wait := at.Sub(first.Add(age))
		if wait <= 0 || wait > usual+usual/10 || wait < usual-usual/10 && at != first.Add(giveUpAfter) || at.After(first.Add(giveUpAfter)) {
			t.Fatalf("after %d tries, %s old: %s instead of %s", tries, age, wait, usual)
		}
	})
	seen := make(map[time.Time]bool)
	for range 100 {
		at, _ := nextAttempt(2, first, first, rand.Int64N)
		seen[at] = true
	}
	if len(seen) < 90 {
		t.Errorf("a hundred waits have only %d lengths", len(seen))
	}
}
