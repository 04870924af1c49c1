package storetest

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// TaskStore is a store of tasks with what belongs to it.
type TaskStore struct {
	video.Store
	// Answers is where the store keeps the answers that come with a change.
	Answers idempotency.Store
	// ClaimKey takes a key for a request.
	ClaimKey func(k idempotency.Key, content idempotency.Content, request string) error
	// Outbox is where the store keeps the deliveries that come with a change.
	Outbox Outbox
	// Sweep deletes what was kept for long enough; nil where that needs no call.
	Sweep func(context.Context) error
	// Restart ends the process by a crash and starts another; nil where nothing would
	// be left.
	Restart func() TaskStore
}

// Outbox is a [webhook.Outbox] with what an operator sees of it.
type Outbox interface {
	webhook.Outbox
	Deliveries(ctx context.Context, account string, limit int) ([]webhook.Status, error)
	Resend(ctx context.Context, id string) (bool, error)
	WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error)
}

// RunTasks runs the rules of video.Store and of the outbox of its tasks. open gives
// each test an empty store, whose clock is now.
func RunTasks(t *testing.T, open func(t testing.TB, now func() time.Time) TaskStore) {
	for _, group := range [...]map[string]func(taskTest){taskTests, outboxTests} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				b := newBase(t)
				test(taskTest{b, open(t, b.clock.Now)})
			})
		}
	}
}

