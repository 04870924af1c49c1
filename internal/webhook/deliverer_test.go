package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// posts is a Poster by a function.
type posts func(ctx context.Context, d Delivery) Result

func (p posts) Post(ctx context.Context, d Delivery) Result { return p(ctx, d) }

// tried counts tries and is safe for concurrent use.
type tried struct {
	mu  sync.Mutex
	all []Delivery
}

func (r *tried) note(d Delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	return len(r.all)
}

func (r *tried) list() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// run starts a deliverer in a bubble. The returned function ends it.
func runIn(t *testing.T, o DelivererOptions) (d *Deliverer, end func()) {
	t.Helper()
	d, err := NewDeliverer(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	return d, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func notice(n int, host string) Notice {
	id := fmt.Sprintf("evt_%05d", n)
	return Notice{ID: id, Account: "acme", URL: "http://" + host + "/hook", Body: []byte(`{"id":"` + id + `"}`), CreatedAt: time.Now()}
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

func TestTenThousandNoticesReachAReceiverThatFailsHalfTheTime(t *testing.T) {
	const all = 10_000
	synctest.Test(t, func(t *testing.T) {
		outbox := &Memory{}
		ids := make(map[string]string)
		for i := range all {
			n := notice(i, fmt.Sprintf("h%d.example", i%20))
			outbox.Add(n)
			ids[n.ID] = string(n.Body)
		}
		secrets, err := outbox.Secrets(t.Context(), "acme")
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
			if err := Verify(r.Header, data, time.Now(), secrets...); err != nil || ids[id] != string(data) {
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
				got[id]++ // it has it, and says so to nobody
				panic(http.ErrAbortHandler)
			case 1:
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})}
		served := make(chan error)
		go func() { served <- server.Serve(network) }()
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Owner: "a", Client: NewClient(Options{AllowPrivate: true, Dial: network.dial})})
		for began := time.Now(); time.Since(began) < GiveUpAfter && open(outbox) > 0; {
			time.Sleep(time.Minute) // of the bubble
		}
		end()
		_ = server.Close()
		<-served
		if len(got) != all || tries < all*15/10 || tries > all*3 {
			t.Errorf("%d were delivered in %d tries", len(got), tries)
		}
		for _, e := range outbox.List("") {
			if e.State != Sent || got[e.ID] == 0 {
				t.Errorf("%+v came %d times", e, got[e.ID])
			}
		}
	})
}

func open(m *Memory) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

func TestAReceiverThatAlwaysFailsIsTriedForThreeDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen, began := &Memory{}, &tried{}, time.Now()
		outbox.Add(notice(1, "a.example"))
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Schedule: Schedule{Rand: middle}, Client: posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			return Result{Retry, 500, "it said 500"}
		})})
		time.Sleep(10*24*time.Hour + time.Minute)
		end()
		want := []time.Duration{0, 5 * time.Second, 5*time.Minute + 5*time.Second, 35 * time.Minute, 155 * time.Minute, 455 * time.Minute, 1055 * time.Minute, 1895 * time.Minute, 3095 * time.Minute, 72 * time.Hour}
		all := seen.list()
		if len(all) != len(want) {
			t.Fatalf("%d tries", len(all))
		}
		for i, d := range all {
			if late := d.At.Sub(began) - want[i]; late < 0 || late > 60*time.Second || d.ID != "evt_00001" || string(d.Body) != `{"id":"evt_00001"}` {
				t.Errorf("try %d: %s after %s", i+1, d.ID, d.At.Sub(began))
			}
		}
		if e := outbox.List("acme"); len(e) != 0 {
			t.Errorf("it is listed a week after its end: %+v", e)
		}
	})
}

// abroad is an outbox whose clock is not the process's: times that it is given are
// the process's, and those that it gives its own.
type abroad struct {
	*Memory
	ahead time.Duration // the process's clock
}

func (a abroad) Due(ctx context.Context, owner string, until time.Time, n int) ([]Notice, error) {
	return a.Memory.Due(ctx, owner, until.Add(-a.ahead), n)
}

