package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/video"
)

func TestOpenHoldsAndCommitsAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		var mu sync.Mutex
		var commits []store.Commit
		db := open(store.Options{Committed: func(c store.Commit) {
			mu.Lock()
			defer mu.Unlock()
			commits = append(commits, c)
		}})
		if err := db.CreateAccount(t.Context(), "acme", billing.One); err != nil {
			t.Fatal(err)
		}
		h, err := db.Reserve(t.Context(), billing.Charge{Account: "acme", RequestID: "req_1", Operation: "chat", Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if s := db.Stats(); s != (store.Stats{Holds: 1}) {
			t.Errorf("with a hold: %+v", s)
		}
		if _, err := db.Settle(t.Context(), h, billing.Usage{}); err != nil {
			t.Fatal(err)
		}
		if s := db.Stats(); s != (store.Stats{}) {
			t.Errorf("without holds: %+v", s)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(commits) < 3 {
			t.Fatalf("the commits are %+v", commits)
		}
		for _, c := range commits {
			if c.Operations < 1 || c.Took <= 0 || c.Err != nil {
				t.Errorf("a commit is %+v", c)
			}
		}
	})
}

func TestOpenTasksAndNoticesAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		db := open(store.Options{})
		if b, err := db.Backlog(t.Context()); err != nil || len(b.Tasks) != 0 || b.Notices != 0 || !b.Oldest.IsZero() {
			t.Errorf("an empty store has %+v (%v)", b, err)
		}
		now := time.Now()
		for _, id := range []string{"vid_1", "vid_2", "vid_3"} {
			task := video.Task{
				ID: id, Account: "acme", Key: "key_1", RequestID: "req_" + id, State: video.Submitting, Version: 1,
				CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(time.Hour), WebhookURL: "https://hooks.example/x",
			}
			if err := db.Tasks().Add(t.Context(), video.CreateTask{Task: task}); err != nil {
				t.Fatal(err)
			}
			task.State, task.Version, task.UpstreamID = video.Running, 2, "up-"+id
			step := video.Step{Task: task}
			if id == "vid_3" {
				step.Task.State, step.Task.PurgeAt = video.Failed, now.Add(time.Hour)
				step.Notice = step.Task.NoticeOf("evt_1", now)
			}
			if made, err := db.Tasks().Change(t.Context(), step, nil); err != nil || !made {
				t.Fatalf("%s: %t, %v", id, made, err)
			}
		}
		b, err := db.Backlog(t.Context())
		if err != nil || len(b.Tasks) != 1 || b.Tasks[string(video.Running)] != 2 || b.Notices != 1 || b.Oldest.IsZero() {
			t.Errorf("the backlog is %+v (%v)", b, err)
		}
	})
}
