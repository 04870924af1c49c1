package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// outboxTests are the sentences of webhook.Outbox, and of what an operator sees of it.
var outboxTests = map[string]func(taskTest){
	"ADeliveryIsLeasedByOneAtATimeTheLongestWaitingFirst": func(s taskTest) {
		for _, id := range []string{"c", "b", "a"} {
			s.addDelivery("acme", id)
			s.advance(time.Second)
		}
		due := s.wantDue(2, "c", "b")
		want := webhook.Delivery{ID: "evt_vid_c", Account: "acme", TaskID: "vid_c", URL: "https://example.com/hook", Body: []byte(`{"id":"vid_c"}`), CreatedAt: startTime}
		s.same("the delivery", want, due[0])
		s.wantDue(0)
		s.wantDue(9, "a")
		s.wantDue(9)
		s = s.restart() // a lease outlives its process
		s.wantDue(9)
		s.advance(time.Minute - 1)
		s.wantDue(9)
		s.advance(1)
		s.wantDue(9, "c", "b", "a")
	},
	"ADeliveryThatFailedIsDueAgainAtItsTime": func(s taskTest) {
		ctx := s.t.Context()
		s.addDelivery("acme", "a")
		n := s.wantDue(1, "a")[0]
		s.ok(s.Outbox.Failed(ctx, n, s.clock.Now().Add(5*time.Second), "no answer", false))
		s.advance(5*time.Second - 1)
		s.wantDue(1)
		s.advance(1)
		due := s.wantDue(1, "a")
		if due[0].Tries != 1 || string(due[0].Body) != string(n.Body) {
			s.t.Errorf("%+v", due[0])
		}
		s.ok(s.Outbox.Failed(ctx, n, time.Time{}, "no answer", true)) // the end of the first attempt again
		s.ok(s.Outbox.Failed(ctx, due[0], time.Time{}, "gone", true))
		s.ok(s.Outbox.Done(ctx, n.ID, s.clock.Now()))                                             // it has ended before
		s.ok(s.Outbox.Failed(ctx, due[0], s.clock.Now(), "again", false))                         // the same
		s.ok(s.Outbox.Done(ctx, "evt_none", s.clock.Now()))                                       // none's
		s.ok(s.Outbox.Failed(ctx, webhook.Delivery{ID: "evt_none"}, s.clock.Now(), "none", true)) // none's
		s.advance(time.Hour)
		s.wantDue(1)
		s.wantListed("acme", 1, webhook.Status{
			Delivery: webhook.Delivery{ID: n.ID, Account: "acme", TaskID: "vid_a", URL: n.URL, Body: n.Body, CreatedAt: startTime, Tries: 2},
			State:    webhook.Failed, Ended: startTime.Add(5 * time.Second), Reason: "gone",
		})
	},
	"ADeliveryThatHasEndedIsNotDueAndIsKeptForSevenDays": func(s taskTest) {
		sent, failed := s.addDelivery("acme", "sent"), s.addDelivery("acme", "failed")
		s.addDelivery("acme", "open")
		s.ok(s.Outbox.Done(s.t.Context(), sent.ID, startTime))
		s.ok(s.Outbox.Failed(s.t.Context(), webhook.Delivery{ID: failed.ID, CreatedAt: failed.CreatedAt}, time.Time{}, "no", true))
		s.wantDue(9, "open")
		s.clock.Set(startTime.Add(7*24*time.Hour - 1))
		s.sweep()
		s.wantDeliveries("evt_vid_failed", "evt_vid_open", "evt_vid_sent")
		s.clock.Set(startTime.Add(7 * 24 * time.Hour))
		s.sweep()
		s.wantDeliveries("evt_vid_open")
	},
	"AnOperatorSendsADeliveryAgain": func(s taskTest) {
		ctx := s.t.Context()
		s.addDelivery("acme", "a")
		n := s.wantDue(1, "a")[0]
		s.ok(s.Outbox.Failed(ctx, n, time.Time{}, "no", true))
		s.advance(time.Hour)
		if found, err := s.Outbox.Resend(ctx, "evt_none"); found || err != nil {
			s.t.Errorf("a delivery that is not there: %v, %v", found, err)
		}
		s.wantDue(1)
		s.resent(n.ID)
		s.ok(s.Outbox.Failed(ctx, n, time.Time{}, "no", true)) // the end of an attempt from before
		if due := s.wantDue(1, "a"); due[0].Tries != 0 || !due[0].CreatedAt.Equal(s.clock.Now()) || string(due[0].Body) != string(n.Body) {
			s.t.Errorf("%+v", due[0])
		}
		s.ok(s.Outbox.Done(ctx, n.ID, s.clock.Now()))
		s.resent(n.ID)
		s.wantDue(1, "a")
	},
	"DeliveriesAreListedByAccountTheNewestFirst": func(s taskTest) {
		s.addDelivery("acme", "a")
		s.advance(time.Second)
		s.addDelivery("zeta", "b")
		s.addDelivery("acme", "c")
		for _, c := range []struct {
			account string
			limit   int
			want    []string
		}{
			{"acme", 9, []string{"evt_vid_c", "evt_vid_a"}}, {"acme", 1, []string{"evt_vid_c"}}, {"acme", 0, []string{"evt_vid_c", "evt_vid_a"}},
			{"", 9, []string{"evt_vid_b", "evt_vid_c", "evt_vid_a"}}, {"none", 9, nil},
		} {
			all, err := s.Outbox.Deliveries(s.t.Context(), c.account, c.limit)
			s.ok(err)
			var got []string
			for _, n := range all {
				got = append(got, n.ID)
			}
			if !slices.Equal(got, c.want) {
				s.t.Errorf("%q, %d: %q", c.account, c.limit, got)
			}
		}
	},
	"ASecretIsMadeOnceAndBothSignAfterARotation": func(s taskTest) {
		made := make(chan string, 20)
		for range cap(made) {
			go func() {
				secret, err := s.Outbox.WebhookSecret(s.t.Context(), "acme", false)
				if err != nil {
					s.t.Error(err)
				}
				made <- secret.Reveal()
			}()
		}
		first := s.secret("acme", false)
		for range cap(made) {
			if text := <-made; text != first.Reveal() {
				s.t.Fatal("an account has two first secrets")
			}
		}
		s.wantSecrets("acme", first)
		others, err := s.Outbox.Secrets(s.t.Context(), "zeta") // which has none yet
		s.ok(err)
		s.wantSecrets("zeta", others...)
		second := s.secret("acme", true)
		if len(others) != 1 || others[0].Reveal() == first.Reveal() || second.Reveal() == first.Reveal() {
			s.t.Fatal("two secrets are the same")
		}
		s.advance(24*time.Hour - 1)
		s = s.restart()
		s.wantSecrets("acme", second, first)
		third := s.secret("acme", true)
		s.wantSecrets("acme", third, second) // the first no more
		s.advance(24*time.Hour - 1)
		s.wantSecrets("acme", third, second)
		s.advance(1)
		s.wantSecrets("acme", third)
		if again := s.secret("acme", false); again.Reveal() != third.Reveal() {
			s.t.Error("a look makes a secret")
		}
		s.wantSecrets("zeta", others...)
	},
}