func (a abroad) Failed(ctx context.Context, n Notice, next time.Time, reason string, final bool) error {
	return a.Memory.Failed(ctx, n, next.Add(-a.ahead), reason, final)
}

func TestAProcessWithAWrongClockTriesAsLongAndAsOftenAsAnother(t *testing.T) {
	for _, ahead := range []time.Duration{0, 4 * 24 * time.Hour, -4 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m, log := &Memory{}, &tried{}
			m.Add(notice(1, "down.example"))
			_, end := runIn(t, DelivererOptions{Outbox: abroad{m, ahead}, Now: func() time.Time { return time.Now().Add(ahead) }, Clock: time.Now, Owner: "n", Schedule: Schedule{Rand: func(n int64) int64 { return n / 2 }}, Client: posts(func(_ context.Context, d Delivery) Result {
				log.note(d)
				return Result{Outcome: Retry, Reason: "down"}
			})})
			began := time.Now()
			time.Sleep(GiveUpAfter + time.Hour)
			end()
			tries := log.list()
			last := tries[len(tries)-1].At.Add(-ahead).Sub(began)
			if len(tries) != 10 || last < GiveUpAfter || last > GiveUpAfter+time.Minute {
				t.Errorf("%s ahead: %d tries, the last after %s", ahead, len(tries), last)
			}
		})
	}
}

func TestANoticeThatWasGivenUpIsListedAndCanBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		var answer atomic.Pointer[Result]
		gone := Result{Gone, 410, "it said 410"}
		answer.Store(&gone)
		outbox.Add(notice(1, "a.example"))
		d, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			return *answer.Load()
		})})
		time.Sleep(5 * 24 * time.Hour)
		e := outbox.List("acme")
		if len(e) != 1 || e[0].State != Failed || e[0].Reason != gone.Reason || e[0].Tries != 1 || len(seen.list()) != 1 {
			t.Fatalf("after a 410: %+v, %d tries", e, len(seen.list()))
		}
		answer.Store(&Result{Retry, 500, "it said 500"})
		if !outbox.Resend("evt_00001") || outbox.Resend("evt_00002") {
			t.Error("what can be sent again?")
		}
		d.Wake()
		time.Sleep(time.Hour)
		if e := outbox.List("acme"); e[0].State != Waiting || e[0].Tries != 4 {
			t.Errorf("sent again: %+v", e)
		}
		answer.Store(&Result{Outcome: Delivered, Status: 200})
		time.Sleep(3 * time.Hour)
		if e := outbox.List("acme"); e[0].State != Sent || len(outbox.List("other")) != 0 {
			t.Errorf("delivered: %+v", e)
		}
		end()
	})
}

func TestARefusedAddressIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		outbox.Add(notice(1, "a.example"))
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
			if seen.note(d) < 3 {
				return Result{Outcome: Refused, Reason: "not public"}
			}
			return Result{Outcome: Delivered, Status: 200}
		})})
		time.Sleep(time.Hour)
		end()
		if e := outbox.List(""); e[0].State != Sent || e[0].Tries != 2 || e[0].Reason != "not public" {
			t.Errorf("%+v", e)
		}
	})
}

func TestBothSecretsSignWhileARotationOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		older, err := outbox.Secrets(t.Context(), "acme")
		if err != nil || len(older) != 1 {
			t.Fatal(older, err)
		}
		newer, err := outbox.Rotate("acme", 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		d, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			return Result{Outcome: Delivered}
		})})
		defer end()
		for i, want := range [][]Secret{{newer, older[0]}, {newer}} {
			outbox.Add(notice(i, "a.example"))
			d.Wake()
			synctest.Wait()
			got := seen.list()[i]
			header := Sign(got.ID, got.At, got.Body, got.Secrets...)
			if n := len(strings.Fields(header.Get(headerSignature))); n != len(want) {
				t.Errorf("%d signatures, want %d", n, len(want))
			}
			for _, s := range []Secret{newer, older[0]} {
				signed := slices.ContainsFunc(want, func(w Secret) bool { return w.Reveal() == s.Reveal() })
				if err := Verify(header, got.Body, time.Now(), s); (err == nil) != signed {
					t.Errorf("notice %d: %v", i, err)
				}
			}
			time.Sleep(24 * time.Hour)
		}
	})
}

func TestANewNoticeDoesNotWaitForThePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		d, end := runIn(t, DelivererOptions{Outbox: outbox, Poll: time.Hour, Client: posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			return Result{Outcome: Delivered}
		})})
		defer end()
		synctest.Wait()
		outbox.Add(notice(1, "a.example"))
		d.Wake()
		d.Wake()
		synctest.Wait()
		if len(seen.list()) != 1 {
			t.Error("it was not delivered at once")
		}
		outbox.Add(notice(2, "a.example"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(seen.list()) != 2 {
			t.Error("it was not delivered at the poll")
		}
	})
}

func TestASlowReceiverHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := &Memory{}
		for i := range 5000 {
			outbox.Add(notice(i, "slow.example"))
		}
		time.Sleep(time.Second)
		for i := range 300 {
			outbox.Add(notice(5000+i, fmt.Sprintf("quick%d.example", i%3)))
		}
		var mu sync.Mutex
		running, most, total := make(map[string]int), make(map[string]int), 0
		quick, began := 0, time.Now()
		var done time.Duration
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, d Delivery) Result {
			h, wait := host(d.URL), 50*time.Millisecond
			if h == "slow.example" {
				wait = 10 * time.Second
			}
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running[h] += n
				total += n
				most[h], most[""] = max(most[h], running[h]), max(most[""], total)
			}
			count(1)
			defer count(-1)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			if h != "slow.example" {
				mu.Lock()
				defer mu.Unlock()
				if quick++; quick == 300 {
					done = time.Since(began)
				}
				return Result{Outcome: Delivered}
			}
			return Result{Retry, 0, "slow"}
		})})
		time.Sleep(time.Minute)
		end()
		if done == 0 || done > 5*time.Second {
			t.Errorf("%d quick ones were delivered, the last after %s", quick, done)
		}
		for h, n := range most {
			if h != "" && n > 2 {
				t.Errorf("%d tries with %s at the same time", n, h)
			}
		}
		if most["slow.example"] != 2 || most[""] < 5 || most[""] > 16 {
			t.Errorf("at the same time: %v", most)
		}
	})
}

func TestSixteenTriesRunAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		for i := range 100 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i)))
		}
		_, end := runIn(t, DelivererOptions{Outbox: outbox, PerAccount: 16, Client: posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			time.Sleep(10 * time.Second)
			return Result{Outcome: Delivered}
		})})
		synctest.Wait()
		if n := len(seen.list()); n != 16 {
			t.Errorf("%d tries run", n)
		}
		time.Sleep(69 * time.Second) // those that wait for longer than their lease are leased again
		synctest.Wait()
		if n := len(seen.list()); n < 96 {
			t.Errorf("%d were tried within seven turns", n)
		}
		time.Sleep(2 * time.Minute)
		if n := len(seen.list()); n != 100 {
			t.Errorf("%d tries for 100 notices", n)
		}
		end()
	})
}

func TestNoMoreIsLeasedThanThereAreWorkersFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := &Memory{}
		for i := range 1000 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i%500)))
		}
		_, end := runIn(t, DelivererOptions{Outbox: outbox, PerAccount: 16, Client: posts(func(ctx context.Context, _ Delivery) Result {
			<-ctx.Done()
			return Result{Outcome: Retry}
		})})
		time.Sleep(30 * time.Second)
		left, err := outbox.Due(t.Context(), "another", time.Now().Add(time.Minute), 1000)
		if err != nil || len(left) != 1000-batch {
			t.Errorf("%d are left for others, %v", len(left), err)
		}
		end()
	})
}

func TestAnAccountWithManySilentReceiversDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := &Memory{}
		for i := range 9600 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i)))
		}
		delivered := make(chan time.Time, 1)
		d, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, d Delivery) Result {
			if host(d.URL) == "quick.example" {
				delivered <- time.Now()
				return Result{Outcome: Delivered}
			}
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return Result{Retry, 0, "silent"}
		})})
		time.Sleep(15 * time.Second) // in the middle of the second attempts
		n := notice(9600, "quick.example")
		n.Account = "other"
		added := time.Now()
		outbox.Add(n)
		d.Wake()
		if waited := (<-delivered).Sub(added); waited > 0 {
			t.Errorf("the other account waited %s", waited)
		}
		end()
	})
}

func TestTwoDeliverersShareAnOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		for i := range 1000 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i%50)))
		}
		client := posts(func(_ context.Context, d Delivery) Result {
			seen.note(d)
			time.Sleep(100 * time.Millisecond)
			return Result{Outcome: Delivered}
		})
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Owner: "a", Client: client})
		_, endOther := runIn(t, DelivererOptions{Outbox: outbox, Owner: "b", Client: client})
		time.Sleep(30 * time.Second)
		end()
		endOther()
		if n := len(seen.list()); n != 1000 || open(outbox) != 0 {
			t.Errorf("%d tries, %d are open", n, open(outbox))
		}
	})
}

func TestADelivererNeedsItsParts(t *testing.T) {
	client := posts(nil)
	for name, c := range map[string]struct {
		o  DelivererOptions
		ok bool
	}{
		"all":            {DelivererOptions{Outbox: &Memory{}, Client: client}, true},
		"no outbox":      {DelivererOptions{Client: client}, false},
		"no client":      {DelivererOptions{Outbox: &Memory{}}, false},
		"no workers":     {DelivererOptions{Outbox: &Memory{}, Client: client, Workers: -1}, false},
		"no host":        {DelivererOptions{Outbox: &Memory{}, Client: client, PerHost: -1}, false},
		"no account":     {DelivererOptions{Outbox: &Memory{}, Client: client, PerAccount: -1}, false},
		"no poll":        {DelivererOptions{Outbox: &Memory{}, Client: client, Poll: -1}, false},
		"a lease of 15s": {DelivererOptions{Outbox: &Memory{}, Client: client, Lease: 15 * time.Second}, false},
		"a lease of 16s": {DelivererOptions{Outbox: &Memory{}, Client: client, Lease: 16 * time.Second}, true},
	} {
		if _, err := NewDeliverer(c.o); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestANoticeThatIsSentAnewDuringATryHasAllItsTriesBeforeIt(t *testing.T) {
	for name, tries := range map[string]int{"the first": 0, "the last": 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outbox := new(Memory)
				outbox.Add(Notice{ID: "evt_1", Account: "a", URL: "https://a.example/x", CreatedAt: time.Now().Add(-100 * 24 * time.Hour), Tries: tries})
				end := make(chan struct{})
				_, stop := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, _ Delivery) Result {
					select {
					case <-end:
					case <-ctx.Done():
					}
					return Result{Outcome: Gone, Status: 410, Reason: "410"}
				})})
				synctest.Wait()
				if !outbox.Resend("evt_1") {
					t.Fatal("it is not there")
				}
				end <- struct{}{}
				synctest.Wait()
				if e := outbox.List("")[0]; e.State != Waiting || e.Tries != 0 {
					t.Errorf("after the end of the try from before it is %s with %d tries", e.State, e.Tries)
				}
				stop()
			})
		})
	}
}

func TestADelivererThatIsRunAgainMakesNoMoreTriesAtOnceAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		d, err := NewDeliverer(DelivererOptions{Outbox: new(Memory), PerAccount: workers, Client: posts(func(ctx context.Context, _ Delivery) Result {
			raise(&most, running.Add(1))
			defer running.Add(-1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return Result{Outcome: Delivered, Status: 200}
		})})
		if err != nil {
			t.Fatal(err)
		}
		outbox := d.o.Outbox.(*Memory)
		for round := range 3 {
			for i := range 100 {
				outbox.Add(Notice{ID: fmt.Sprint(round, "-", i), Account: "a", URL: fmt.Sprintf("https://h%d.example/x", i), CreatedAt: time.Now()})
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- d.Run(ctx) }()
			time.Sleep(500 * time.Millisecond)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Minute) // the leases end
		}
		if n := most.Load(); n != workers {
			t.Errorf("%d tries at once", n)
		}
	})
}

