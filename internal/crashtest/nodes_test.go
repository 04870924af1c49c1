//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

const nodes = 8

// expiredLeases is a store whose leases end when they are made: all nodes look after
// all videos at once, and some of them deliver the same notices.
type expiredLeases struct {
	store.Ledger
	leases atomic.Int64 // of notices
}

func (c *expiredLeases) Claim(ctx context.Context, owner string, _ time.Time, n int) ([]*video.Task, error) {
	return c.Ledger.Claim(ctx, owner, time.Now().Add(-time.Second), n)
}

func (c *expiredLeases) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Delivery, error) {
	if c.leases.Add(1)%4 == 0 {
		until = time.Now().Add(-time.Second)
	}
	return c.Ledger.Due(ctx, owner, until, n)
}

// cluster is eight gateways on the same database.
type cluster struct {
	t       *testing.T
	raw     *sql.DB
	db      *store.DB
	vendor  *fickleVendor
	counter *webhookCounter
	nodes   []*gateway.Gateway
	server  *httptest.Server
}

func newCluster(t *testing.T, tasks int, raw *sql.DB, open func() (*store.DB, error)) *cluster {
	t.Helper()
	v := &cluster{
		t: t, raw: raw, vendor: &fickleVendor{jobs: map[string]int{}, asked: map[string]int{}},
		counter: &webhookCounter{ids: map[string]map[string]bool{}, all: make(chan struct{}), want: tasks},
	}
	v.server = httptest.NewServer(v.counter)
	t.Cleanup(v.server.Close)
	price, err := videoPrice()
	if err != nil {
		t.Fatal(err)
	}
	for range nodes {
		db, err := open()
		if err != nil {
			t.Fatal(err)
		}
		v.db = db
		ledger := &expiredLeases{Ledger: db.Ledger()}
		g, err := gateway.New(gateway.Options{
			Upstream: v.vendor, Prices: billing.NewPriceList(map[string]*billing.Price{videoModel: price}),
			Meter: ledger, Tasks: ledger, Idempotency: ledger, SettleTimeout: time.Minute,
			Video: gateway.VideoOptions{AllowPrivate: true, Poll: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		v.nodes = append(v.nodes, g)
	}
	if err := v.db.Ledger().CreateAccount(t.Context(), videoAccount, videoCredit); err != nil {
		t.Fatal(err)
	}
	return v
}

// submit hands a video in at a node.
func submit(ctx context.Context, g *gateway.Gateway, n int, hook string) error {
	body := fmt.Sprintf(`{"model":%q,"duration":5,"resolution":"720p","input":{"prompt":"%d"}%s}`, videoModel, n, hook)
	r, err := g.Do(ctx, &gateway.Request{Op: upstream.SubmitVideo, Body: []byte(body)})
	r.End(0, err)
	return err
}

// concurrently does something with the numbers from 0 to n-1, some at once.
func concurrently(n, workers int, do func(i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// run has all nodes look after all tasks at once, by themselves and for
// those who ask, until all have ended and were told of.
func (v *cluster) run(tasks int) {
	v.t.Helper()
	ctx, stop := context.WithCancel(v.t.Context())
	defer v.server.Close() // which waits for deliveries under way
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, g := range v.nodes {
		running.Go(func() { _ = g.Run(ctx) })
	}
	concurrently(tasks, 32, func(i int) {
		if err := submit(ctx, v.nodes[i%nodes], i, fmt.Sprintf(`,"webhook_url":%q`, fmt.Sprint(v.server.URL, "/", i))); err != nil {
			v.t.Error(err)
		}
	})
	patience := time.After(2 * time.Minute)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		ids := v.open()
		concurrently(len(ids)*nodes, 64, func(i int) {
			if _, err := v.nodes[i%nodes].Video(ctx, ids[i/nodes]); err != nil {
				v.t.Error(err)
			}
		})
		select {
		case <-v.counter.all:
			return // a notice is of an end
		case <-patience:
			v.t.Fatalf("%d tasks are open, %d were told of", len(v.open()), len(v.counter.ids))
		case <-again.C:
		}
	}
}

// open are the ids of the tasks that have not ended.
func (v *cluster) open() (ids []string) {
	v.t.Helper()
	err := database{v.t.Context(), v.db, v.raw}.each(func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM task WHERE NOT ended")
	if err != nil {
		v.t.Fatal(err)
	}
	return ids
}

// count is the one number that a query gives.
func (v *cluster) count(query string) int {
	v.t.Helper()
	n, err := database{v.t.Context(), v.db, v.raw}.count(query)
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// check demands one entry and one notice of each task.
func (v *cluster) check(tasks int) {
	v.t.Helper()
	succeeded, failed := v.count("SELECT COUNT(*) FROM task WHERE state = 'succeeded'"), v.count("SELECT COUNT(*) FROM task WHERE state = 'failed'")
	v.t.Logf("%d tasks succeeded, %d failed; the vendor said its last word %d times, %d of them to others than the first; %d notices came %d times",
		succeeded, failed, v.vendor.ended, v.vendor.second, len(v.counter.ids), v.counter.came)
	for what, n := range map[string]struct{ got, want int }{
		"tasks":              {succeeded + failed, tasks},
		"jobs":               {len(v.vendor.jobs), tasks},
		"entries":            {v.count("SELECT COUNT(*) FROM entry WHERE kind = 'capture'"), succeeded},
		"entries of success": {v.count("SELECT COUNT(DISTINCT t.id) FROM task t JOIN entry e ON e.reference = t.request_id WHERE e.kind = 'capture' AND t.state = 'succeeded'"), succeeded},
		"receipts":           {v.count("SELECT COUNT(*) FROM receipt"), tasks},
		"notices":            {v.count("SELECT COUNT(*) FROM notice"), tasks},
		"tasks with notices": {v.count("SELECT COUNT(DISTINCT task) FROM notice"), tasks},
		"holds":              {v.count("SELECT COUNT(*) FROM hold"), 0},
	} {
		if n.got != n.want {
			v.t.Errorf("%d %s, want %d", n.got, what, n.want)
		}
	}
	for job, n := range v.vendor.jobs {
		if n != 1 {
			v.t.Errorf("the vendor was asked for %s %d times", job, n)
		}
	}
	for address, ids := range v.counter.ids {
		if len(ids) != 1 {
			v.t.Errorf("%s was told by the notices %v", address, ids)
		}
	}
	if succeeded == 0 || failed == 0 || v.vendor.second == 0 {
		v.t.Error("nothing was decided twice")
	}
	b, err := v.db.Ledger().Balance(v.t.Context(), videoAccount)
	if err != nil || b.Held != 0 || b.Posted != videoCredit-billing.Money(succeeded)*billing.One/2 {
		v.t.Errorf("balance %+v, %v", b, err)
	}
	if err := v.db.Ledger().Verify(v.t.Context()); err != nil {
		v.t.Error(err)
	}
}

func TestOfEightNodesOnOnePostgresEachTaskIsChargedAndToldOfOnce(t *testing.T) {
	eightNodes(t, place{Postgres: true, Where: pgtest.Schema(t)})
}

func TestOfEightNodesOnOneSQLiteEachTaskIsChargedAndToldOfOnce(t *testing.T) {
	eightNodes(t, place{Where: filepath.Join(t.TempDir(), "ledger.db")})
}

// eightNodes runs them on a database, of which each has a connection of its own on
// Postgres, and all share one on SQLite.
func eightNodes(t *testing.T, p place) {
	raw, err := p.raw()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	var shared *store.DB
	open := func() (*store.DB, error) {
		if shared != nil && !p.Postgres {
			return shared, nil
		}
		o := store.Options{WaitTimeout: time.Minute}
		var err error
		if p.Postgres {
			shared, err = postgres.Open(t.Context(), p.Where, o)
		} else {
			shared, err = sqlite.Open(t.Context(), p.Where, o)
		}
		if err == nil {
			db := shared
			t.Cleanup(func() { _ = db.Close() })
		}
		return shared, err
	}
	tasks := longtest.Count(1000, 100)
	v := newCluster(t, tasks, raw, open)
	v.run(tasks)
	v.check(tasks)
}

// fickleVendor is a vendor that repeats its last word, or says another one: every
// second video has succeeded for one who asks, and failed for the next.
type fickleVendor struct {
	mu     sync.Mutex
	jobs   map[string]int // by prompt, how many
	asked  map[string]int // by id, how often
	ended  int            // last words
	second int            // last words about a video that had one
}

var promptOf = regexp.MustCompile(`"prompt":"(\d+)"`)

func (v *fickleVendor) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if call.Op == upstream.SubmitVideo {
		data, err := call.Body.Bytes()
		if err != nil {
			return nil, err
		}
		n := promptOf.FindStringSubmatch(string(data))[1]
		v.jobs[n]++
		return reply(`{"request_id":"r","output":{"task_id":"up-%s","task_status":"PENDING"}}`, n), nil
	}
	n := v.asked[call.TaskID]
	v.asked[call.TaskID]++
	if n > 1 {
		v.ended++
	}
	if n > 2 {
		v.second++
	}
	odd := strings.ContainsAny(call.TaskID[len(call.TaskID)-1:], "13579")
	switch {
	case n < 2:
		return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"RUNNING"}}`, call.TaskID), nil
	case n%2 == 1 && odd:
		return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"FAILED","code":"InternalError","message":"no"}}`, call.TaskID), nil
	}
	return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"}}`, call.TaskID), nil
}

func reply(format string, args ...any) *upstream.Reply {
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(format, args...))),
	}
}

// webhookCounter receives notices.
type webhookCounter struct {
	mu   sync.Mutex
	ids  map[string]map[string]bool // by address
	came int
	all  chan struct{} // closed when there is a notice for each video
	want int
}

func (c *webhookCounter) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came++
	if c.ids[r.URL.Path] == nil {
		c.ids[r.URL.Path] = map[string]bool{}
		if len(c.ids) == c.want {
			close(c.all)
		}
	}
	c.ids[r.URL.Path][r.Header.Get("webhook-id")] = true
}
