package videotask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/video"
)

const (
	taken    = `{"output":{"task_id":"up-1","task_status":"PENDING"}}`
	running  = `{"output":{"task_id":"up-1","task_status":"RUNNING"}}`
	done     = `{"output":{"task_id":"up-1","task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"}}`
	failed   = `{"output":{"task_id":"up-1","task_status":"FAILED","code":"DataInspectionFailed","message":"no"}}`
	canceled = `{"output":{"task_id":"up-1","task_status":"CANCELED"}}`
	boat     = `{"model":"beta2.6-t2v","duration":5,"resolution":"720p","input":{"prompt":"a boat"}}`

	gammaTaken   = `{"id":"cgt-1"}`
	gammaRunning = `{"id":"cgt-1","status":"running"}`
	gammaDone    = `{"id":"cgt-1","status":"succeeded","content":{"video_url":"https://v.example/1.mp4"},"usage":{"completion_tokens":49005,"total_tokens":49005}}`
	gammaBoat    = `{"model":"gamma-2-0-260128","resolution":"480p","duration":5,"content":[{"type":"text","text":"a boat"}]}`
)

// shared is what several nodes share: a store with a clock, the right one, and a ledger whose
// account has 10.
type shared struct {
	video.Store
	ledger memory.Ledger
	away   error // of the clock
}

func (s *shared) Now(context.Context) (time.Time, error) { return time.Now(), s.away }

func newShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{Store: memory.NewTasks(nil, nil), ledger: memory.NewLedger(memory.LedgerOptions{})}
	if err := s.ledger.CreateAccount(t.Context(), "acme", 10*billing.One); err != nil {
		t.Fatal(err)
	}
	return s
}

// balance is what the account has spent, and what is held.
func (s *shared) balance(t *testing.T) (spent, held billing.Money) {
	t.Helper()
	b, err := s.ledger.Balance(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return 10*billing.One - b.Posted, b.Held
}

// node is a process over what others share.
type node struct {
	*Tasks
	*vendor
	shared *shared
	price  *billing.Price
	taken  string // what the vendor says to a submission
	ids    int
	log    strings.Builder

	mu    sync.Mutex
	moved []Moved
}

// newNode is a node whose clock is wrong by a time. A second costs 0.10.
func newNode(t *testing.T, s *shared, v *vendor, wrong time.Duration) *node {
	t.Helper()
	n := &node{vendor: v, shared: s, taken: taken}
	var err error
	if n.price, err = billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"}); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(&n.log, nil))
	n.Tasks = New(Options{
		Store: s, Meter: s.ledger, Owner: t.Name() + wrong.String(), Poll: 5 * time.Second, Retention: 7 * 24 * time.Hour, Window: 5 * time.Second, Timeout: time.Minute,
		Now: func() time.Time { return time.Now().Add(wrong) }, Logger: logger,
		Money: money.New(money.Options{Meter: s.ledger, Timeout: time.Second, Logger: logger, Report: func(context.Context, money.Late) {}}),
		NewID: func(prefix string) string { n.ids++; return fmt.Sprint(prefix, wrong, n.ids) },
		Moved: func(_ context.Context, m Moved) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.moved = append(n.moved, m)
		},
	})
	return n
}

// says has the vendor say something from now on.
func (n *node) says(answer string) {
	n.vendor.mu.Lock()
	defer n.vendor.mu.Unlock()
	n.vendor.answer = answer
}

// errNotKept says that the store has not taken the step of a submission.
var errNotKept = errors.New("not kept")

// submit submits a video as the gateway does, whose upstream took it.
func (n *node) submit(t *testing.T, body string, edit ...func(*Submission)) (*video.Task, error) {
	t.Helper()
	return n.send(t, body, videoop.Accepted, edit...)
}