// taskTests are the sentences of video.Store.
var taskTests = map[string]func(taskTest){
	"AKeyHasNoMoreOpenTasksThanItMay": func(s taskTest) {
		limited := func(id string) video.CreateTask {
			n := newTask(id)
			n.Most = 2
			return n
		}
		first, _ := s.add(newTask("a")), s.add(limited("b")) // one that is admitted without a limit counts
		if err := s.refused(limited("c"), fault.ConcurrencyExceeded); fault.From(err).HTTPStatus() != 429 {
			s.t.Error(err)
		}
		other, elsewhere := limited("d"), limited("e")
		other.Task.Key, elsewhere.Task.Account = "k2", "zeta"
		s.add(other)
		s.add(elsewhere)
		first = s.change(accepted(first, "up-a", startTime))
		s.refused(limited("f"), fault.ConcurrencyExceeded)
		s.change(next(first, video.Failed, startTime))
		s.add(limited("g"))
		s.refused(limited("h"), fault.ConcurrencyExceeded)
		s.ok(s.Drop(s.t.Context(), "vid_b"))
		s.add(limited("i"))
		s.refused(limited("j"), fault.ConcurrencyExceeded)
	},
	"TheSameSubmissionWithinTheWindowIsAConflict": func(s taskTest) {
		same := func(id string, retried bool) video.CreateTask {
			n := newTask(id)
			n.Window, n.Retried, n.Task.Fingerprint = 5*time.Second, retried, [32]byte{1}
			n.Task.CreatedAt = s.clock.Now().UTC()
			return n
		}
		first := s.add(same("a", false))
		s.clock.Set(startTime.Add(time.Minute))
		err := s.refused(same("b", false), fault.IdempotencyConflict) // it is being submitted still
		if f := fault.From(err); f.HTTPStatus() != 409 || f.Retry != fault.RetryNo || !strings.Contains(f.Message, "vid_a") {
			s.t.Errorf("%+v", f)
		}
		first = s.change(accepted(first, "up-1", s.clock.Now()))
		s.clock.Set(startTime.Add(time.Minute + 5*time.Second - 1))
		s.refused(same("b", false), fault.IdempotencyConflict)
		s.change(next(first, video.Failed, s.clock.Now()))
		s.refused(same("b", false), fault.IdempotencyConflict) // it was accepted a moment ago
		s.clock.Set(startTime.Add(time.Minute + 5*time.Second))
		s.add(same("b", false))
		s.add(same("c", true)) // meant to be another
		s.refused(same("d", false), fault.IdempotencyConflict)
		s.ok(s.Drop(s.t.Context(), "vid_b"))
		s.ok(s.Drop(s.t.Context(), "vid_c"))
		s.add(same("d", false)) // what was refused does not block
		n := same("e", false)
		n.Window = 0
		s.add(n)
		n = same("f", false)
		n.Task.Fingerprint = [32]byte{2}
		s.add(n)
	},
	"WhatWasNeverAcceptedBlocksForTheWindowOnly": func(s taskTest) {
		n := newTask("a")
		n.Window = 5 * time.Second
		first := s.add(n)
		s.change(next(first, video.Unknown, startTime))
		s.clock.Set(startTime.Add(5*time.Second - 1))
		n.Task.ID = "vid_b"
		s.refused(n, fault.IdempotencyConflict)
		s.clock.Set(startTime.Add(5 * time.Second))
		s.add(n)
	},
	"AnIdIsGivenOnce": func(s taskTest) {
		first := s.add(newTask("a"))
		n := newTask("b")
		n.Task.ID, n.Task.Model = first.ID, "another"
		if err := s.Add(s.t.Context(), n); err == nil {
			s.t.Error("an id was given twice")
		}
		s.want(first)
	},
	"AStepIsMadeFromTheVersionBeforeAndOnce": func(s taskTest) {
		first := s.add(newTask("a"))
		taken := accepted(first, "up-1", startTime)
		ahead := taken
		ahead.Version++
		s.wantStale(video.Step{Task: ahead}, "a step from a version that is not there")
		s.want(first)
		s.change(taken)
		s.want(taken)
		s.wantStale(video.Step{Task: taken}, "the same step again")
		s.wantStale(video.Step{Task: next(first, video.Failed, startTime), Delivery: &webhook.Delivery{ID: "evt_1"}}, "a step from an old version")
		s.want(taken)
		end := next(taken, video.Succeeded, startTime.Add(time.Minute))
		end.PurgeAt = startTime.Add(time.Hour)
		s.change(end)
		s.wantStale(video.Step{Task: next(end, video.Failed, startTime), Delivery: &webhook.Delivery{ID: "evt_2"}}, "a step of a task that has ended")
		s.want(end)
		s.wantStale(video.Step{Task: next(newTask("nobody").Task, video.Failed, startTime)}, "a step of no task")
		s.wantDeliveries()
	},
	"OfEightThatMakeAStepOneDoesAndOneNoticeIsMade": func(s taskTest) {
		end := next(s.add(newTask("a")), video.Failed, startTime)
		var made atomic.Int32
		s.inParallel(8, func(i int) error {
			ok, err := s.Change(s.t.Context(), video.Step{Task: end, Delivery: &webhook.Delivery{ID: fmt.Sprint("evt_", i), Account: "acme", TaskID: end.ID, Body: []byte("{}"), CreatedAt: startTime}}, nil)
			if ok {
				made.Add(1)
			}
			return err
		})
		if ids := s.deliveries(); made.Load() != 1 || len(ids) != 1 {
			s.t.Errorf("%d steps and the deliveries %q", made.Load(), ids)
		}
	},
	"AnAnswerIsKeptWithItsStep": func(s taskTest) {
		ctx, key := s.t.Context(), idempotency.Key{Account: "acme", Operation: "video", Key: "k"}
		first := s.add(newTask("a"))
		s.ok(s.ClaimKey(key, idempotency.Content{1}, first.RequestID))
		record := &idempotency.Record{Key: key, Content: idempotency.Content{1}, Header: http.Header{"X-A": {"b"}}, Body: []byte("{}")}
		wrong := next(first, video.Queued, startTime)
		wrong.Version++
		if made, err := s.Change(ctx, video.Step{Task: wrong}, record); made || err != nil {
			s.t.Fatal(made, err)
		}
		if _, err := s.Answers.Lookup(ctx, key, idempotency.Content{1}); !fault.Is(err, fault.IdempotencyConflict) {
			s.t.Fatalf("the answer of a step that was not made: %v", err)
		}
		if made, err := s.Change(ctx, video.Step{Task: accepted(first, "up-1", startTime)}, record); !made || err != nil {
			s.t.Fatal(made, err)
		}
		a, err := s.Answers.Lookup(ctx, key, idempotency.Content{1})
		s.ok(err)
		if a == nil || string(a.Body) != "{}" || a.Header.Get("X-A") != "b" || a.Receipt.ID != first.RequestID || a.Receipt.Charge != 0 {
			s.t.Errorf("kept: %+v", a)
		}
	},
	"ATaskIsFoundByEitherIdAndByItsAccountOnly": func(s taskTest) {
		for _, account := range []string{"acme", "zeta"} {
			n := newTask(account)
			n.Task.Account = account
			s.change(accepted(s.add(n), "up-1", startTime))
		}
		s.add(newTask("new"))
		for _, c := range []struct{ account, id, want string }{
			{"acme", "vid_acme", "vid_acme"}, {"acme", "up-1", "vid_acme"}, {"zeta", "up-1", "vid_zeta"},
			{"acme", "vid_zeta", ""}, {"nobody", "up-1", ""}, {"acme", "", ""}, {"acme", "up-2", ""}, {"acme", "vid_", ""},
		} {
			if got := s.find(c.account, c.id); (got == nil) != (c.want == "") || got != nil && got.ID != c.want {
				s.t.Errorf("%s looks for %q: %+v", c.account, c.id, got)
			}
		}
		s.find("acme", "up-1").State = video.Failed
		if s.find("acme", "up-1").State != video.Processing {
			s.t.Error("what was found is not a copy")
		}
	},
	// It fails as well when a task gets a field that is not filled here.
	"EveryFieldOfATaskIsKept": func(s taskTest) {
		n := newTask("a")
		filled(s.t, reflect.ValueOf(&n.Task).Elem())
		n.Task.State, n.Task.Account, n.Task.Version = video.Submitting, "acme", 1
		s.add(n)
		s.want(n.Task)
		end := next(n.Task, video.Failed, startTime.Add(time.Second))
		end.Channel, end.UpstreamID, end.Answer, end.Failure = "other", "up 'é'", []byte(`{"a":"\u0000"}`), &video.Failure{Code: "c", Message: "a\x00b"}
		end.AcceptedAt, end.ExpiresAt, end.PurgeAt, end.PolledAt = startTime.Add(1), startTime.Add(2), startTime.Add(3), startTime.Add(4)
		s.change(end)
		s.want(end)
		empty := newTask("b").Task
		s.add(video.CreateTask{Task: empty})
		s.want(empty)
	},
	"WhatLeasesTakeIsWhatWasPolledLongestAgo": func(s taskTest) {
		for i, polled := range []time.Duration{3, 1, 2, 0} {
			n := newTask(fmt.Sprint(i))
			if polled > 0 {
				n.Task.PolledAt = startTime.Add(polled * time.Minute)
			}
			s.add(n)
		}
		s.wantClaimed("a", 1, "3")
		s.wantClaimed("b", 2, "1", "2")
		s.wantClaimed("a", 0, "3")
		s.wantClaimed("a", -1, "3")
		s.wantClaimed("a", 5, "0", "3")
		s.wantClaimed("c", 5)
	},
	"ALeaseKeepsOthersAwayUntilItEnds": func(s taskTest) {
		s.add(newTask("0"))
		s.add(newTask("1"))
		s.wantClaimed("a", 1, "0")
		s.wantClaimed("b", 9, "1")
		s.clock.Set(startTime.Add(30 * time.Second))
		s.wantClaimed("b", 9, "1") // renewed
		s.clock.Set(startTime.Add(time.Minute - 1))
		s.wantClaimed("b", 9, "1")
		s.clock.Set(startTime.Add(time.Minute))
		s.wantClaimed("b", 9, "0", "1")
		s.wantClaimed("a", 9)
		s.clock.Set(startTime.Add(3 * time.Minute))
		s.wantClaimed("b", 0, "0", "1") // nobody took them
		s.wantClaimed("a", 9)
	},
	"ATaskThatHasEndedIsNobodys": func(s taskTest) {
		first := s.add(newTask("0"))
		s.add(newTask("1"))
		s.add(newTask("2"))
		s.wantClaimed("a", 9, "0", "1", "2")
		s.change(next(first, video.Failed, startTime))
		s.ok(s.Drop(s.t.Context(), "vid_1"))
		s.wantClaimed("a", 9, "2")
		s.clock.Set(startTime.Add(time.Hour))
		s.wantClaimed("b", 9, "2")
	},
	"OfManyThatClaimAtTheSameTimeEachTaskIsOnesOwn": func(s taskTest) {
		const tasks, owners = 100, 8
		for i := range tasks {
			s.add(newTask(fmt.Sprintf("%03d", i)))
		}
		var mu sync.Mutex
		whose := map[string]string{}
		s.inParallel(owners, func(i int) error {
			owner := fmt.Sprint("node_", i)
			for range 10 {
				claimed, err := s.Claim(context.Background(), owner, startTime.Add(time.Minute), 7)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, t := range claimed {
					if before := whose[t.ID]; before != "" && before != owner {
						s.t.Errorf("%s is %s's and %s's", t.ID, before, owner)
					}
					whose[t.ID] = owner
				}
				mu.Unlock()
			}
			return nil
		})
		if len(whose) != tasks {
			s.t.Errorf("%d of %d tasks were claimed", len(whose), tasks)
		}
	},
	"PurgeForgetsWhatIsDueAndNothingElse": func(s taskTest) {
		for i, at := range []time.Time{{}, startTime, startTime.Add(1)} {
			end := accepted(s.add(newTask(fmt.Sprint(i))), fmt.Sprint("up-", i), startTime)
			s.change(end)
			end = next(end, video.Failed, startTime)
			end.PurgeAt = at
			s.change(end)
		}
		s.add(newTask("open"))
		for _, want := range []int{1, 0} {
			if n, err := s.Purge(s.t.Context(), startTime); n != want || err != nil {
				s.t.Errorf("purged %d, %v", n, err)
			}
		}
		s.wantNone("acme", "vid_1")
		s.wantNone("acme", "up-1")
		if s.find("acme", "up-2") == nil || s.find("acme", "vid_0") == nil || s.find("acme", "vid_open") == nil {
			s.t.Error("another one was purged")
		}
	},
	"WhatWasDroppedIsForgottenAndLeavesTheKeyItsPlaceOpen": func(s taskTest) {
		n := newTask("a")
		n.Most, n.Window = 1, time.Hour
		s.add(n)
		for range 2 {
			s.ok(s.Drop(s.t.Context(), "vid_a"))
		}
		s.wantNone("acme", "vid_a")
		s.wantStale(video.Step{Task: next(n.Task, video.Queued, startTime)}, "a step of a task that was dropped")
		s.add(n)
	},
}