// sharedOutboxTests are the rules of an outbox in a database.
var sharedOutboxTests = map[string]func(dbTest){
	"OfManyThatAskEachDeliveryIsLeasedOnce": func(b dbTest) {
		const deliveries = 60
		for i := range deliveries {
			b.taskTest().addDelivery("acme", id(i))
		}
		nodes := []dbTest{b}
		if b.place.Shared {
			nodes = append(nodes, b.open(store.Options{}))
		}
		var mu sync.Mutex
		leased := map[string]int{}
		b.inParallel(8, func(i int) error {
			for range 4 {
				due, err := nodes[i%len(nodes)].Due(context.Background(), fmt.Sprint(i), startTime.Add(time.Minute), 5)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, n := range due {
					leased[n.ID]++
				}
				mu.Unlock()
			}
			return nil
		})
		for _, n := range b.taskTest().due(1_000) {
			leased[n.ID]++
		}
		for id, times := range leased {
			if times != 1 {
				b.t.Errorf("%s was leased %d times", id, times)
			}
		}
		if len(leased) != deliveries {
			b.t.Errorf("%d of %d deliveries were leased", len(leased), deliveries)
		}
	},
	"ASecretComesFromTheRandomnessThatIsGiven": func(b dbTest) {
		b.kill()
		b = b.open(store.Options{Rand: bytes.NewReader(bytes.Repeat([]byte{7}, 32))})
		want, err := webhook.NewSecret(bytes.NewReader(bytes.Repeat([]byte{7}, 32)))
		b.ok(err)
		if got := b.taskTest().secret("acme", false); got.Reveal() != want.Reveal() {
			b.t.Error("another secret was made")
		}
		b.kill()
		b = b.open(store.Options{Rand: iotest.ErrReader(sqlhook.ErrFault)})
		_, err = b.WebhookSecret(b.t.Context(), "zeta", false)
		b.wantCode(err, fault.InternalError)
		_, err = b.Secrets(b.t.Context(), "zeta")
		b.wantCode(err, fault.InternalError)
	},
}

