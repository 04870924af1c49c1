package videotask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/video"
)

// fakeStore has tasks that a test sets, all of them leased to whoever claims.
type fakeStore struct {
	video.Store
	mu     sync.Mutex
	tasks  map[string]*video.Task
	away   bool
	claims int
	hold   func() // of a claim, between its snapshot and its return
	purged int
}

func (s *fakeStore) Claim(context.Context, string, time.Time, int) (all []*video.Task, err error) {
	s.mu.Lock()
	s.claims++
	for _, t := range s.tasks {
		if !t.State.Terminal() {
			all = append(all, t)
		}
	}
	away, hold := s.away, s.hold
	s.mu.Unlock()
	if hold != nil {
		hold()
	}
	if away {
		panic("a bug in the database")
	}
	return all, nil
}

func (s *fakeStore) Purge(context.Context, time.Time) (int, error) {
	s.purged++
	return 0, errors.New("away")
}

func (s *fakeStore) set(tasks ...*video.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		s.tasks[t.ID] = t
	}
}

func (s *fakeStore) Find(_ context.Context, _, id string) (*video.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[id], nil
}

func (s *fakeStore) Change(_ context.Context, step video.Step, _ *idempotency.Record) (bool, error) {
	s.set(&step.Task)
	return true, nil
}

// vendor notes who asks after which task.
type vendor struct {
	mu      sync.Mutex
	asked   map[string]int
	running int
	most    int
	slow    time.Duration
	hangs   string // the channel that does not answer
	answer  string // empty for that of a running task
	err     error
}

// poll makes a poll.
func (v *vendor) poll(ctx context.Context, p *Poll) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var answer []byte
	var err error
	if p.Begin(ctx) {
		answer, err = v.ask(ctx, p.Task)
	}
	return p.End(ctx, answer, err)
}

func (v *vendor) ask(ctx context.Context, t *video.Task) ([]byte, error) {
	if t.Channel == v.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	v.mu.Lock()
	v.asked[t.ID]++
	v.running++
	v.most = max(v.most, v.running)
	answer, err := cmp.Or(v.answer, `{"status":"running"}`), v.err
	v.mu.Unlock()
	time.Sleep(v.slow) // of a bubble
	v.mu.Lock()
	v.running--
	v.mu.Unlock()
	return []byte(answer), err
}

func (v *vendor) count(id string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked[id]
}

func task(id, channel string) *video.Task {
	return &video.Task{ID: id, Account: "acme", Channel: channel, UpstreamID: "up-" + id, State: video.Running, Version: 1, CreatedAt: time.Now()}
}

// newTasks makes tasks with a store and a vendor.
func newTasks(tasks ...*video.Task) (*Tasks, *fakeStore, *vendor) {
	s, v := &fakeStore{tasks: map[string]*video.Task{}}, &vendor{asked: map[string]int{}}
	s.set(tasks...)
	return New(Options{
		Store: s, Meter: billing.Free{}, Owner: "node", Poll: 5 * time.Second, Now: time.Now, Timeout: time.Minute,
		NewID: func(prefix string) string { return prefix }, Logger: slog.New(slog.DiscardHandler), Moved: func(context.Context, Moved) {},
	}), s, v
}

// refresh polls a task if that is due, and returns it as it is then.
func refresh(ctx context.Context, p *Tasks, v *vendor, t *video.Task) (*video.Task, error) {
	r, own := p.Refresh(t)
	if r == nil {
		return t, nil
	}
	if own {
		go func() { _ = v.poll(context.WithoutCancel(ctx), r) }()
	}
	return r.Wait(ctx)
}

// start polls what is due until the returned function is called.
func start(p *Tasks, v *vendor) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for r := range p.Due(ctx) {
			go func() { _ = v.poll(context.WithoutCancel(ctx), r) }()
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func TestCallersWhoAskAtOnceShareOnePollAndNoneFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := task("a", "ch")
		p, _, v := newTasks(a)
		v.slow = time.Second
		if r, _ := p.Refresh(a); r != nil {
			t.Error("a task is due that was made a moment ago")
		}
		time.Sleep(6 * time.Second)
		var asking sync.WaitGroup
		for range 50 {
			asking.Go(func() {
				if fresh, err := refresh(t.Context(), p, v, a); err != nil || fresh == a {
					t.Error(fresh, err)
				}
			})
		}
		left, leave := context.WithCancel(t.Context())
		asking.Go(func() {
			if _, err := refresh(left, p, v, a); err == nil {
				t.Error("who left has a result")
			}
		})
		synctest.Wait()
		leave()
		asking.Wait()
		if stored, err := refresh(t.Context(), p, v, a); err != nil || stored != a || v.count("a") != 1 { // who read it before the poll
			t.Errorf("%+v, %v, asked %d times", stored, err, v.count("a"))
		}
	})
}

func TestRunPollsWhatItLeasedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, v := newTasks(task("a", "ch"))
		stop := start(p, v)
		time.Sleep(61 * time.Second)
		if n := v.count("a"); n < 10 || n > 13 || p.Watched() != 1 {
			t.Errorf("asked %d times in a minute", n)
		}
		v.mu.Lock()
		v.err = errors.New("away")
		v.mu.Unlock()
		time.Sleep(time.Minute)
		if n := v.count("a"); n < 19 {
			t.Errorf("a vendor who is away was asked %d times", n)
		}
		v.mu.Lock()
		v.err, v.answer = nil, `{"status":"succeeded"}`
		v.mu.Unlock()
		ended := task("a", "ch")
		ended.State = video.Succeeded
		s.set(ended)
		time.Sleep(time.Minute)
		n := v.count("a")
		time.Sleep(time.Hour)
		if v.count("a") != n || p.Watched() != 0 || s.purged != 2 {
			t.Errorf("asked %d times after its end, purged %d times", v.count("a")-n, s.purged)
		}
		if stop(); len(p.tasks) == 0 {
			t.Error("it forgot when it asked last")
		}
		p.hand(task("b", "ch"))
		if len(p.tasks) != 1 || p.tasks["b"] == nil {
			t.Errorf("%d tasks are remembered after an hour", len(p.tasks))
		}
	})
}

func TestATaskGoesToItsNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, v := newTasks(task("a", "ch"))
		stop := start(p, v)
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		delete(s.tasks, "a") // leased by another
		s.away = true
		s.mu.Unlock()
		time.Sleep(30 * time.Second)
		if p.Watched() != 1 {
			t.Error("a claim that failed took the task away")
		}
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		time.Sleep(30 * time.Second)
		n := v.count("a")
		time.Sleep(time.Minute)
		if stop(); v.count("a") != n || p.Watched() != 0 {
			t.Errorf("it was asked after %d times more", v.count("a")-n)
		}
	})
}

func TestASubmittedTaskIsPolledThoughAClaimDidNotSeeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, v := newTasks()
		s.hold = func() { time.Sleep(2 * time.Second) }
		early := task("a", "")
		early.State, early.UpstreamID = video.Submitting, ""
		p.hand(early) // it was claimed before its upstream was known
		stop := start(p, v)
		time.Sleep(time.Second)
		taken := task("a", "ch")
		taken.Version = 2
		s.set(taken)
		p.hand(taken)
		time.Sleep(10 * time.Second)
		if stop(); v.count("a") == 0 {
			t.Error("nobody asked after the task")
		}
	})
}

func TestAChannelThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*video.Task
		for i := range 500 {
			all = append(all, task(fmt.Sprint("slow", i), "slow"))
		}
		p, _, v := newTasks(append(all, task("a", "quick"))...)
		v.slow = time.Minute
		stop := start(p, v)
		time.Sleep(20 * time.Second)
		if v.count("a") != 1 || v.most != perChannel+1 {
			t.Errorf("asked %d times after the other, %d at once", v.count("a"), v.most)
		}
		began := time.Now()
		if stop(); time.Since(began) > time.Minute || v.running != 0 {
			t.Errorf("Run ended after %s with %d polls", time.Since(began), v.running)
		}
	})
}

func TestWithoutTheTimeOfTheStoreNothingIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, v := newTasks(task("a", "ch"))
		p.clock = videoop.NewClock(func(context.Context) (time.Time, error) { return time.Time{}, errors.New("away") }, time.Now)
		stop := start(p, v)
		time.Sleep(time.Minute)
		if stop(); v.count("a") != 0 || s.claims != 0 {
			t.Errorf("asked %d times, claimed %d times", v.count("a"), s.claims)
		}
	})
}

func TestPollsThatCallersBeginTakeNoneOfRunsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := task("good", "good")
		p, _, v := newTasks(good)
		v.hangs = "hung"
		stop := start(p, v)
		defer stop()
		time.Sleep(6 * time.Second)
		for i := range pollsAtOnce + 50 {
			go func() {
				old := task(fmt.Sprint("hung", i), "hung")
				old.PolledAt = time.Now().Add(-time.Hour)
				_, _ = refresh(t.Context(), p, v, old)
			}()
		}
		synctest.Wait()
		before := v.count("good")
		time.Sleep(20 * time.Second)
		if polls := v.count("good") - before; polls < 3 {
			t.Errorf("the other channel was polled %d times meanwhile", polls)
		}
	})
}

// A submission may wake Run between a round and the polls that it begins.
func TestATaskThatIsDueIsPolledByOneRound(t *testing.T) {
	p, _, _ := newTasks()
	p.setActive(true)
	for i := range perChannel + 1 {
		p.hand(task(fmt.Sprint("old", i), "ch"))
	}
	later := time.Now().Add(time.Hour)
	for round, want := range []int{perChannel, 0} {
		if due, _ := p.due(later); len(due) != want {
			t.Errorf("round %d polls %d tasks, want %d", round, len(due), want)
		}
	}
}
