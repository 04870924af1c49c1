//go:build unix

package videocrash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// process is a child that runs.
type process struct {
	cmd    *exec.Cmd
	orders *json.Encoder
	input  io.Closer
	stderr bytes.Buffer
	once   sync.Once
	gone   chan struct{} // closed when the system has forgotten it
	err    error         // how it ended otherwise than it should, once it is gone
}

// start starts this binary as a child, and has hear told of what it says until
// it has ended.
func start(t task, hear func(*process, event)) (*process, error) {
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
	p := &process{cmd: exec.Command(binary), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, &p.stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.input = json.NewEncoder(input), input
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(events, hear)
	return p, nil
}

// listen hears the child until it ends.
func (p *process) listen(events *os.File, hear func(*process, event)) {
	defer close(p.gone)
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // what has no end was not said
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: broken, Error: fmt.Sprintf("a child said %q", line)}
		}
		hear(p, e)
	}
	_, _ = events.Close(), p.input.Close()
	err := p.cmd.Wait()
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		p.err = fmt.Errorf("a child ended by itself: %w\n%s", err, p.stderr.Bytes())
	}
}

// tell gives a command. One that is dying may not get it.
func (p *process) tell(c command) { _ = p.orders.Encode(c) }

// kill ends the child now.
func (p *process) kill() { p.once.Do(func() { _ = p.cmd.Process.Kill() }) }