// send submits a video. kind is what became of it at its upstream.
func (n *node) send(t *testing.T, body string, kind videoop.EventKind, edit ...func(*Submission)) (*video.Task, error) {
	t.Helper()
	r, err := videoop.Parse([]byte(body))
	if err == nil {
		err = r.Check(&operation.Facts{}, n.price, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := Submission{Request: r, Price: n.price}
	for _, edit := range edit {
		edit(&s)
	}
	q := r.Quote(&operation.Facts{}, n.price, false)
	var h money.Hold
	task, err := n.Create(t.Context(), s, money.Order{
		Payer: money.Payer{Account: "acme", Key: "k"}, Quote: &q,
		Wanted: billing.HoldRequest{RequestID: n.NewID("req_"), Operation: "video", Model: r.Model, Price: n.price, Bound: q.Bound},
	}, &h)
	if err != nil {
		return nil, err
	}
	report, err := videoop.ReadSubmission([]byte(n.taken))
	if err != nil {
		t.Fatal(err)
	}
	h.Leave()
	event := videoop.Event{Kind: kind, Channel: "ch"}
	if kind == videoop.Accepted {
		event.Report = report
	}
	task = n.Sent(task, event)
	if !n.Keep(t.Context(), task, nil) {
		return task, errNotKept
	}
	return task, nil
}

// submitted is a video that was taken.
func (n *node) submitted(t *testing.T, body string) *video.Task {
	t.Helper()
	task, err := n.submit(t, body)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// show is the task as a caller sees it who asks for it now.
func (n *node) show(t *testing.T, id string) (*video.Task, error) {
	t.Helper()
	found, err := n.Find(t.Context(), "acme", id)
	if err != nil {
		return nil, err
	}
	return refresh(t.Context(), n.Tasks, n.vendor, found)
}

func (n *node) run() (stop func()) { return start(n.Tasks, n.vendor) }

func newVendor(answer string) *vendor { return &vendor{asked: map[string]int{}, answer: answer} }

func TestATaskFromItsSubmissionToItsEnd(t *testing.T) {
	for _, c := range []struct {
		name, ask, taken, running, ends string
		state                           video.State
		charge, reason                  string
	}{
		{"succeeds", boat, taken, running, done, video.Succeeded, "0.50", billing.ReasonComplete},
		{"fails", boat, taken, running, failed, video.Failed, "0", billing.ReasonUpstreamFailed},
		{"is cancelled", boat, taken, running, canceled, video.Cancelled, "0", billing.ReasonUpstreamFailed},
		{"is charged by tokens", gammaBoat, gammaTaken, gammaRunning, gammaDone, video.Succeeded, "0.343035", billing.ReasonComplete},
		{"never ends", gammaBoat, gammaTaken, gammaRunning, gammaRunning, video.Expired, "0", billing.ReasonExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newShared(t), newVendor(c.running), 0)
				if n.taken = c.taken; c.taken == gammaTaken {
					n.price, _ = billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "7.00"})
				}
				stop := n.run()
				task := n.submitted(t, c.ask)
				if _, held := n.shared.balance(t); held == 0 || task.PriceVersion != n.price.Version() {
					t.Errorf("held %s for %+v", held, task)
				}
				time.Sleep(time.Minute)
				n.says(c.ends)
				time.Sleep(48*time.Hour + videoop.Grace + time.Minute)
				stop()
				charge, err := billing.ParseMoney(c.charge)
				if err != nil {
					t.Fatal(err)
				}
				if spent, held := n.shared.balance(t); spent != charge || held != 0 {
					t.Errorf("spent %s, held %s, want %s", spent, held, c.charge)
				}
				last := n.moved[len(n.moved)-1]
				if last.Task.State != c.state || last.Receipt == nil || last.Receipt.Charge != charge || last.Receipt.Reason != c.reason || last.Receipt.Channel != "ch" || last.Late || n.moved[0].From != video.Submitting {
					t.Errorf("moved %+v", n.moved)
				}
			})
		})
	}
}

// The price is that of the submission, whoever ends the task.
func TestATaskIsEndedAtThePriceAtWhichItWasSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		task := newNode(t, s, newVendor(running), 0).submitted(t, boat)
		heir := newNode(t, s, newVendor(done), 0)
		heir.price, _ = billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "9.00"})
		time.Sleep(6 * time.Second)
		if last, err := heir.show(t, task.ID); err != nil || last.State != video.Succeeded {
			t.Errorf("got %+v, %v", last, err)
		}
		if spent, _ := s.balance(t); spent != billing.One/2 {
			t.Errorf("spent %s, want 0.50", spent)
		}
	})
}

func TestAVideoIsChargedIfItIsThereInTimeAndReportedIfItComesTooLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  time.Duration
		state  video.State
		spent  billing.Money
		report bool
	}{
		{"in time", time.Hour - 8*time.Second, video.Succeeded, billing.One / 2, false},
		{"just before the end", 48*time.Hour + videoop.Grace - 8*time.Second, video.Succeeded, billing.One / 2, false},
		{"too late", 48*time.Hour + videoop.Grace - 2*time.Second, video.Expired, 0, true}, // between the last look in time and the end
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newShared(t), newVendor(running), 0)
				stop := n.run()
				task := n.submitted(t, boat)
				time.Sleep(c.after)
				n.says(done)
				time.Sleep(48*time.Hour + videoop.Grace + time.Minute - c.after)
				stop()
				last, err := n.Find(t.Context(), "acme", task.ID)
				if spent, _ := n.shared.balance(t); err != nil || last.State != c.state || spent != c.spent {
					t.Errorf("ended %+v, %v; spent %s", last, err, spent)
				}
				if told := strings.Contains(n.log.String(), "succeeded after it had expired"); told != c.report || n.moved[len(n.moved)-1].Late != c.report {
					t.Errorf("reported: %t\n%s", told, n.log.String())
				}
			})
		})
	}
}