// taskTest is a test of a store of tasks.
type taskTest struct {
	base
	TaskStore
}

// newTask is a submission of acme's key k1, unlike any other.
func newTask(id string) video.CreateTask {
	n := video.CreateTask{Task: video.Task{
		ID: "vid_" + id, Account: "acme", Key: "k1", RequestID: "req_" + id, Model: "beta-2.6-t2v", Family: video.FamilyBeta,
		State: video.Submitting, CreatedAt: startTime, UpdatedAt: startTime, ExpiresAt: startTime.Add(48 * time.Hour),
	}}
	copy(n.Task.Fingerprint[:], id)
	return n
}

// next is the task a step on.
func next(t video.Task, s video.State, at time.Time) video.Task {
	t.State, t.UpdatedAt = s, at.UTC()
	t.Version++
	return t
}

// accepted is a submitted task that an upstream took.
func accepted(t video.Task, upstream string, at time.Time) video.Task {
	t = next(t, video.Processing, at)
	t.UpstreamID, t.Channel, t.AcceptedAt = upstream, "main", at.UTC()
	return t
}

func (s taskTest) add(n video.CreateTask) video.Task {
	s.t.Helper()
	s.ok(s.Add(s.t.Context(), n))
	return n.Task
}

func (s taskTest) refused(n video.CreateTask, code fault.Code) error {
	s.t.Helper()
	err := s.Add(s.t.Context(), n)
	if !fault.Is(err, code) {
		s.t.Fatalf("%s: got %v, want %s", n.Task.ID, err, code)
	}
	s.wantNone(n.Task.Account, n.Task.ID)
	return err
}

