package faultlab

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
)

// Simulate plays a lab from its first request to its last, then makes all well
// and waits until nothing is under way any more. It must be called in the bubble
// of a testing/synctest. The error says that the lab itself could not work; what
// the gateway did wrong is in the report.
func Simulate(o Options) (*Report, error) {
	l, err := newLab(o)
	if err != nil {
		return nil, err
	}
	days, end := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.disturb(days)
	}()
	l.traffic()
	end()
	<-over
	l.recover()
	_ = l.gateway.Close()
	l.awaitCaptures()
	l.stop()
	l.running.Wait()
	return l.verify(), nil
}

// What must have ended how long after the last fault.
const (
	mostRest  = 2 * time.Minute                              // of a channel that had failed
	mostVideo = 48*time.Hour + videoop.Grace + 2*time.Minute // of a video, whatever became of it
)

// recover ends all faults: every hold, task, capture and slot must end within
// its time, and new requests must all succeed.
func (l *Lab) recover() {
	l.well.Store(true)
	l.ledger.away.begin(0, refuses)
	time.Sleep(mostRest)
	l.awaitCaptures()
	for since := l.now(); l.held(); time.Sleep(time.Minute) {
		if l.now()-since > mostVideo {
			l.problem("%s after the last fault something is still held", mostVideo)
			break
		}
	}
	before := len(l.all)
	for n, k := range Kinds() {
		for i := range 6 {
			l.play(l.plain(k, n*100+i))
		}
	}
	l.fill()
	l.repeat()
	for _, r := range l.all[before:] {
		if r.failed != nil || !r.complete && !r.replayed && !r.Case.Kind.IsVideo() {
			l.runProblem(r, "all is well again, and a request fails: %v", fault.From(r.failed))
		}
	}
	for since := l.now(); l.held() && l.now()-since < mostVideo; {
		time.Sleep(10 * time.Second)
	}
}

// fill has each payer with a limit make as many requests at once as it may: no
// slot was lost.
func (l *Lab) fill() {
	var all sync.WaitGroup
	for n := payers - narrow; n < payers; n++ {
		for i := range atOnce {
			c := l.plain(Chat, 10_000*n+i)
			c.Payer, c.Pause = n, 0
			all.Go(func() { l.play(c) })
		}
	}
	all.Wait()
}

// repeat sends requests again that cost nothing, with their idempotency keys:
// each key is free.
func (l *Lab) repeat() {
	const most = 40
	paid := map[string]bool{}
	for _, r := range l.all {
		receipt, err := l.ledger.Receipt(context.Background(), accountOf(r.Case.Payer), r.ID)
		paid[r.Case.Key] = paid[r.Case.Key] || err == nil && receipt.Status == billing.Captured
	}
	repeated := map[string]bool{"": true}
	for _, r := range l.all {
		key := r.Case.Key
		if repeated[key] || paid[key] || r.Case.Payer >= rich || r.Case.Kind.IsVideo() || len(repeated) > most {
			continue
		}
		repeated[key] = true
		again := *r.Case
		again.Copies = []Copy{well(r.Case.Copies[0])}
		l.play(&again)
	}
}

// held reports whether an account has anything set aside.
func (l *Lab) held() bool {
	return slices.ContainsFunc(l.accounts(), func(name string) bool {
		b, err := l.ledger.Balance(context.Background(), name)
		return err != nil || b.Held != 0
	})
}

func (l *Lab) accounts() (names []string) {
	for n := range payers {
		names = append(names, accountOf(n))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// plain is a case in which nothing goes wrong, of a payer with money.
func (l *Lab) plain(k Kind, n int) *Case {
	const apart = 1 << 30 // from the random cases
	for ; ; n += 1_000 {
		c := randomCase(l.options.Seed, apart+n)
		if c.Kind != k {
			continue
		}
		c.Payer, c.Key, c.Copies = n%rich, "", c.Copies[:1]
		c.Copies[0] = well(c.Copies[0])
		return c
	}
}

// well is a copy of which the client stays and nothing goes wrong.
func well(c Copy) Copy {
	c.Client, c.After = Client{}, 0
	c.Attempts = slices.Clone(c.Attempts)
	for part, attempts := range c.Attempts {
		c.Attempts[part] = slices.Clone(attempts)
		for i := range attempts {
			c.Attempts[part][i].Trouble, c.Attempts[part][i].Answer.Gap = Fine, time.Millisecond
		}
	}
	return c
}

// prompt is a case whose clients read as fast as they can and leave at times:
// what a connection holds is nobody's.
func (c *Case) prompt() {
	for i := range c.Copies {
		cl := &c.Copies[i].Client
		cl.Slow = 0
		if cl.Leaves == Closing || cl.Leaves == Early {
			cl.Leaves, cl.At = AtTime, time.Duration(cl.Reads)*300*time.Millisecond+time.Microsecond/2
		}
	}
}