// raise makes n the largest.
func raise(most *atomic.Int64, n int64) {
	for m := most.Load(); m < n && !most.CompareAndSwap(m, n); m = most.Load() {
	}
}

// fickle is an Outbox that fails as it is told.
type fickle struct {
	*Memory
	mu   sync.Mutex
	fail map[string]int // calls that fail yet, by name; negative for panics
	seen map[string]int
}

func (f *fickle) call(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = make(map[string]int)
	}
	f.seen[name]++
	switch n := f.fail[name]; {
	case n > 0:
		f.fail[name]--
		return errors.New("the database is away")
	case n < 0:
		f.fail[name]++
		panic("the database is mad")
	}
	return nil
}

func (f *fickle) Due(ctx context.Context, owner string, until time.Time, n int) ([]Notice, error) {
	if err := f.call("due"); err != nil {
		return nil, err
	}
	return f.Memory.Due(ctx, owner, until, n)
}

func (f *fickle) Done(ctx context.Context, id string, at time.Time) error {
	return errors.Join(f.call("done"), f.Memory.Done(ctx, id, at))
}

func (f *fickle) Failed(ctx context.Context, n Notice, next time.Time, reason string, final bool) error {
	if err := f.call("failed"); err != nil {
		return err
	}
	return f.Memory.Failed(ctx, n, next, reason, final)
}

func (f *fickle) Secrets(ctx context.Context, account string) ([]Secret, error) {
	if err := f.call("secrets"); err != nil {
		return nil, err
	}
	return f.Memory.Secrets(ctx, account)
}

func TestAnOutboxThatIsAwayDelaysAndLosesNothing(t *testing.T) {
	for _, fail := range []map[string]int{
		{"due": 6}, {"due": -6}, {"done": 3}, {"done": -3}, {"failed": 3}, {"failed": -3}, {"secrets": 3}, {"secrets": -3},
		{"due": 4, "done": -2, "failed": 2, "secrets": 2}, {"done": 1000}, {"failed": 1000},
	} {
		name := fmt.Sprint(fail)
		synctest.Test(t, func(t *testing.T) {
			outbox, seen := &fickle{Memory: &Memory{}, fail: fail}, &tried{}
			outbox.Add(notice(1, "a.example"))
			_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
				if seen.note(d) == 1 {
					return Result{Retry, 500, "it said 500"}
				}
				return Result{Outcome: Delivered}
			})})
			time.Sleep(10 * time.Minute)
			end()
			e := outbox.List("")[0]
			if e.State != Sent {
				t.Errorf("%s: %+v", name, e)
			}
			for _, d := range seen.list() {
				if d.ID != "evt_00001" || string(d.Body) != `{"id":"evt_00001"}` {
					t.Errorf("%s: %+v", name, d)
				}
			}
			if n := len(seen.list()); n > 2 {
				t.Errorf("%s: %d tries", name, n)
			}
			if n := outbox.seen["failed"]; n > 10 { // what cannot be written within a lease is left
				t.Errorf("%s: a failure was written %d times", name, n)
			}
			if n := outbox.seen["due"]; n > 130 { // a poll is 5 s, and new ones come fewer
				t.Errorf("%s: the outbox was asked %d times", name, n)
			}
		})
	}
}

func TestAPanicOfATryIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		outbox.Add(notice(1, "a.example"))
		outbox.Add(notice(2, "a.example"))
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
			if seen.note(d) <= 2 {
				panic("geheim")
			}
			return Result{Outcome: Delivered}
		})})
		time.Sleep(time.Minute)
		end()
		for _, e := range outbox.List("") {
			if e.State != Sent || e.Tries != 1 || e.Reason == "" || strings.Contains(e.Reason, "geheim") {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestADeathBetweenTheTryAndItsRecordDeliversAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &fickle{Memory: &Memory{}, fail: map[string]int{"done": 1}}, &tried{}
		dead := make(chan struct{})
		outbox.Add(notice(1, "a.example"))
		client := posts(func(_ context.Context, d Delivery) Result {
			if seen.note(d) == 1 {
				close(dead)
			}
			return Result{Outcome: Delivered}
		})
		// The Memory has it done all the same: take it back, as a death would.
		_, end := runIn(t, DelivererOptions{Outbox: deaf{outbox}, Owner: "a", Client: client})
		<-dead
		end()
		_, end = runIn(t, DelivererOptions{Outbox: outbox, Owner: "b", Client: client})
		time.Sleep(59 * time.Second)
		if len(seen.list()) != 1 {
			t.Error("it was tried before the lease ended")
		}
		time.Sleep(10 * time.Second)
		end()
		all := seen.list()
		if len(all) != 2 || all[0].ID != all[1].ID || string(all[0].Body) != string(all[1].Body) || !all[1].At.After(all[0].At) {
			t.Errorf("%+v", all)
		}
	})
}

// deaf is an Outbox that takes nothing in.
type deaf struct{ Outbox }

func (deaf) Done(context.Context, string, time.Time) error { return errors.New("dead") }

// mortal is an Outbox that does nothing for a context that has ended.
type mortal struct{ *Memory }

func (m mortal) Done(ctx context.Context, id string, at time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return m.Memory.Done(ctx, id, at)
}

func TestRunEndsWithItsContextAndCountsNothingThatItBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := mortal{&Memory{}}
		for i := range 50 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i)))
		}
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, d Delivery) Result {
			<-ctx.Done()
			if d.ID == "evt_00000" {
				return Result{Outcome: Delivered} // the answer was on its way
			}
			return Result{Retry, 0, "stopped"}
		})})
		synctest.Wait()
		began := time.Now()
		end()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		for _, e := range outbox.List("") {
			if e.Tries != 0 || e.Reason != "" || (e.State == Sent) != (e.ID == "evt_00000") {
				t.Errorf("%+v", e)
			}
		}
	})
}

// middle is a source without jitter.
func middle(n int64) int64 { return n / 2 }

func TestTheWaitsGrowOverThreeDays(t *testing.T) {
	first := time.Unix(1_700_000_000, 0)
	now := first
	for i, want := range []string{"5s", "5m5s", "35m5s", "2h35m5s", "7h35m5s", "17h35m5s", "31h35m5s", "51h35m5s", "72h0m0s"} {
		at, more := Schedule{Rand: middle}.Next(i+1, first, now)
		if got := at.Sub(first).String(); !more || got != want {
			t.Errorf("after %d tries: %s, %t, want %s", i+1, got, more, want)
		}
		now = at
	}
	if at, more := (Schedule{}).Next(10, first, now); more || !at.IsZero() {
		t.Errorf("there is a try after the last: %s", at)
	}
}

func TestAWaitIsATenthLongerOrShorterAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Unix(1_700_000_000, 0)
		age := time.Duration(rapid.Int64Range(int64(-time.Hour), int64(80*time.Hour)).Draw(t, "age"))
		tries := rapid.IntRange(-1, 1000).Draw(t, "tries")
		at, more := Schedule{}.Next(tries, first, first.Add(age))
		if more != (age < GiveUpAfter) {
			t.Fatalf("%s: more is %t", age, more)
		}
		if !more {
			return
		}
		usual := delays[min(max(tries, 1), 9)-1]
		wait := at.Sub(first.Add(age))
		if wait <= 0 || wait > usual+usual/10 || wait < usual-usual/10 && at != first.Add(GiveUpAfter) || at.After(first.Add(GiveUpAfter)) {
			t.Fatalf("after %d tries, %s old: %s instead of %s", tries, age, wait, usual)
		}
	})
	seen := make(map[time.Time]bool)
	for range 100 {
		at, _ := Schedule{}.Next(2, time.Unix(0, 0), time.Unix(0, 0))
		seen[at] = true
	}
	if len(seen) < 90 {
		t.Errorf("a hundred waits have only %d lengths", len(seen))
	}
}
