//go:build unix

// Package childproc runs a test's own binary again as a child that the test
// may kill, and hears what the child says until then.
package childproc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// Main is what TestMain does: it runs the tests, or in a child, which has its
// task in the environment's variable, the child. It returns the exit code.
func Main[T any](m *testing.M, variable string, child func(task T, v *Voice) int) int {
	text := os.Getenv(variable)
	if text == "" {
		return m.Run()
	}
	var task T
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return 2
	}
	return child(task, &Voice{pipe: os.NewFile(3, "events")})
}

// Voice writes a child's events. It is safe for concurrent use: a line goes out
// by one write, which a pipe takes whole or not at all.
type Voice struct {
	mu   sync.Mutex
	pipe *os.File
}

// Say writes an event as JSON. Without anybody who hears it the child ends.
func (v *Voice) Say(event any) {
	line, err := json.Marshal(event)
	if err != nil {
		os.Exit(3)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.pipe.Write(append(line, '\n')); err != nil {
		os.Exit(4) // the test is gone
	}
}

// Process is a child that runs. It is safe for concurrent use, but for Said and
// Wait, which are for one goroutine, in that order.
type Process struct {
	Input io.WriteCloser // its end asks the child to end

	cmd    *exec.Cmd
	events *os.File
	stderr bytes.Buffer
}

// Start starts this binary as a child with a task.
func Start(variable string, task any) (*Process, error) {
	text, err := json.Marshal(task)
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
	p := &Process{cmd: exec.Command(binary), events: events}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, &p.stderr
	if p.Input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// Said are the lines that the child says, until it ends. What has no end was not
// said.
func (p *Process) Said() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for lines := bufio.NewReader(p.events); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil || !yield(line) {
				return
			}
		}
	}
}

// Kill ends the child now, if it has not ended.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Wait returns when the system has forgotten the child, and its locks with it.
// The error says how it ended if it was not killed.
func (p *Process) Wait() (killed bool, err error) {
	_, _ = p.events.Close(), p.Input.Close()
	err = p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true, nil
	}
	return false, fmt.Errorf("a child ended by itself: %w\n%s", err, p.stderr.Bytes())
}