func TestANodeWithAWrongClockEndsNoVideoAndForgetsNone(t *testing.T) {
	skews := []time.Duration{49 * time.Hour, 8 * 24 * time.Hour, 365 * 24 * time.Hour, -49 * time.Hour, -365 * 24 * time.Hour}
	if !longtest.Enabled() {
		skews = skews[:1]
	}
	for _, by := range skews {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShared(t)
				right, wrong := newNode(t, s, newVendor(running), 0), newNode(t, s, newVendor(running), by)
				defer wrong.run()()
				task := right.submitted(t, boat)
				for _, n := range []*node{wrong, right} {
					time.Sleep(time.Minute)
					v, err := n.show(t, task.ID)
					if _, held := s.balance(t); err != nil || v.State.Terminal() || held == 0 {
						t.Fatalf("%+v, %v, held %s", v, err, held)
					}
				}
				if asked := wrong.count(task.ID); asked < 10 {
					t.Errorf("the node asked %d times in two minutes", asked)
				}
				right.says(done)
				wrong.says(done)
				time.Sleep(time.Minute)
				if v, err := right.show(t, task.ID); err != nil || v.State != video.Succeeded {
					t.Fatalf("%+v, %v", v, err)
				}
				time.Sleep(7*24*time.Hour - time.Hour)
				if _, err := right.show(t, task.ID); err != nil {
					t.Errorf("it was forgotten before its time: %v", err)
				}
				time.Sleep(2*time.Hour + time.Minute)
				if v, err := right.show(t, task.ID); !fault.Is(err, fault.ResourceNotFound) {
					t.Errorf("it was not forgotten: %+v, %v", v, err)
				}
			})
		})
	}
}

func TestAVideoThatANodeWithAWrongClockTookEndsInTime(t *testing.T) {
	for _, by := range []time.Duration{49 * time.Hour, -49 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newShared(t)
			right, wrong := newNode(t, s, newVendor(running), 0), newNode(t, s, newVendor(running), by)
			task := wrong.submitted(t, boat)
			time.Sleep(48 * time.Hour)
			if v, err := right.show(t, task.ID); err != nil || v.State.Terminal() {
				t.Errorf("%s: before its end: %+v, %v", by, v, err)
			}
			time.Sleep(videoop.Grace + time.Second)
			if v, err := right.show(t, task.ID); err != nil || v.State != video.Expired {
				t.Errorf("%s: at its end: %+v, %v", by, v, err)
			}
		})
	}
}

func TestATaskAndItsHoldAreMadeTogetherOrNeitherIs(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(n *node)
		more func(s *Submission)
		code fault.Code // of the second submission
	}{
		{"the time of the store is not known", func(n *node) { n.shared.away = errors.New("no connection") }, nil, fault.ServiceUnavailable},
		{"the balance does not cover it", func(n *node) {
			n.price, _ = billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "9"})
		}, func(s *Submission) { s.Retried = true }, fault.InsufficientBalance},
		{"it repeats one that was accepted", nil, nil, fault.IdempotencyConflict},
		{"it is another one", nil, func(s *Submission) {
			s.Request, _ = videoop.Parse([]byte(strings.Replace(boat, "boat", "ship", 1)))
		}, ""},
		{"it repeats one, and has a key", nil, func(s *Submission) { s.Retried = true }, ""},
		{"its key has as many as it may", nil, func(s *Submission) { s.Retried, s.Most = true, 1 }, fault.ConcurrencyExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, newShared(t), newVendor(done), 0)
			first := n.submitted(t, boat)
			if c.edit != nil {
				n.Tasks.clock = videoop.NewClock(n.shared.Now, n.Now)
				c.edit(n)
			}
			if c.more == nil {
				c.more = func(*Submission) {}
			}
			_, held := n.shared.balance(t)
			second, err := n.submit(t, boat, c.more)
			if (err == nil) != (c.code == "") || err != nil && !fault.Is(err, c.code) {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.code == fault.IdempotencyConflict && !strings.Contains(err.Error(), first.ID) {
				t.Errorf("%s: %v does not name %s", c.name, err, first.ID)
			}
			open, claimed := n.shared.Claim(t.Context(), "other", time.Now().Add(time.Hour), 100)
			want := map[bool]int{true: 2, false: 1}[second != nil]
			if _, now := n.shared.balance(t); claimed != nil || len(open) != want || now != held*billing.Money(want) {
				t.Errorf("%s: %d tasks, %v; held %s after %s", c.name, len(open), claimed, now, held)
			}
		})
	}
}

