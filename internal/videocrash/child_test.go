//go:build unix

package videocrash

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// variable is the environment's that makes this binary a child: its task.
const variable = "TOLLHOUSE_VIDEOCRASH_TASK"

func TestMain(m *testing.M) { os.Exit(childproc.Main(m, variable, child)) }

// task is what a child is told at its start.
type task struct {
	Path   string // of the database
	Vendor string // its address
	Clock  clock
	Point  string        // where it ends itself; empty for nowhere
	Nth    int64         // the how manieth time it comes by
	Delay  time.Duration // how long after that, at a point that has a length
}

// command is what a child is told later: to submit, or with N 0 to ask after all
// open videos, as their owners do.
type command struct {
	N       int
	Seconds int64
	Key     string // of idempotency
	Hook    string // the webhook's address
}

// event is what a child says.
type event struct {
	Kind    string
	N       int        // of the submission
	Code    fault.Code // of its error
	Task    string     // its task's id, told in the answer or in the error
	Open    []string   // the vendor's ids of tasks that have not ended
	Waiting int        // notices that are due
	Error   string
}

// The kinds of an event.
const (
	opened   = "opened" // the gateway runs
	killed   = "killed" // the child ends itself now
	answered = "answered"
	looked   = "looked"
	broken   = "broken" // what must not happen
)

// voice writes events.
type voice = childproc.Voice

// child serves until it is killed, or its standard input ends.
func child(t task, v *voice) int {
	n, err := newNode(t, v)
	if err != nil {
		v.Say(event{Kind: broken, Error: err.Error()})
		return 1
	}
	v.Say(event{Kind: opened})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return 2
		}
		if c.N == 0 {
			go n.look()
		} else {
			go n.submit(c)
		}
	}
	return 0
}

// node is a gateway in a child.
type node struct {
	g     *gateway.Gateway
	raw   *sql.DB
	clock clock
	voice *voice
}

const (
	model = "beta2.6-t2v"
	cents = 10 // that a second costs
)

func newNode(t task, v *voice) (*node, error) {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, t.Path, store.Options{Now: t.Clock.Now, WaitTimeout: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	vendor, err := dashscope.New(dashscope.Options{BaseURL: t.Vendor, Now: t.Clock.Now})
	if err != nil {
		return nil, err
	}
	k := &killer{task: t, voice: v}
	routing, err := router.New([]router.Channel{
		{Name: "studio", Upstream: k.watch(vendor), Models: map[string]string{model: "wan2.6-t2v"}},
	}, router.Options{Now: t.Clock.Now})
	if err != nil {
		return nil, err
	}
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"})
	if err != nil {
		return nil, err
	}
	books := &ledger{db.Tasks(), k}
	g, err := gateway.New(gateway.Options{
		Upstream: routing, Prices: billing.NewPriceList(map[string]*billing.Price{model: price}), RequirePrice: true,
		Meter: books, Tasks: books, Idempotency: books,
		Video: gateway.VideoOptions{AllowPrivate: true}, SettleTimeout: 30 * time.Second, Now: t.Clock.Now,
	})
	if err != nil {
		return nil, err
	}
	raw, err := sql.Open("sqlite", "file:"+t.Path+"?_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return nil, err
	}
	go func() { _ = db.Run(ctx) }() // they end with the process
	go func() { _ = g.Run(ctx) }()
	return &node{g, raw, t.Clock, v}, nil
}

var taskID = regexp.MustCompile(`vid_\w+`)

// submit hands a video in.
func (n *node) submit(c command) {
	hook := ""
	if c.Hook != "" {
		hook = fmt.Sprintf(`,"webhook_url":%q`, c.Hook)
	}
	body := fmt.Sprintf(`{"model":%q,"duration":%d,"resolution":"720p","input":{"prompt":"%d"}%s}`, model, c.Seconds, c.N, hook)
	x := n.g.Begin()
	x.IdempotencyKey = c.Key
	err := x.Authenticate(context.Background(), "")
	var r *gateway.Result
	if err == nil {
		r, err = x.Call(context.Background(), upstream.SubmitVideo, []byte(body), nil)
	}
	x.End(context.Background(), 0, err)
	answer := event{Kind: answered, N: c.N}
	if err != nil {
		f := fault.From(err)
		answer.Code, answer.Error, answer.Task = f.Code, err.Error(), taskID.FindString(f.Message)
	} else {
		answer.Task = taskID.FindString(string(r.Body))
	}
	n.voice.Say(answer)
}

// look asks after every open task at once, and says what is open then.
func (n *node) look() {
	ids, err := n.open("id")
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			_, err := n.g.Video(context.Background(), id)
			if err != nil && !fault.Is(err, fault.ResourceNotFound) { // the vendor has refused it meanwhile
				n.voice.Say(event{Kind: broken, Task: id, Error: err.Error()})
			}
		})
	}
	all.Wait()
	seen := event{Kind: looked}
	if err == nil {
		seen.Open, err = n.open("upstream_id")
	}
	if err == nil {
		err = n.raw.QueryRow("SELECT COUNT(*) FROM notice WHERE state = 'waiting' AND next_at <= ?", n.clock.Now().UnixNano()).Scan(&seen.Waiting)
	}
	if err != nil {
		n.voice.Say(event{Kind: broken, Error: err.Error()})
		return
	}
	n.voice.Say(seen)
}

// open is a column of the tasks that have not ended.
func (n *node) open(column string) (ids []string, err error) {
	rows, err := n.raw.Query("SELECT " + column + " FROM task WHERE NOT ended")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
