package store_test

import (
	"io"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Each of these is committed, the answer to its COMMIT lost, and so done again. What
// moves money is in storetest.
func TestWhatIsDoneAgainAfterACommitWithoutAnAnswerIsDoneOnce(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		faults := &sqlhook.Faults{}
		db := open(store.Options{Wrap: faults.Wrap, WaitTimeout: time.Minute})
		l, ctx := db.Ledger(), t.Context()
		must(t, l.CreateAccount(ctx, "acme", billing.One))
		first, err := l.WebhookSecret(ctx, "acme", false)
		must(t, err)
		task := video.Task{ID: "vid_1", Account: "acme", Key: "k1", RequestID: "req_1", State: video.Submitting, CreatedAt: noon, UpdatedAt: noon}
		for _, c := range []struct {
			name string
			do   func() (ok bool, err error)
		}{
			{"a budget", func() (bool, error) {
				limit := billing.One / 2
				if err := l.SetBudget(ctx, "acme", "k1", &limit); err != nil {
					return false, err
				}
				left, err := l.BudgetsOf(ctx, []billing.KeyOf{{Account: "acme", Key: "k1"}})
				return left[billing.KeyOf{Account: "acme", Key: "k1"}] == limit, err
			}},
			{"an account", func() (bool, error) { return true, l.CreateAccount(ctx, "zeta", 0) }},
			{"a secret that takes another's place", func() (bool, error) {
				made, err := l.WebhookSecret(ctx, "acme", true)
				if err != nil {
					return false, err
				}
				all, err := l.Secrets(ctx, "acme")
				return len(all) == 2 && all[0].Reveal() == made.Reveal() && all[1].Reveal() == first.Reveal(), err
			}},
			{"a task", func() (bool, error) { return true, l.Add(ctx, video.CreateTask{Task: task, Most: 1}) }},
			{"a step with a delivery", func() (bool, error) {
				next := task
				next.State, next.Version, next.UpdatedAt = video.Failed, task.Version+1, noon.Add(time.Second)
				return l.Change(ctx, video.Step{Task: next, Delivery: &webhook.Delivery{ID: "evt_1", Account: "acme", TaskID: task.ID, CreatedAt: noon}}, nil)
			}},
			{"the lease of a delivery", func() (bool, error) {
				due, err := l.Due(ctx, "me", time.Now().Add(time.Minute), 10)
				return len(due) == 1, err
			}},
		} {
			faults.FailCommit(true, io.ErrUnexpectedEOF)
			if ok, err := c.do(); !ok || err != nil {
				t.Errorf("%s: %v, %v", c.name, ok, err)
			}
		}
	})
}
