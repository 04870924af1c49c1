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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
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
	vendor, err := dashscope.New(upstream.DriverOptions{BaseURL: t.Vendor, Now: t.Clock.Now})
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
	books := &ledger{db.Ledger(), k}
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
	r, err := n.g.Do(context.Background(), &gateway.Request{Op: upstream.SubmitVideo, Body: []byte(body), IdempotencyKey: c.Key})
	r.End(0, err)
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

// process is a child that runs.
type process struct {
	child  *childproc.Process
	orders *json.Encoder
	once   sync.Once
	gone   chan struct{} // closed when the system has forgotten it
	err    error         // how it ended otherwise than it should, once it is gone
}

// start starts this binary as a child, and has hear told of what it says until
// it has ended.
func start(t task, hear func(*process, event)) (*process, error) {
	child, err := childproc.Start(variable, t)
	if err != nil {
		return nil, err
	}
	p := &process{child: child, orders: json.NewEncoder(child.Input), gone: make(chan struct{})}
	go p.listen(hear)
	return p, nil
}

// listen hears the child until it ends.
func (p *process) listen(hear func(*process, event)) {
	defer close(p.gone)
	for line := range p.child.Said() {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: broken, Error: fmt.Sprintf("a child said %q", line)}
		}
		hear(p, e)
	}
	_, p.err = p.child.Wait()
}

// send gives a command. One that is dying may not get it.
func (p *process) send(c command) { _ = p.orders.Encode(c) }

// kill ends the child now.
func (p *process) kill() { p.once.Do(p.child.Kill) }

// clock is a time that runs faster than the real one, in several processes
// alike.
type clock struct {
	Base  time.Time // what it told when it began
	Began time.Time // by the real clock
	Scale int64
}

// Now is what the clock tells.
func (c clock) Now() time.Time {
	return c.Base.Add(time.Since(c.Began) * time.Duration(c.Scale))
}

// newClock is one that tells a time now.
func newClock(at time.Time, scale int64) clock {
	return clock{Base: at, Began: time.Now().Round(0), Scale: scale}
}

// The moments of a call.
const (
	before = "before "
	during = "during " // some time after it began
	after  = "after "  // before its caller knows
)

// The calls at which a process is killed.
const (
	theLookup     = "the look for a key"
	theHold       = "the hold"
	theSubmission = "the submission"
	theAcceptance = "the step of an acceptance"
	theLoss       = "the step of a lost answer"
	theRelease    = "the release of what was refused"
	theLease      = "the lease of tasks"
	thePoll       = "the poll"
	theProgress   = "the step of a progress"
	theSettlement = "the settlement"
	theNotices    = "the lease of notices"
	theSecrets    = "the look-up of secrets"
	theDelivery   = "the note of a delivery"
	theFailure    = "the note of a failed delivery"
)

// The points at which the test kills the process, and not it itself.
const (
	jobTaken   = "the vendor has the job, and has not answered"
	noticeCame = "the receiver has the notice, and has not answered"
)

// points are all points.
func points() (all []string) {
	for _, call := range []string{
		theLookup, theHold, theSubmission, theAcceptance, theLoss, theRelease, theLease, thePoll, theProgress,
		theSettlement, theNotices, theSecrets, theDelivery, theFailure,
	} {
		all = append(all, before+call, during+call, after+call)
	}
	return append(all, jobTaken, noticeCame)
}

// killer ends its process at a point.
type killer struct {
	task   task
	voice  *voice
	passed atomic.Int64
}

// at passes by the points of a call that is about to be made.
func (k *killer) at(call string) (done func()) {
	switch k.task.Point {
	case before + call:
		k.countDown(die)
	case during + call:
		k.countDown(k.dieSoon)
	case after + call:
		return func() { k.countDown(die) }
	}
	return func() {}
}

func (k *killer) countDown(end func()) {
	if k.passed.Add(1) == k.task.Nth {
		k.voice.Say(event{Kind: killed})
		end()
	}
}

// die does not return: the signal comes before the system call ends.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dieSoon ends the process while its caller goes on. It spins, because timers
// are coarser than a COMMIT is long.
func (k *killer) dieSoon() {
	until := time.Now().Add(k.task.Delay)
	go func() {
		for time.Now().Before(until) {
		}
		die()
	}()
}

// ledger is the store, with the points of its calls.
type ledger struct {
	store.Ledger
	killer *killer
}

func (l *ledger) Lookup(ctx context.Context, key idempotency.Key, content idempotency.Content) (*idempotency.Answer, error) {
	defer l.killer.at(theLookup)()
	return l.Ledger.Lookup(ctx, key, content)
}

func (l *ledger) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	defer l.killer.at(theHold)()
	return l.Ledger.Reserve(ctx, c)
}

func (l *ledger) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	call := theRelease
	for _, r := range with {
		if _, ends := r.(video.Step); ends {
			call = theSettlement
		}
	}
	defer l.killer.at(call)()
	return l.Ledger.Settle(ctx, h, u, with...)
}

func (l *ledger) Change(ctx context.Context, s video.Step, answer *idempotency.Record) (bool, error) {
	call := theProgress
	switch {
	case s.Task.State == video.Unknown:
		call = theLoss
	case s.Task.AcceptedAt.Equal(s.Task.UpdatedAt):
		call = theAcceptance
	}
	defer l.killer.at(call)()
	return l.Ledger.Change(ctx, s, answer)
}

func (l *ledger) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	defer l.killer.at(theLease)()
	return l.Ledger.Claim(ctx, owner, until, n)
}

func (l *ledger) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Delivery, error) {
	defer l.killer.at(theNotices)()
	return l.Ledger.Due(ctx, owner, until, n)
}

func (l *ledger) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
	defer l.killer.at(theSecrets)()
	return l.Ledger.Secrets(ctx, account)
}

func (l *ledger) Done(ctx context.Context, id string, at time.Time) error {
	defer l.killer.at(theDelivery)()
	return l.Ledger.Done(ctx, id, at)
}

func (l *ledger) Failed(ctx context.Context, n webhook.Delivery, next time.Time, reason string, final bool) error {
	defer l.killer.at(theFailure)()
	return l.Ledger.Failed(ctx, n, next, reason, final)
}

// watch is an upstream with the points of its calls.
func (k *killer) watch(up upstream.Upstream) upstream.Upstream {
	return upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		if call.Op == upstream.PollVideo {
			defer k.at(thePoll)()
		} else {
			defer k.at(theSubmission)()
		}
		return up.Do(ctx, call)
	})
}
