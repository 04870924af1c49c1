package storetest

import (
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

func stepOnce(s studio) {
	first := s.add(film("a"))
	taken := accepted(first, "up-1", morning)
	ahead := taken
	ahead.Version++
	s.wantStale(video.Step{Task: ahead}, "a step from a version that is not there")
	s.want(first)
	s.change(taken)
	s.want(taken)
	s.wantStale(video.Step{Task: taken}, "the same step again")
	s.wantStale(video.Step{Task: next(first, video.Failed, morning), Notice: &video.Notice{ID: "evt_1"}}, "a step from an old version")
	s.want(taken)
	end := next(taken, video.Succeeded, morning.Add(time.Minute))
	end.PurgeAt = morning.Add(time.Hour)
	s.change(end)
	s.wantStale(video.Step{Task: next(end, video.Failed, morning), Notice: &video.Notice{ID: "evt_2"}}, "a step of a task that has ended")
	s.want(end)
	s.wantStale(video.Step{Task: next(film("nobody").Task, video.Failed, morning)}, "a step of no task")
	if n := s.Notices(); len(n) != 0 {
		s.t.Errorf("there are notices: %q", n)
	}
}

func oneNotice(s studio) {
	end := next(s.add(film("a")), video.Failed, morning)
	var all sync.WaitGroup
	var made atomic.Int32
	for i := range 8 {
		all.Go(func() {
			ok, err := s.Change(s.t.Context(), video.Step{Task: end, Notice: &video.Notice{ID: fmt.Sprint("evt_", i), Account: "acme", TaskID: end.ID, Body: []byte("{}"), At: morning}}, nil)
			if err != nil {
				s.t.Error(err)
			}
			if ok {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if notices := s.Notices(); made.Load() != 1 || len(notices) != 1 {
		s.t.Errorf("%d steps and the notices %q", made.Load(), notices)
	}
}

func answerKept(s studio) {
	ctx, key := s.t.Context(), idempotency.Key{Account: "acme", Operation: "video", Key: "k"}
	first := s.add(film("a"))
	claim := func() *idempotency.Answer {
		s.t.Helper()
		a, err := s.Answers.Open(ctx, key, idempotency.Content{1}, first.RequestID)
		s.ok(err)
		return a
	}
	claim()
	record := &idempotency.Record{Key: key, Content: idempotency.Content{1}, Header: http.Header{"X-A": {"b"}}, Body: []byte("{}")}
	wrong := next(first, video.Queued, morning)
	wrong.Version++
	if made, err := s.Change(ctx, video.Step{Task: wrong}, record); made || err != nil {
		s.t.Fatal(made, err)
	}
	if _, err := s.Answers.Open(ctx, key, idempotency.Content{1}, "another"); !fault.Is(err, fault.IdempotencyConflict) {
		s.t.Fatalf("the answer of a step that was not made: %v", err)
	}
	if made, err := s.Change(ctx, video.Step{Task: accepted(first, "up-1", morning)}, record); !made || err != nil {
		s.t.Fatal(made, err)
	}
	a := claim()
	if a == nil || string(a.Body) != "{}" || a.Header.Get("X-A") != "b" || a.Receipt.ID != first.RequestID || a.Receipt.Charge != 0 {
		s.t.Errorf("kept: %+v", a)
	}
}

func eitherID(s studio) {
	for _, account := range []string{"acme", "zeta"} {
		n := film(account)
		n.Task.Account = account
		s.change(accepted(s.add(n), "up-1", morning))
	}
	s.add(film("new"))
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
}

// everyField fails as well when a task gets a field that is not filled here.
func everyField(s studio) {
	n := film("a")
	filled(s.t, reflect.ValueOf(&n.Task).Elem())
	n.Task.State, n.Task.Account, n.Task.Version = video.Submitting, "acme", 1
	s.add(n)
	s.want(n.Task)
	end := next(n.Task, video.Failed, morning.Add(time.Second))
	end.Channel, end.UpstreamID, end.Answer, end.Failure = "other", "up 'é'", []byte(`{"a":"\u0000"}`), &video.Failure{Code: "c", Message: "a\x00b"}
	end.AcceptedAt, end.ExpiresAt, end.PurgeAt, end.PolledAt = morning.Add(1), morning.Add(2), morning.Add(3), morning.Add(4)
	s.change(end)
	s.want(end)
	empty := film("b").Task
	s.add(video.CreateTask{Task: empty})
	s.want(empty)
}

// filled gives every field another value.
func filled(t testing.TB, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Field(i)
		switch f := field.Addr().Interface().(type) {
		case *time.Time:
			*f = morning.Add(time.Duration(i) * time.Hour)
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