// addDelivery writes the delivery of a task that has ended.
func (s taskTest) addDelivery(account, id string) webhook.Delivery {
	s.t.Helper()
	f := newTask(id)
	f.Task.Account = account
	step := endStep(s.add(f), video.Failed, s.clock.Now())
	made, err := s.Change(s.t.Context(), step, nil)
	if !made || err != nil {
		s.t.Fatal(made, err)
	}
	return *step.Delivery
}

// wantDue leases deliveries for a minute and compares their ids.
func (s taskTest) wantDue(n int, want ...string) []webhook.Delivery {
	s.t.Helper()
	due := s.due(n)
	got := []string{}
	for _, n := range due {
		got = append(got, strings.TrimPrefix(n.ID, "evt_vid_"))
	}
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		s.t.Fatalf("due at %s (-want +got):\n%s", s.clock.Now(), diff)
	}
	return due
}

func (s taskTest) wantListed(account string, limit int, want ...webhook.Status) {
	s.t.Helper()
	got, err := s.Outbox.Deliveries(s.t.Context(), account, limit)
	s.ok(err)
	s.same("the deliveries of "+account, append([]webhook.Status{}, want...), got)
}

// resent resends a delivery that exists.
func (s taskTest) resent(id string) {
	s.t.Helper()
	if found, err := s.Outbox.Resend(s.t.Context(), id); !found || err != nil {
		s.t.Fatalf("resend %s: %v, %v", id, found, err)
	}
}

// due leases at most n deliveries for a minute.
func (s taskTest) due(n int) []webhook.Delivery {
	s.t.Helper()
	due, err := s.Outbox.Due(s.t.Context(), "node_1", s.clock.Now().Add(time.Minute), n)
	s.ok(err)
	return due
}

// deliveries are the ids of all deliveries, the newest first.
func (s taskTest) deliveries() []string {
	s.t.Helper()
	all, err := s.Outbox.Deliveries(s.t.Context(), "", mostDeliveries)
	s.ok(err)
	ids := []string{}
	for _, d := range all {
		ids = append(ids, d.ID)
	}
	return ids
}

func (s taskTest) wantDeliveries(ids ...string) {
	s.t.Helper()
	s.same("the deliveries", append([]string{}, ids...), s.deliveries())
}

// restart is the store after a crash of its process, or the same if nothing would
// be left of it.
func (s taskTest) restart() taskTest {
	if s.Restart != nil {
		s.TaskStore = s.Restart()
	}
	return s
}

func (s taskTest) sweep() {
	s.t.Helper()
	if s.Sweep != nil {
		s.ok(s.Sweep(s.t.Context()))
	}
}

func (s taskTest) wantSecrets(account string, want ...webhook.Secret) {
	s.t.Helper()
	got, err := s.Outbox.Secrets(s.t.Context(), account)
	s.ok(err)
	if !slices.EqualFunc(got, want, func(x, y webhook.Secret) bool { return x.Reveal() == y.Reveal() }) {
		s.t.Fatalf("%s has %d secrets, want these %d", account, len(got), len(want))
	}
}

func (s taskTest) secret(account string, rotate bool) webhook.Secret {
	s.t.Helper()
	made, err := s.Outbox.WebhookSecret(s.t.Context(), account, rotate)
	s.ok(err)
	_, err = webhook.ParseSecret(made.Reveal())
	s.ok(err)
	return made
}
