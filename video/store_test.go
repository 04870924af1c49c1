package video

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// fresh is a task that is being submitted.
func fresh(id string, fingerprint byte) CreateTask {
	return CreateTask{Task: Task{ID: id, Account: "acme", Key: "key_1", RequestID: "req_" + id, State: Submitting, CreatedAt: noon, Fingerprint: [32]byte{fingerprint}}}
}

// change makes a step that must be made.
func change(t *testing.T, m *Memory, task Task) {
	t.Helper()
	if ok, err := m.Change(t.Context(), Step{Task: task}, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func find(t *testing.T, m *Memory, account, id string) *Task {
	t.Helper()
	found, err := m.Find(t.Context(), account, id)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAKeyHasNoMoreOpenTasksThanItMay(t *testing.T) {
	m := &Memory{}
	add := func(id, key string) error {
		n := fresh(id, id[0])
		n.Task.Key, n.Most = key, 2
		return m.Add(t.Context(), n)
	}
	if err := errors.Join(add("a", "key_1"), add("b", "key_1"), add("c", "key_2")); err != nil {
		t.Fatal(err)
	}
	if err := add("d", "key_1"); !fault.Is(err, fault.ConcurrencyExceeded) {
		t.Errorf("the third: %v", err)
	}
	ended := *find(t, m, "acme", "a")
	ended.State, ended.Version = Failed, 1
	change(t, m, ended)
	if err := add("d", "key_1"); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	if err := m.Drop(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := add("e", "key_1"); err != nil {
		t.Errorf("after one was dropped: %v", err)
	}
	if err := add("f", "key_1"); !fault.Is(err, fault.ConcurrencyExceeded) {
		t.Errorf("again too many: %v", err)
	}
	if err := add("a", "key_3"); err == nil {
		t.Error("an id was given twice")
	}
}

func TestTheSameSubmissionWithinTheWindowIsAConflict(t *testing.T) {
	now := noon
	m := &Memory{Now: func() time.Time { return now }}
	add := func(id string, retried bool) error {
		n := fresh(id, 1)
		n.Window, n.Retried, n.Task.CreatedAt = 5*time.Second, retried, now
		return m.Add(t.Context(), n)
	}
	if err := add("a", false); err != nil {
		t.Fatal(err)
	}
	now = noon.Add(time.Minute)
	err := add("b", false)
	if f := fault.From(err); !fault.Is(err, fault.IdempotencyConflict) || f.Retry != fault.RetryNo || f.HTTPStatus() != 409 {
		t.Errorf("while the first is being submitted: %v", err)
	}
	first := *find(t, m, "acme", "a")
	change(t, m, first.Accept(Report{UpstreamID: "up-1"}, "ch", now))
	now = now.Add(5*time.Second - 1)
	if err := add("b", false); !fault.Is(err, fault.IdempotencyConflict) || !errorsContain(err, `"up-1"`) {
		t.Errorf("just after it was accepted: %v", err)
	}
	if err := add("b", true); err != nil {
		t.Errorf("with an idempotency key: %v", err)
	}
	if err := m.Drop(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := add("c", false); err != nil {
		t.Errorf("after a submission that was refused: %v", err)
	}
	if err := m.Drop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	n := fresh("d", 2)
	if err := errors.Join(m.Add(t.Context(), n), m.Drop(t.Context(), "nobody")); err != nil {
		t.Fatal(err)
	}
	n.Task.ID = "e"
	if err := m.Add(t.Context(), n); err != nil {
		t.Errorf("without a window: %v", err)
	}
}

func errorsContain(err error, text string) bool {
	f := fault.From(err)
	return f != nil && strings.Contains(f.Message, text)
}

func TestAStepIsMadeOnce(t *testing.T) {
	var notices []Notice
	removed := errors.New("away")
	var fails error
	m := &Memory{Answers: &memory.Answers{}, Outbox: func(_ context.Context, n Notice) error {
		if fails == nil {
			notices = append(notices, n)
		}
		return fails
	}}
	if err := m.Add(t.Context(), fresh("a", 1)); err != nil {
		t.Fatal(err)
	}
	key := idempotency.Key{Account: "acme", Operation: "video", Key: "k"}
	if _, err := m.Answers.Open(t.Context(), key, idempotency.Content{1}, "req_a"); err != nil {
		t.Fatal(err)
	}
	before := *find(t, m, "acme", "a")
	accepted := before.Accept(Report{UpstreamID: "up-1"}, "ch", noon)
	ok, err := m.Change(t.Context(), Step{Task: accepted}, &idempotency.Record{Key: key, Header: http.Header{"X": {"y"}}, Body: []byte("{}")})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if a, err := m.Answers.Open(t.Context(), key, idempotency.Content{1}, "req_b"); err != nil || a == nil || string(a.Body) != "{}" || a.Receipt.ID != "req_a" {
		t.Errorf("the answer was not kept: %+v, %v", a, err)
	}
	if ok, err := m.Change(t.Context(), Step{Task: accepted}, nil); ok || err != nil {
		t.Error("a step was made twice")
	}
	end := accepted.step(Succeeded, noon)
	notice := &Notice{ID: "evt_1"}
	fails = removed
	if ok, err := m.Change(t.Context(), Step{Task: end, Notice: notice}, nil); ok || !errors.Is(err, removed) {
		t.Errorf("a step without its notice: %t, %v", ok, err)
	}
	fails = nil
	var wg sync.WaitGroup
	made := make(chan bool, 8)
	for range cap(made) {
		wg.Go(func() {
			ok, err := m.Change(t.Context(), Step{Task: end, Notice: notice}, nil)
			made <- ok && err == nil
		})
	}
	wg.Wait()
	close(made)
	count := 0
	for ok := range made {
		if ok {
			count++
		}
	}
	if count != 1 || len(notices) != 1 {
		t.Errorf("8 nodes made %d steps and %d notices", count, len(notices))
	}
	if ok, _ := m.Change(t.Context(), Step{Task: end.step(Failed, noon)}, nil); ok {
		t.Error("a terminal state was left")
	}
	if ok, err := m.Change(t.Context(), Step{Task: Task{ID: "nobody"}}, nil); ok || err != nil {
		t.Error(ok, err)
	}
}

func TestATaskIsFoundByEitherIdOfItsAccountOnly(t *testing.T) {
	m := &Memory{}
	for _, account := range []string{"acme", "other"} {
		n := fresh("vid_"+account, account[0])
		n.Task.Account = account
		if err := m.Add(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		change(t, m, n.Task.Accept(Report{UpstreamID: "up-1"}, "ch", noon))
	}
	for _, c := range []struct{ account, id, want string }{
		{"acme", "vid_acme", "vid_acme"}, {"acme", "up-1", "vid_acme"}, {"other", "up-1", "vid_other"},
		{"acme", "vid_other", ""}, {"nobody", "up-1", ""}, {"acme", "", ""},
	} {
		found := find(t, m, c.account, c.id)
		if got := found; (got == nil) != (c.want == "") || got != nil && got.ID != c.want {
			t.Errorf("%s looks for %q: %+v", c.account, c.id, got)
		}
	}
	found := find(t, m, "acme", "up-1")
	found.State = Failed
	if find(t, m, "acme", "up-1").State == Failed {
		t.Error("what was found is not a copy")
	}
	if f := fault.From(ErrNotFound("x")); f.HTTPStatus() != 404 || f.Code != fault.ResourceNotFound {
		t.Error(f)
	}
}

func TestOpenTasksAreLeased(t *testing.T) {
	now := noon
	m := &Memory{Now: func() time.Time { return now }}
	for i := range 4 {
		n := fresh(fmt.Sprint("vid_", i), byte(i))
		n.Task.PolledAt = noon.Add(-time.Duration(i) * time.Minute)
		if err := m.Add(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(owner string, n int) string {
		tasks, err := m.Claim(t.Context(), owner, now.Add(time.Minute), n)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, task := range tasks {
			ids[task.ID] = true
		}
		return fmt.Sprint(ids)
	}
	for _, c := range []struct {
		owner string
		n     int
		after time.Duration
		want  string
	}{
		{"a", 1, 0, "map[vid_3:true]"},
		{"b", 2, 0, "map[vid_1:true vid_2:true]"},
		{"a", 9, 0, "map[vid_0:true vid_3:true]"},
		{"b", 9, 30 * time.Second, "map[vid_1:true vid_2:true]"},
		{"b", 9, 29 * time.Second, "map[vid_1:true vid_2:true]"},
		{"b", 9, time.Second, "map[vid_0:true vid_1:true vid_2:true vid_3:true]"},
		{"a", 9, 0, "map[]"},
	} {
		now = now.Add(c.after)
		if got := claim(c.owner, c.n); got != c.want {
			t.Errorf("%s claims %d at %s: %s, want %s", c.owner, c.n, now, got, c.want)
		}
	}
	ended := find(t, m, "acme", "vid_0").step(Failed, now)
	change(t, m, ended)
	if got := claim("b", 0); got != "map[vid_1:true vid_2:true vid_3:true]" {
		t.Error("after one ended:", got)
	}
}

func TestARecordIsPurgedWhenItsTimeHasCome(t *testing.T) {
	m := &Memory{}
	for i, at := range []time.Time{{}, noon, noon.Add(1)} {
		n := fresh(fmt.Sprint("vid_", i), byte(i))
		if err := m.Add(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		ended := n.Task.Accept(Report{UpstreamID: fmt.Sprint("up-", i)}, "ch", noon)
		ended.PurgeAt = at
		change(t, m, ended)
	}
	if n, err := m.Purge(t.Context(), noon); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if find(t, m, "acme", "vid_1") != nil || find(t, m, "acme", "up-1") != nil || find(t, m, "acme", "up-2") == nil || find(t, m, "acme", "vid_0") == nil {
		t.Error("another one was purged")
	}
}
