package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/video"
)

const (
	videos = "/v1/videos/generations"

	boat      = `{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a boat"}}`
	gammaBoat = `{"model":"gamma-2-0-260128","duration":5,"resolution":"480p","content":[{"type":"text","text":"a boat"}],"seed":7}`
)

// clock is a time that passes when a test says so.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// videoFixture serves videos: beta for 0.10 a second, gamma for 7.00 a
// million tokens. A video takes a minute of its clock.
type videoFixture struct {
	*fixture
	*clock
	vendor *sim.Upstream
}

func newVideoFixture(t testing.TB, edit func(*gateway.Options)) *videoFixture {
	t.Helper()
	c := &videoFixture{clock: &clock{now: time.Now()}}
	c.vendor = sim.New(sim.Options{VideoTime: time.Minute, Now: c.Now})
	c.fixture = newFixture(t, fixtureOptions{credit: 10 * billing.One, gateway: func(options *gateway.Options) {
		seconds, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"})
		if err != nil {
			t.Fatal(err)
		}
		tokens := rates(t, "output", "7.00")
		models := map[string]string{"delta-k3": "delta-k3"}
		prices := map[string]*billing.Price{"beta2.7-t2v": seconds, "gamma-2-0-260128": tokens}
		for id := range prices {
			models[id] = id
		}
		options.Upstream, options.Prices, options.Now = channels(t, router.Channel{Upstream: c.vendor, Models: models}), billing.NewPriceList(prices), c.Now
		if edit != nil {
			edit(options)
		}
	}})
	return c
}

// record is what a task shows.
type record struct {
	ID, Object, Model, Status string
	Content                   []struct {
		VideoURL string `json:"video_url"`
	}
	Usage json.RawMessage
	Seed  *int64
	Error *struct{ Code, Message string }
}

func (a answer) record(t testing.TB) (r record) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || r.ID == "" || r.Object != "video.generation" {
		t.Fatalf("%d: no record: %s (%v)", a.status, a.body, err)
	}
	return r
}

func (s *fixture) submit(t testing.TB, body string) (answer, record) {
	t.Helper()
	a := s.do(t, "POST", videos, body)
	return a, a.record(t)
}

func (s *fixture) show(t testing.TB, id string) record {
	t.Helper()
	return s.do(t, "GET", videos+"/"+id, "").record(t)
}

// finish has a task end, so that nothing is held.
func (c *videoFixture) finish(t testing.TB, id string) {
	t.Helper()
	c.pass(time.Minute)
	if r := c.show(t, id); r.Status != "succeeded" {
		t.Fatalf("the task does not end: %+v", r)
	}
}

func (s *fixture) held(t testing.TB) billing.Money {
	t.Helper()
	b, err := s.ledger.Balance(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return b.Held
}

func TestAVideoOverHTTPFromItsSubmissionToItsCharge(t *testing.T) {
	for name, want := range map[string]struct {
		ask, first, prefix string
		status             int
		held, charge       billing.Money
	}{
		"beta":  {boat, "processing", "vid_", 202, billing.One / 2, billing.One / 2},
		"gamma": {gammaBoat, "queued", "cgt-sim-", 200, 680_400_000, 343_035_000}, // for 97,200 tokens at most, and the 49,005 that are reported
	} {
		t.Run(name, func(t *testing.T) {
			c := newVideoFixture(t, nil)
			a, r := c.submit(t, want.ask)
			if a.status != want.status || r.Status != want.first || !strings.HasPrefix(r.ID, want.prefix) || a.header.Get("X-Gateway-Charge") != "" {
				t.Errorf("submitted: %d %s %v", a.status, a.body, a.header)
			}
			if c.posted(t) != 10*billing.One || c.held(t) != want.held {
				t.Errorf("at first: posted %s, held %s", c.posted(t), c.held(t))
			}
			c.pass(30 * time.Second)
			if r = c.show(t, r.ID); r.Status != "running" || r.Content != nil || c.held(t) != want.held || c.posted(t) != 10*billing.One {
				t.Errorf("meanwhile: %+v, held %s", r, c.held(t))
			}
			c.pass(time.Minute)
			r = c.show(t, r.ID)
			if r.Status != "succeeded" || len(r.Content) != 1 || !strings.HasPrefix(r.Content[0].VideoURL, "data:video/mp4") || r.Usage == nil || r.Error != nil {
				t.Errorf("at last: %+v", r)
			}
			if c.posted(t) != 10*billing.One-want.charge || c.held(t) != 0 {
				t.Errorf("at last: posted %s, held %s", c.posted(t), c.held(t))
			}
			if again := c.do(t, "GET", videos+"/"+r.ID, ""); again.record(t).Status != "succeeded" || c.vendor.Jobs() != 1 {
				t.Errorf("again: %s, %d jobs", again.body, c.vendor.Jobs())
			}
			receipt := c.do(t, "GET", "/v1/receipts/"+a.header.Get("X-Request-Id"), "")
			if !strings.Contains(receipt.body, `"operation":"video"`) || !strings.Contains(receipt.body, `"charge":"`+want.charge.String()+`"`) {
				t.Errorf("the receipt: %d %s", receipt.status, receipt.body)
			}
		})
	}
}

func TestHEADTellsOfATaskWithoutItsRecord(t *testing.T) {
	c := newVideoFixture(t, nil)
	_, r := c.submit(t, boat)
	whole := c.do(t, "GET", videos+"/"+r.ID, "")
	head := c.do(t, "HEAD", videos+"/"+r.ID, "")
	if head.status != 200 || head.body != "" || head.header.Get("Content-Type") != "application/json" || head.header.Get("X-Request-Id") == "" {
		t.Errorf("%d %q %v", head.status, head.body, head.header)
	}
	if got, want := head.header.Get("Content-Length"), whole.header.Get("Content-Length"); got != want {
		t.Errorf("a length of %s, not %s", got, want)
	}
	if gone := c.do(t, "HEAD", videos+"/vid_never", ""); gone.status != 404 || gone.body != "" {
		t.Errorf("%d %q", gone.status, gone.body)
	}
	c.finish(t, r.ID)
}

// sweepingStore is a store that tells how many tasks each purge forgot.
type sweepingStore struct {
	video.Store
	forgot chan int
}

func (s *sweepingStore) Purge(ctx context.Context, now time.Time) (int, error) {
	n, err := s.Store.Purge(ctx, now)
	s.forgot <- n
	return n, err
}

func TestARecordIsForgottenAfterItsTime(t *testing.T) {
	tasks := &sweepingStore{forgot: make(chan int)}
	c := newVideoFixture(t, func(o *gateway.Options) {
		tasks.Store = memory.NewTasks(o.Now, nil)
		o.Tasks = tasks
	})
	_, r := c.submit(t, boat)
	c.finish(t, r.ID)
	for _, want := range []struct {
		pass           time.Duration
		forgot, status int
	}{{7*24*time.Hour - 10*time.Second, 0, 200}, {20 * time.Second, 1, 404}} {
		c.pass(want.pass)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.g.Run(ctx) }() // it looks for old records at once
		forgot := <-tasks.forgot
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if a := c.do(t, "GET", videos+"/"+r.ID, ""); forgot != want.forgot || a.status != want.status {
			t.Errorf("%d were forgotten; %d %s", forgot, a.status, a.body)
		}
	}
}