// change makes a step that must be made.
func (s taskTest) change(t video.Task) video.Task {
	s.t.Helper()
	made, err := s.Change(s.t.Context(), video.Step{Task: t}, nil)
	if !made || err != nil {
		s.t.Fatalf("the step of %s to %s: %t, %v", t.ID, t.State, made, err)
	}
	return t
}

// wantStale makes a step that must not be made.
func (s taskTest) wantStale(step video.Step, why string) {
	s.t.Helper()
	if made, err := s.Change(s.t.Context(), step, nil); made || err != nil {
		s.t.Errorf("%s: %t, %v", why, made, err)
	}
}

func (s taskTest) find(account, id string) *video.Task {
	s.t.Helper()
	found, err := s.Find(s.t.Context(), account, id)
	s.ok(err)
	return found
}

func (s taskTest) want(t video.Task) {
	s.t.Helper()
	s.same("the task "+t.ID, &t, s.find(t.Account, t.ID))
}

func (s taskTest) wantNone(account, id string) {
	s.t.Helper()
	if found := s.find(account, id); found != nil {
		s.t.Errorf("%s finds %q: %+v", account, id, found)
	}
}

// wantClaimed claims for a minute and compares the ids.
func (s taskTest) wantClaimed(owner string, n int, want ...string) {
	s.t.Helper()
	tasks, err := s.Claim(s.t.Context(), owner, s.clock.Now().Add(time.Minute), n)
	s.ok(err)
	got := []string{}
	for _, t := range tasks {
		got = append(got, strings.TrimPrefix(t.ID, "vid_"))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		s.t.Fatalf("%s claims %d at %s (-want +got):\n%s", owner, n, s.clock.Now(), diff)
	}
}

// filled gives every field another value.
func filled(t testing.TB, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Field(i)
		switch f := field.Addr().Interface().(type) {
		case *time.Time:
			*f = startTime.Add(time.Duration(i) * time.Hour)
		case **video.Failure:
			*f = &video.Failure{Code: "code", Message: "message"}
		case *[32]byte:
			*f = [32]byte{31: 1, 0: 0xff}
		default:
			switch {
			case field.Kind() == reflect.String:
				field.SetString(fmt.Sprintf("text %d ' é", i))
			case field.Kind() == reflect.Int64:
				field.SetInt(int64(i) + 1<<40)
			case field.Kind() == reflect.Bool:
				field.SetBool(true)
			case field.Kind() == reflect.Slice:
				field.SetBytes(fmt.Appendf(nil, `{"n":%d}`, i))
			case field.Kind() == reflect.Struct:
				filled(t, field)
			default:
				t.Fatalf("a field of the kind %s", field.Type())
			}
		}
	}
}
