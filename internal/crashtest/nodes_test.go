//go:build unix

package crashtest

import (
	"context"
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
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

const nodes = 8

// patience is longer than any machine takes: nothing is refused because it is slow.
const patience = time.Hour

func TestOfEightNodesOnOnePostgresEachTaskIsChargedAndToldOfOnce(t *testing.T) {
	eightNodes(t, place{Postgres: true, Where: pgtest.Schema(t)})
}

func TestOfEightNodesOnOneSQLiteEachTaskIsChargedAndToldOfOnce(t *testing.T) {
	eightNodes(t, place{Where: filepath.Join(t.TempDir(), "ledger.db")})
}

// eightNodes has all nodes look after all tasks at once, by themselves and for those
// who ask, until all have ended and were told of.
func eightNodes(t *testing.T, p place) {
	t.Parallel()
	tasks := longtest.Count(1000, 100)
	v := &localVendor{status: twoStatuses, meet: "up-1", met: make(chan struct{})}
	receiver := &webhookCounter{ids: map[string]map[string]bool{}, all: make(chan struct{}), want: tasks}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	gateways, d := newCluster(t, p, v)

	ctx, stop := context.WithCancel(t.Context())
	defer server.Close() // which waits for deliveries under way
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, g := range gateways {
		running.Go(func() { _ = g.Run(ctx) })
	}
	concurrently(tasks, 32, func(i int) {
		if err := submit(ctx, gateways[i%nodes], i, fmt.Sprint(server.URL, "/", i)); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() { // a task that was not submitted never ends
		return
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for done := false; !done; {
		ids, err := d.openTasks("id")
		must(t, err)
		concurrently(len(ids)*nodes, 64, func(i int) {
			if _, err := gateways[i%nodes].Video(ctx, ids[i/nodes]); err != nil && !isSlow(err) {
				t.Error(err)
			}
		})
		select {
		case <-receiver.all:
			done = true // a delivery is of an end
		case <-again.C:
		}
	}
	stop()
	running.Wait()
	server.Close()
	checkNodes(t, d, v, receiver, tasks)
}

// newCluster makes eight gateways on one database: on Postgres each has the store
// for itself, on SQLite they share one.
func newCluster(t *testing.T, p place, v *localVendor) (gateways []*gateway.Gateway, d database) {
	t.Helper()
	raw, err := p.raw()
	must(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	d = database{t.Context(), nil, raw}
	for range nodes {
		if p.Postgres || d.db == nil {
			db, err := p.open(t.Context(), store.Options{Lease: patience, WaitTimeout: patience})
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			d.db = db
		}
		g, err := newVideoGateway(v, &expiredLeases{Ledger: d.db.Ledger()}, nil, gateway.VideoOptions{
			AllowPrivate: true, Poll: time.Second, DuplicateWindow: -1, // a slow machine repeats a submission for longer than the window
		})
		must(t, err)
		gateways = append(gateways, g)
	}
	must(t, d.db.Ledger().CreateAccount(t.Context(), videoAccount, videoCredit))
	return gateways, d
}

// checkNodes demands one entry and one delivery of each task.
func checkNodes(t *testing.T, d database, v *localVendor, receiver *webhookCounter, tasks int) {
	t.Helper()
	count := func(query string) int {
		t.Helper()
		n, err := d.count(query)
		must(t, err)
		return n
	}
	succeeded, failed := count("SELECT COUNT(*) FROM task WHERE state = 'succeeded'"), count("SELECT COUNT(*) FROM task WHERE state = 'failed'")
	again := 0 // answers about a video that had ended
	for _, asked := range v.asked {
		again += max(asked-3, 0)
	}
	t.Logf("%d tasks succeeded, %d failed; the vendor repeated or changed its last word %d times; %d deliveries came %d times",
		succeeded, failed, again, len(receiver.ids), receiver.came)
	for what, n := range map[string]struct{ got, want int }{
		"tasks":                 {succeeded + failed, tasks},
		"jobs":                  {len(v.jobs), tasks},
		"charges":               {count("SELECT COUNT(*) FROM receipt WHERE charge > 0"), succeeded},
		"charges of success":    {count("SELECT COUNT(DISTINCT t.id) FROM task t JOIN receipt r ON r.id = t.request_id WHERE r.charge > 0 AND t.state = 'succeeded'"), succeeded},
		"receipts":              {count("SELECT COUNT(*) FROM receipt r JOIN task t ON t.request_id = r.id"), tasks},
		"deliveries":            {count("SELECT COUNT(*) FROM notice"), tasks},
		"tasks with deliveries": {count("SELECT COUNT(DISTINCT task) FROM notice"), tasks},
	} {
		if n.got != n.want {
			t.Errorf("%d %s, want %d", n.got, what, n.want)
		}
	}
	if others := count("SELECT COUNT(*) FROM receipt") - tasks; others > 0 {
		t.Errorf("%d receipts of no task", others)
	}
	for job, n := range v.jobs {
		if n != 1 {
			t.Errorf("the vendor was asked for %s %d times", job, n)
		}
	}
	for address, ids := range receiver.ids {
		if len(ids) != 1 {
			t.Errorf("%s got the deliveries %v", address, ids)
		}
	}
	if succeeded == 0 || failed == 0 || again == 0 {
		t.Error("nothing was decided twice")
	}
	b, err := d.db.Ledger().Balance(t.Context(), videoAccount)
	if err != nil || b.Held != 0 || b.Posted != videoCredit-billing.Money(succeeded)*billing.One/2 {
		t.Errorf("balance %+v, %v", b, err)
	}
	p := &problems{}
	if err := d.sound(p); err != nil {
		t.Error(err)
	}
	p.report(t, "the database")
}

// expiredLeases is a store whose leases end when they are made: all nodes look after
// all videos at once, and some of them make the same deliveries.
type expiredLeases struct {
	store.Ledger
	leases atomic.Int64 // of deliveries
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

// localVendor is a vendor of videos in process.
type localVendor struct {
	status func(job string, n int) string // the answer to the nth question after a job
	// meet is a job of which the answer to the third question waits for the fourth, so that two
	// nodes decide about it at once; empty for none. met is closed then.
	meet string
	met  chan struct{}

	mu    sync.Mutex
	jobs  map[string]int // submissions, by prompt
	asked map[string]int // questions, by job
}

// twoStatuses repeats its last word, or says another one. For every second video it says to
// one that it has succeeded and to the next that it failed, or the other way round.
func twoStatuses(job string, n int) string {
	last := job[len(job)-1:]
	switch {
	case n < 2:
		return `"RUNNING"`
	case strings.Contains("13579", last) && (n%2 == 1) != strings.Contains("37", last):
		return `"FAILED","code":"InternalError","message":"no"`
	}
	return `"SUCCEEDED","video_url":"https://v.example/1.mp4"`
}

var promptOf = regexp.MustCompile(`"prompt":"(\d+)"`)

// Do takes a submission or answers a question.
func (v *localVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	reply, waits, err := v.answer(call)
	if waits {
		select {
		case <-v.met:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return reply, err
}

// answer is the answer to a call, and whether it waits for that to the next question.
func (v *localVendor) answer(call *upstream.Call) (reply *upstream.Reply, waits bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.jobs == nil {
		v.jobs, v.asked = map[string]int{}, map[string]int{}
	}
	job, status := call.TaskID, `"PENDING"`
	if call.Op == upstream.SubmitVideo {
		data, err := call.Body.Bytes()
		if err != nil {
			return nil, false, err
		}
		n := promptOf.FindStringSubmatch(string(data))[1]
		v.jobs[n]++
		job = "up-" + n
	} else {
		status = v.status(job, v.asked[job])
		v.asked[job]++
		waits = job == v.meet && v.asked[job] == 3
		if job == v.meet && v.asked[job] == 4 {
			close(v.met)
		}
	}
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"request_id":"r","output":{"task_id":%q,"task_status":%s}}`, job, status))),
	}, waits, nil
}

// webhookCounter receives deliveries.
type webhookCounter struct {
	mu   sync.Mutex
	ids  map[string]map[string]bool // by address
	came int
	all  chan struct{} // closed when there is one for each video
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

// submit hands a video of five seconds in at a gateway; hook may be empty.
func submit(ctx context.Context, g *gateway.Gateway, n int, hook string) error {
	for {
		r, err := g.Do(ctx, gateway.Caller{}, &gateway.Request{Op: upstream.SubmitVideo, Body: videoBody(n, 5, hook)})
		switch {
		case err == nil:
			return r.Close()
		case !isSlow(err):
			return err
		}
	}
}

// isSlow reports that the database took longer than a gateway waits for it. The caller asks
// again.
func isSlow(err error) bool { return fault.Is(err, fault.ServiceUnavailable) }

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
