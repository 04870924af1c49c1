package faultlab

import (
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// never is the time of what has not happened.
const never = time.Duration(-1)

// Run is one copy of a case on its way: what its vendors did and what its client
// saw, by the lab's clock. The oracle reads it.
type Run struct {
	Case       *Case
	Copy       int
	ID         string // the gateway's, of the request
	generation int    // of the price list when the request began

	mu       sync.Mutex
	attempts []*attempt
	taken    time.Duration // when a vendor had taken the video
	counted  map[int]int   // attempts by part

	// What the client saw.
	began    time.Duration
	left     time.Duration // when it left; never if it stayed
	accepted bool          // it got a 200
	answered time.Duration // when
	reads    int           // that it began
	first    time.Duration // when it began the first
	got      int           // bytes
	complete bool          // it saw the end of a complete answer
	failed   error         // what it was told
	replayed bool
	original string // of a replayed answer: whose
	body     []byte // that it got, where another copy may get it too
	ended    time.Duration
}

// attempt is one attempt at a vendor.
type attempt struct {
	part, number int
	plan         *attemptScript
	script       *script
	began        time.Duration

	mu      sync.Mutex
	sent    bool          // the vendor got the request
	refused bool          // it refused it before any work
	given   int           // bytes that the gateway has read
	over    time.Duration // when the vendor's part had ended by itself
	eof     bool          // it had ended as if that were all
	dropped time.Duration // when the gateway let go of it
}

// begin notes an attempt and finds its script.
func (r *Run) begin(part int, call *upstream.Call, l *Lab) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.counted[part]
	if r.counted == nil {
		r.counted = map[int]int{}
	}
	r.counted[part] = n + 1
	plans := r.Case.Copies[r.Copy].Attempts[part]
	plan := plans[min(n, len(plans)-1)]
	switch {
	case l.healthy():
		plan.Trouble, plan.Status, plan.Again = Fine, 0, 0
	case l.vendorsFail():
		plan.Trouble, plan.Status, plan.Again = Fails, 500, 0
	}
	p := &attempt{part: part, number: n, plan: &plan, began: l.now(), over: never, dropped: never}
	p.script = answerOf(r.Case, p.plan, part, jobOf(call.RequestID))
	r.attempts = append(r.attempts, p)
	return p
}

func jobOf(requestID string) string { return "job-" + requestID }

// last is the last attempt of a part; nil if there was none.
func (r *Run) last(part int) *attempt {
	for i := len(r.attempts) - 1; i >= 0; i-- {
		if r.attempts[i].part == part {
			return r.attempts[i]
		}
	}
	return nil
}

// ends notes that the vendor's part has ended by itself.
func (p *attempt) ends(now time.Duration, eof bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == never && p.dropped == never {
		p.over, p.eof = now, eof
	}
}

// drops notes that the gateway has let go.
func (p *attempt) drops(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped == never {
		p.dropped = now
	}
}
