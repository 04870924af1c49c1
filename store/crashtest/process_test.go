//go:build unix

package crashtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a child that runs.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser // its end asks the child to end
	events *os.File
	errors bytes.Buffer
}

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
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	events, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // the child has its own
	p := &process{cmd: exec.Command(binary), events: events}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = &p.errors
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

func (p *process) kill() { _ = p.cmd.Process.Kill() } // it may have ended

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
		p.kill()
	})
	defer watchdog.Stop()
	arm := func(n int) {
		if n == m.events {
			time.AfterFunc(m.after, p.kill)
		}
	}
	arm(0)
	lines := bufio.NewReader(p.events)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil { // what has no end was not said
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			p.kill()
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
func (p *process) wait(o *exit) error {
	_ = p.events.Close()
	_ = p.input.Close()
	err := p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	o.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	if !o.killed && !o.finished {
		return fmt.Errorf("a child ended by itself: %w\n%s", err, p.errors.Bytes())
	}
	return nil
}
