package sqlhook

import (
	"database/sql/driver"
	"errors"
	"sync"
	"time"
)

// Faults makes the connections of a database fail on demand. Give Wrap to
// store.Options. It is safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	cut   bool
	count int
	at    int // the step that fails; 0 for none
	after bool
	fail  error
	slow  time.Duration // how long each step takes

	commit bool // the step that fails is the next COMMIT

	hang    <-chan struct{} // becomes the gate when a step has failed
	gate    <-chan struct{} // steps wait until it is closed
	arrived chan struct{}   // closed when the first one waits
}

// ErrFault is an error for FailAt and FailCommit that says nothing of the
// connection.
var ErrFault = errors.New("sqlhook: a fault was injected")

// Cut makes every later step fail, as for a process that was killed.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = true
}

// IsCut reports whether Cut was called.
func (f *Faults) IsCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// FailAt makes the nth step from now on fail with err: a connection, a BEGIN, a
// statement that writes or a COMMIT. With after the step is done and only its
// answer is lost. With n = 0 no step fails any more.
func (f *Faults) FailAt(n int, after bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count, f.at, f.after, f.fail, f.commit = 0, n, after, err, false
}

// FailCommit is FailAt for the next COMMIT, wherever it comes.
func (f *Faults) FailCommit(after bool, err error) {
	f.FailAt(0, after, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = true
}

// Block makes every later step wait until gate is closed.
func (f *Faults) Block(gate <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate, f.arrived = gate, make(chan struct{})
}

// HangAfter is Block from the step on that follows the one that is to fail.
func (f *Faults) HangAfter(gate <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = nil // an earlier one, which is open: a step that passes it does not wait
	f.hang, f.arrived = gate, make(chan struct{})
}

// Blocked waits until a step waits for the gate.
func (f *Faults) Blocked() {
	f.mu.Lock()
	arrived := f.arrived
	f.mu.Unlock()
	<-arrived
}

// Slow makes every later step take so much longer.
func (f *Faults) Slow(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = by
}

// wait delays a step by Slow and until the gate is open.
func (f *Faults) wait() {
	f.mu.Lock()
	gate, slow := f.gate, f.slow
	if slow > 0 {
		f.mu.Unlock()
		time.Sleep(slow)
		f.mu.Lock()
	}
	if gate == nil {
		f.mu.Unlock()
		return
	}
	select {
	case <-f.arrived:
	default:
		close(f.arrived)
	}
	f.mu.Unlock()
	<-gate
}

// Steps is how many steps were taken since the last FailAt.
func (f *Faults) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Wrap wraps the connector of a database; it is a value for store.Options.Wrap.
func (f *Faults) Wrap(c driver.Connector) driver.Connector { return Wrap(c, f.around) }

// around is the hook: it runs do, unless the step is to fail.
func (f *Faults) around(s Step, do func() error) error {
	if s.Kind == Read || s.Kind == Use {
		if f.IsCut() {
			return driver.ErrBadConn
		}
		return do()
	}
	f.wait()
	f.mu.Lock()
	f.count++
	if s.Kind == Commit && f.commit {
		f.commit, f.at = false, f.count
	}
	hit, after, cut := f.count == f.at, f.after, f.cut
	if hit && f.hang != nil {
		f.gate, f.hang = f.hang, nil
	}
	fail := f.fail
	f.mu.Unlock()
	switch {
	case cut:
		return driver.ErrBadConn
	case hit && !after:
		return fail
	case hit:
		_ = do() // it is done, and its answer is lost
		return fail
	}
	return do()
}
