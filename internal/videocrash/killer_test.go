//go:build unix

package videocrash

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// The moments of a call.
const (
	before = "before "
	during = "during " // some time after it began
	after  = "after "  // before its caller knows
)

// The calls at which a process is killed.
const (
	theClaim      = "the claim of a key"
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
		theClaim, theHold, theSubmission, theAcceptance, theLoss, theRelease, theLease, thePoll, theProgress,
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
		k.pass(die)
	case during + call:
		k.pass(k.dieSoon)
	case after + call:
		return func() { k.pass(die) }
	}
	return func() {}
}

func (k *killer) pass(end func()) {
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
	*store.Tasks
	killer *killer
}

func (l *ledger) Open(ctx context.Context, key idempotency.Key, content idempotency.Content, id string) (*idempotency.Answer, error) {
	defer l.killer.at(theClaim)()
	return l.Tasks.Open(ctx, key, content, id)
}

func (l *ledger) Reserve(ctx context.Context, c billing.Charge) (billing.Hold, error) {
	defer l.killer.at(theHold)()
	return l.Tasks.Reserve(ctx, c)
}

func (l *ledger) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	call := theRelease
	for _, r := range with {
		if _, ends := r.(video.Step); ends {
			call = theSettlement
		}
	}
	defer l.killer.at(call)()
	return l.Tasks.Settle(ctx, h, u, with...)
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
	return l.Tasks.Change(ctx, s, answer)
}

func (l *ledger) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	defer l.killer.at(theLease)()
	return l.Tasks.Claim(ctx, owner, until, n)
}

func (l *ledger) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Notice, error) {
	defer l.killer.at(theNotices)()
	return l.Tasks.Due(ctx, owner, until, n)
}

func (l *ledger) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
	defer l.killer.at(theSecrets)()
	return l.Tasks.Secrets(ctx, account)
}

func (l *ledger) Done(ctx context.Context, id string, at time.Time) error {
	defer l.killer.at(theDelivery)()
	return l.Tasks.Done(ctx, id, at)
}

func (l *ledger) Failed(ctx context.Context, n webhook.Notice, next time.Time, reason string, final bool) error {
	defer l.killer.at(theFailure)()
	return l.Tasks.Failed(ctx, n, next, reason, final)
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