// overtaken is a store in which another node gives a submission up before its process could
// tell that an upstream took it.
type overtaken struct {
	video.Store
	once sync.Once
}

func (o *overtaken) Change(ctx context.Context, s video.Step, r *idempotency.Record) (bool, error) {
	o.once.Do(func() {
		lost := s.Task
		lost.State, lost.UpstreamID, lost.Answer = video.Unknown, "", nil
		if made, err := o.Store.Change(ctx, video.Step{Task: lost}, nil); err != nil || !made {
			panic(errors.Join(err, errors.New("the other node was not faster")))
		}
	})
	return o.Store.Change(ctx, s, r)
}

func TestAnUpstreamThatTookAVideoIsNotForgottenWhereAnotherNodeGaveItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		s.Store = &overtaken{Store: s.Store}
		n := newNode(t, s, newVendor(done), 0)
		task := n.submitted(t, boat)
		time.Sleep(6 * time.Second)
		if last, err := n.show(t, task.ID); err != nil || last.State != video.Succeeded {
			t.Errorf("got %+v, %v", last, err)
		}
		if spent, _ := s.balance(t); spent != billing.One/2 {
			t.Errorf("spent %s", spent)
		}
	})
}

// awayStore is a store that takes no step for a while.
type awayStore struct {
	video.Store
	mu  sync.Mutex
	err error
}

func (a *awayStore) Change(ctx context.Context, s video.Step, r *idempotency.Record) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return false, a.err
	}
	return a.Store.Change(ctx, s, r)
}

func (a *awayStore) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func TestATaskThatCouldNotBeWrittenIsWrittenLaterAndNotSubmittedAgain(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newShared(t)
			store := &awayStore{Store: s.Store, err: errors.New("the disk is full")}
			if refused {
				store.err = fault.New(fault.InvalidRequest, "no")
			}
			s.Store = store
			n := newNode(t, s, newVendor(done), 0)
			task, err := n.submit(t, boat)
			if !errors.Is(err, errNotKept) {
				t.Fatal(err)
			}
			stop := n.run()
			time.Sleep(time.Minute)
			if waits := n.Pending(); waits != map[bool]int{false: 1}[refused] || strings.Contains(n.log.String(), "given up") != refused {
				t.Errorf("refused %t: %d steps wait while the store is away: %s", refused, waits, n.log.String())
			}
			store.set(nil)
			time.Sleep(time.Minute)
			stop()
			last, err := n.Find(t.Context(), "acme", task.ID)
			if spent, _ := s.balance(t); n.Pending() != 0 || err != nil || !refused && (last.State != video.Succeeded || spent != billing.One/2) {
				t.Errorf("refused %t: %d steps wait when it is back; %+v, %v, spent %s", refused, n.Pending(), last, err, spent)
			}
		})
	}
}

// An upstream that may have taken a video is not asked: nobody knows by which id.
func TestATaskThatNoUpstreamIsKnownToHaveEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newShared(t), newVendor(running), 0)
		stop := n.run()
		task, err := n.send(t, boat, videoop.Lost)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v, err := n.show(t, task.ID); err != nil || v.State != video.Unknown {
			t.Errorf("meanwhile %+v, %v", v, err)
		}
		time.Sleep(48*time.Hour + videoop.Grace + time.Minute)
		stop()
		v, err := n.show(t, task.ID)
		if spent, held := n.shared.balance(t); err != nil || v.State != video.Expired || n.count(task.ID) != 0 || spent != 0 || held != 0 {
			t.Errorf("ended %+v, %v, after %d questions; spent %s, held %s", v, err, n.count(task.ID), spent, held)
		}
	})
}

func TestAPollThatFailsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newShared(t), newVendor(running), 0)
		task := n.submitted(t, boat)
		for _, away := range []error{errors.New("away"), nil} {
			n.vendor.err = away
			n.says(map[bool]string{true: "", false: "no JSON"}[away != nil])
			time.Sleep(6 * time.Second)
			if v, err := n.show(t, task.ID); err == nil {
				t.Errorf("vendor %v: got %+v, want an error", away, v)
			}
			if stored, err := n.Find(t.Context(), "acme", task.ID); err != nil || stored.Version != task.Version {
				t.Errorf("vendor %v: %+v, %v, want version %d", away, stored, err, task.Version)
			}
		}
	})
}
