//go:build unix

package crashtest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// The kinds of an event of a child that serves videos.
const (
	submitted = "submitted"
	looked    = "looked"
)

const (
	videoModel = "beta2.6-t2v"
	cents      = 10 // that a second costs
)

// videoBody is a request for a video; hook may be empty.
func videoBody(n int, seconds int64, hook string) []byte {
	if hook != "" {
		hook = fmt.Sprintf(`,"webhook_url":%q`, hook)
	}
	return fmt.Appendf(nil, `{"model":%q,"duration":%d,"resolution":"720p","input":{"prompt":"%d"}%s}`, videoModel, seconds, n, hook)
}

// videoLedger keeps tasks and answers with the money.
type videoLedger interface {
	billing.Meter
	video.Store
	idempotency.Store
}

// newVideoGateway is a gateway that makes videos. now is its clock; nil is the
// machine's.
func newVideoGateway(up upstream.Upstream, ledger videoLedger, now func() time.Time, o gateway.VideoOptions) (*gateway.Gateway, error) {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: fmt.Sprintf("0.%02d", cents)})
	if err != nil {
		return nil, err
	}
	return gateway.New(gateway.Options{
		Upstream: up, Prices: billing.NewPriceList(map[string]*billing.Price{videoModel: price}), RequirePrice: true,
		Meter: ledger, Tasks: ledger, Idempotency: ledger, Video: o, SettleTimeout: 30 * time.Second, Now: now,
	})
}

// serveVideos is a child that is a gateway. It serves until it is killed, or its
// standard input ends.
func serveVideos(t task, k *killer) int {
	n, err := newNode(t, k)
	if err != nil {
		k.out.report(event{Kind: broken, Error: err.Error()})
		return 1
	}
	k.out.report(event{Kind: opened})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return 2
		}
		if o.N == 0 {
			go n.look()
		} else {
			go n.submit(o)
		}
	}
	return 0
}

// node is a gateway in a child.
type node struct {
	*killer
	gateway *gateway.Gateway
	raw     *sql.DB
}

func newNode(t task, k *killer) (*node, error) {
	ctx := context.Background()
	db, err := t.open(ctx, store.Options{Now: t.Clock.Now})
	if err != nil {
		return nil, err
	}
	vendor, err := dashscope.New(upstream.DriverOptions{BaseURL: t.Vendor, Now: t.Clock.Now})
	if err != nil {
		return nil, err
	}
	routing, err := router.New([]router.Channel{
		{Name: "vendor", Upstream: k.watch(vendor), Models: map[string]string{videoModel: "wan2.6-t2v"}},
	}, router.Options{Now: t.Clock.Now})
	if err != nil {
		return nil, err
	}
	g, err := newVideoGateway(routing, &watchedLedger{db.Ledger(), k}, t.Clock.Now, gateway.VideoOptions{AllowPrivate: true})
	if err != nil {
		return nil, err
	}
	raw, err := t.raw()
	if err != nil {
		return nil, err
	}
	go func() { _ = db.Run(ctx) }() // they end with the process
	go func() { _ = g.Run(ctx) }()
	return &node{k, g, raw}, nil
}

var taskID = regexp.MustCompile(`vid_\w+`)

// submit hands a video in.
func (n *node) submit(o order) {
	r, err := n.gateway.Do(context.Background(), gateway.Caller{}, &gateway.Request{Op: upstream.SubmitVideo, Body: videoBody(o.N, o.Seconds, o.Hook), IdempotencyKey: o.Key})
	answer := event{Kind: submitted, N: int64(o.N)}
	if err != nil {
		f := fault.From(err)
		answer.Code, answer.Error, answer.Task = f.Code, err.Error(), taskID.FindString(f.Message)
	} else {
		answer.Task = taskID.FindString(string(r.Body))
		r.Close()
	}
	n.out.report(answer)
}

// look asks after every open task at once, and reports what is open then.
func (n *node) look() {
	ids, err := n.open("id")
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			_, err := n.gateway.Video(context.Background(), id)
			if err != nil && !fault.Is(err, fault.ResourceNotFound) { // the vendor has refused it meanwhile
				n.out.report(event{Kind: broken, Task: id, Error: err.Error()})
			}
		})
	}
	all.Wait()
	seen := event{Kind: looked}
	if err == nil {
		seen.Open, err = n.open("upstream_id")
	}
	if err == nil {
		err = n.raw.QueryRow("SELECT COUNT(*) FROM notice WHERE state = 'waiting' AND next_at <= ?", n.task.Clock.Now().UnixNano()).Scan(&seen.Waiting)
	}
	if err != nil {
		seen = event{Kind: broken, Error: err.Error()}
	}
	n.out.report(seen)
}

// open is a column of the tasks that have not ended.
func (n *node) open(column string) ([]string, error) {
	return database{context.Background(), nil, n.raw}.openTasks(column)
}

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

// watchedLedger is the store, with the points of its calls.
type watchedLedger struct {
	store.Ledger
	killer *killer
}

func (l *watchedLedger) Lookup(ctx context.Context, key idempotency.Key, content idempotency.Content) (*idempotency.Answer, error) {
	defer l.killer.call(theLookup)()
	return l.Ledger.Lookup(ctx, key, content)
}

func (l *watchedLedger) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	defer l.killer.call(theHold)()
	return l.Ledger.Reserve(ctx, c)
}

func (l *watchedLedger) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	call := theRelease
	for _, r := range with {
		if _, ends := r.(video.Step); ends {
			call = theSettlement
		}
	}
	defer l.killer.call(call)()
	return l.Ledger.Settle(ctx, h, u, with...)
}

func (l *watchedLedger) Change(ctx context.Context, s video.Step, answer *idempotency.Record) (bool, error) {
	call := theProgress
	switch {
	case s.Task.State == video.Unknown:
		call = theLoss
	case s.Task.AcceptedAt.Equal(s.Task.UpdatedAt):
		call = theAcceptance
	}
	defer l.killer.call(call)()
	return l.Ledger.Change(ctx, s, answer)
}

func (l *watchedLedger) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	defer l.killer.call(theLease)()
	return l.Ledger.Claim(ctx, owner, until, n)
}

func (l *watchedLedger) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Delivery, error) {
	defer l.killer.call(theNotices)()
	return l.Ledger.Due(ctx, owner, until, n)
}

func (l *watchedLedger) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
	defer l.killer.call(theSecrets)()
	return l.Ledger.Secrets(ctx, account)
}

func (l *watchedLedger) Done(ctx context.Context, id string, at time.Time) error {
	defer l.killer.call(theDelivery)()
	return l.Ledger.Done(ctx, id, at)
}

func (l *watchedLedger) Failed(ctx context.Context, n webhook.Delivery, next time.Time, reason string, final bool) error {
	defer l.killer.call(theFailure)()
	return l.Ledger.Failed(ctx, n, next, reason, final)
}

// watch is an upstream with the points of its calls.
func (k *killer) watch(up upstream.Upstream) upstream.Upstream {
	return upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		if call.Op == upstream.PollVideo {
			defer k.call(thePoll)()
		} else {
			defer k.call(theSubmission)()
		}
		return up.Do(ctx, call)
	})
}
