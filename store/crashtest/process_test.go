//go:build unix

package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/internal/childproc"
)

// process is a child that runs.
type process struct{ *childproc.Process }

// patience is how long a child may take for all that it has to do.
const patience = 60 * time.Second

// starting is held while a child starts: until it has its own program it has
// all files of this process, and with them the lock of a database that a test
// beside this one may have open.
var starting sync.Mutex

// start starts this binary as a child.
func start(t task) (*process, error) {
	starting.Lock()
	defer starting.Unlock()
	p, err := childproc.Start(variable, t)
	return &process{p}, err
}

// moment is when a test ends a child: some time after one of its events.
type moment struct {
	events int // 0 is its start; less than that is never
	after  time.Duration
}

// listen hears the child until it ends.
func (p *process) listen(hear func(event), m moment) (ended exit, err error) {
	var late atomic.Bool
	watchdog := time.AfterFunc(patience, func() {
		late.Store(true)
		p.Kill()
	})
	defer watchdog.Stop()
	arm := func(n int) {
		if n == m.events {
			time.AfterFunc(m.after, p.Kill)
		}
	}
	arm(0)
	n := 0
	for line := range p.Said() {
		n++
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			p.Kill()
			return ended, errors.Join(fmt.Errorf("a child said %q: %w", line, err), p.wait(&ended))
		}
		ended.hear(e)
		hear(e)
		arm(n)
	}
	err = p.wait(&ended)
	if late.Load() {
		err = fmt.Errorf("a child did not end in %s", patience)
	}
	return ended, err
}

// exit is how a child ended.
type exit struct {
	reached  bool // its fault point
	folded   bool
	finished bool // it did all that it had to
	killed   bool
}

func (o *exit) hear(e event) {
	switch e.Kind {
	case killed:
		o.reached = true
	case folded:
		o.folded = true
	case finished:
		o.finished = true
	}
}

// wait returns when the system has forgotten the child, and its locks with it.
func (p *process) wait(o *exit) (err error) {
	o.killed, err = p.Wait()
	if o.finished {
		return nil
	}
	return err
}
