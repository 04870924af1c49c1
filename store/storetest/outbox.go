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
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

// outboxTests are the rules of the outbox.
var outboxTests = map[string]func(dbTest){
	"ANoticeIsLeasedByOneAtATimeTheLongestWaitingFirst": func(b dbTest) {
		for _, id := range []string{"c", "b", "a"} {
			b.addNotice("acme", id)
			b.advance(time.Second)
		}
		due := b.wantDue(2, "c", "b")
		want := webhook.Notice{ID: "evt_vid_c", Account: "acme", URL: "https://example.com/hook", Body: []byte(`{"id":"vid_c"}`), CreatedAt: startTime}
		if diff := cmp.Diff(want, due[0]); diff != "" {
			b.t.Errorf("(-want +got):\n%s", diff)
		}
		b.wantDue(0)
		b.wantDue(9, "a")
		b.wantDue(9)
		b = b.crash() // a lease outlives its process
		b.wantDue(9)
		b.advance(time.Minute - 1)
		b.wantDue(9)
		b.advance(1)
		b.wantDue(9, "c", "b", "a")
	},
	"ANoticeThatFailedIsDueAgainAtItsTime": func(b dbTest) {
		ctx := b.t.Context()
		b.addNotice("acme", "a")
		n := b.wantDue(1, "a")[0]
		b.ok(b.Failed(ctx, n, b.clock.Now().Add(5*time.Second), "no answer", false))
		b.advance(5*time.Second - 1)
		b.wantDue(1)
		b.advance(1)
		due := b.wantDue(1, "a")
		if due[0].Tries != 1 || string(due[0].Body) != string(n.Body) {
			b.t.Errorf("%+v", due[0])
		}
		b.ok(b.Failed(ctx, n, time.Time{}, "no answer", true)) // the end of the first try again
		b.ok(b.Failed(ctx, due[0], time.Time{}, "gone", true))
		b.ok(b.Done(ctx, n.ID, b.clock.Now()))                                               // it has ended before
		b.ok(b.Failed(ctx, due[0], b.clock.Now(), "again", false))                           // the same
		b.ok(b.Done(ctx, "evt_nobody", b.clock.Now()))                                       // nobody's
		b.ok(b.Failed(ctx, webhook.Notice{ID: "evt_nobody"}, b.clock.Now(), "nobody", true)) // nobody's
		b.advance(time.Hour)
		b.wantDue(1)
		b.wantListed("acme", 1, webhook.Entry{
			Notice: webhook.Notice{ID: n.ID, Account: "acme", URL: n.URL, Body: n.Body, CreatedAt: startTime, Tries: 2},
			State:  webhook.Failed, Ended: startTime.Add(5 * time.Second), Reason: "gone",
		})
	},
	"ANoticeThatHasEndedIsNotDueAndIsKeptForSevenDays": func(b dbTest) {
		sent, failed := b.addNotice("acme", "sent"), b.addNotice("acme", "failed")
		b.addNotice("acme", "open")
		b.ok(b.Done(b.t.Context(), sent.ID, startTime))
		b.ok(b.Failed(b.t.Context(), webhook.Notice{ID: failed.ID, CreatedAt: failed.At}, time.Time{}, "no", true))
		b.wantDue(9, "open")
		b.clock.Set(startTime.Add(7*24*time.Hour - 1))
		b.ok(b.Sweep(b.t.Context()))
		b.wantNotices("evt_vid_failed", "evt_vid_open", "evt_vid_sent")
		b.clock.Set(startTime.Add(7 * 24 * time.Hour))
		b.ok(b.Sweep(b.t.Context()))
		b.wantNotices("evt_vid_open")
	},
	"AnOperatorSendsANoticeAgain": func(b dbTest) {
		ctx := b.t.Context()
		b.addNotice("acme", "a")
		n := b.wantDue(1, "a")[0]
		b.ok(b.Failed(ctx, n, time.Time{}, "no", true))
		b.advance(time.Hour)
		if found, err := b.Resend(ctx, "evt_nobody"); found || err != nil {
			b.t.Errorf("a notice that is not there: %v, %v", found, err)
		}
		b.wantDue(1)
		b.resent(n.ID)
		b.ok(b.Failed(ctx, n, time.Time{}, "no", true)) // the end of a try from before
		if due := b.wantDue(1, "a"); due[0].Tries != 0 || !due[0].CreatedAt.Equal(b.clock.Now()) || string(due[0].Body) != string(n.Body) {
			b.t.Errorf("%+v", due[0])
		}
		b.ok(b.Done(ctx, n.ID, b.clock.Now()))
		b.resent(n.ID)
		b.wantDue(1, "a")
	},
	"OfManyThatAskEachNoticeIsLeasedOnce": func(b dbTest) {
		const notices = 60
		for i := range notices {
			b.addNotice("acme", id(i))
		}
		nodes := []dbTest{b}
		if b.place.Shared {
			nodes = append(nodes, b.open(store.Options{}))
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		leased := map[string]int{}
		for i := range 8 {
			all.Go(func() {
				for range 4 {
					due, err := nodes[i%len(nodes)].Due(context.Background(), fmt.Sprint(i), startTime.Add(time.Minute), 5)
					if err != nil {
						b.t.Error(err)
					}
					mu.Lock()
					for _, n := range due {
						leased[n.ID]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for _, n := range b.wantDueAny() {
			leased[n.ID]++
		}
		for id, times := range leased {
			if times != 1 {
				b.t.Errorf("%s was leased %d times", id, times)
			}
		}
		if len(leased) != notices {
			b.t.Errorf("%d of %d notices were leased", len(leased), notices)
		}
	},
	"NoticesAreListedByAccountTheNewestFirst": func(b dbTest) {
		b.addNotice("acme", "a")
		b.advance(time.Second)
		b.addNotice("zeta", "b")
		b.addNotice("acme", "c")
		for _, c := range []struct {
			account string
			limit   int
			want    []string
		}{
			{"acme", 9, []string{"evt_vid_c", "evt_vid_a"}}, {"acme", 1, []string{"evt_vid_c"}}, {"acme", 0, []string{"evt_vid_c", "evt_vid_a"}},
			{"", 9, []string{"evt_vid_b", "evt_vid_c", "evt_vid_a"}}, {"nobody", 9, nil},
		} {
			all, err := b.Notices(b.t.Context(), c.account, c.limit)
			b.ok(err)
			var got []string
			for _, n := range all {
				got = append(got, n.ID)
			}
			if !slices.Equal(got, c.want) {
				b.t.Errorf("%q, %d: %q", c.account, c.limit, got)
			}
		}
	},
	"ASecretIsMadeOnceAndBothSignAfterARotation": func(b dbTest) {
		made := make(chan string, 20)
		b.inParallel(cap(made), func(int) error {
			s, err := b.WebhookSecret(b.t.Context(), "acme", false)
			made <- s.Reveal()
			return err
		})
		first := b.secret("acme", false)
		for range cap(made) {
			if s := <-made; s != first.Reveal() {
				b.t.Fatal("an account has two first secrets")
			}
		}
		b.wantSecrets("acme", first)
		others, err := b.Secrets(b.t.Context(), "zeta") // which has none yet
		b.ok(err)
		b.wantSecrets("zeta", others...)
		second := b.secret("acme", true)
		if len(others) != 1 || others[0].Reveal() == first.Reveal() || second.Reveal() == first.Reveal() {
			b.t.Fatal("two secrets are the same")
		}
		b.advance(24*time.Hour - 1)
		b = b.crash()
		b.wantSecrets("acme", second, first)
		third := b.secret("acme", true)
		b.wantSecrets("acme", third, second) // the first no more
		b.advance(24*time.Hour - 1)
		b.wantSecrets("acme", third, second)
		b.advance(1)
		b.wantSecrets("acme", third)
		if again := b.secret("acme", false); again.Reveal() != third.Reveal() {
			b.t.Error("a look makes a secret")
		}
		b.wantSecrets("zeta", others...)
	},
	"ASecretComesFromTheRandomnessThatIsGiven": func(b dbTest) {
		b.kill()
		b = b.open(store.Options{Rand: bytes.NewReader(bytes.Repeat([]byte{7}, 32))})
		want, err := webhook.NewSecret(bytes.NewReader(bytes.Repeat([]byte{7}, 32)))
		b.ok(err)
		if got := b.secret("acme", false); got.Reveal() != want.Reveal() {
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

// post writes the notice of a task that has ended.
func (b dbTest) addNotice(account, id string) video.Notice {
	b.t.Helper()
	s := b.taskTest()
	f := newTask(id)
	f.Task.Account = account
	step := endStep(s.add(f), video.Failed, b.clock.Now())
	made, err := s.Change(b.t.Context(), step, nil)
	if !made || err != nil {
		b.t.Fatal(made, err)
	}
	return *step.Notice
}

// wantDue leases notices for a minute and compares their ids.
func (b dbTest) wantDue(n int, want ...string) []webhook.Notice {
	b.t.Helper()
	due, err := b.Due(b.t.Context(), "node_1", b.clock.Now().Add(time.Minute), n)
	b.ok(err)
	got := []string{}
	for _, n := range due {
		got = append(got, strings.TrimPrefix(n.ID, "evt_vid_"))
	}
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		b.t.Fatalf("due at %s (-want +got):\n%s", b.clock.Now(), diff)
	}
	return due
}

func (b dbTest) advance(d time.Duration) {
	b.clock.Set(b.clock.Now().Add(d))
}

func (b dbTest) wantListed(account string, limit int, want ...webhook.Entry) {
	b.t.Helper()
	got, err := b.Notices(b.t.Context(), account, limit)
	b.ok(err)
	if diff := cmp.Diff(append([]webhook.Entry{}, want...), got); diff != "" {
		b.t.Fatalf("notices of %q (-want +got):\n%s", account, diff)
	}
}

// resent sends a notice again that there is.
func (b dbTest) resent(id string) {
	b.t.Helper()
	if found, err := b.Resend(b.t.Context(), id); !found || err != nil {
		b.t.Fatalf("resend %s: %v, %v", id, found, err)
	}
}

// wantDueAny leases the rest.
func (b dbTest) wantDueAny() []webhook.Notice {
	b.t.Helper()
	due, err := b.Due(b.t.Context(), "last", startTime.Add(time.Minute), 1_000)
	b.ok(err)
	return due
}

func (b dbTest) wantSecrets(account string, want ...webhook.Secret) {
	b.t.Helper()
	got, err := b.Secrets(b.t.Context(), account)
	b.ok(err)
	if !slices.EqualFunc(got, want, func(x, y webhook.Secret) bool { return x.Reveal() == y.Reveal() }) {
		b.t.Fatalf("%s has %d secrets, want these %d", account, len(got), len(want))
	}
}

func (b dbTest) secret(account string, rotate bool) webhook.Secret {
	b.t.Helper()
	s, err := b.WebhookSecret(b.t.Context(), account, rotate)
	b.ok(err)
	if _, err := webhook.ParseSecret(s.Reveal()); err != nil {
		b.t.Fatal(err)
	}
	return s
}
