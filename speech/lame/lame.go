// Package lame makes MP3 by the program of that name, through pipes.
package lame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/speech"
)

// Encoder runs the program once per answer. The zero Encoder takes the one on
// PATH.
type Encoder struct {
	// Look finds the program; exec.LookPath if nil.
	Look func(name string) (path string, err error)
	// command makes the process; exec.CommandContext if nil.
	command func(ctx context.Context, path string, args ...string) *exec.Cmd
}

var _ speech.Encoder = (*Encoder)(nil)

// Ready fails if the program is not there.
func (e *Encoder) Ready() error {
	_, err := e.look()
	return err
}

func (e *Encoder) look() (string, error) {
	look := e.Look
	if look == nil {
		look = exec.LookPath
	}
	path, err := look("lame")
	if err != nil {
		return "", fmt.Errorf("the program lame, which makes MP3, cannot be found: %w", err)
	}
	return path, nil
}

// Encode starts the program. Its answer leaves as it comes, without the
// header that would need the length.
func (e *Encoder) Encode(ctx context.Context, form speech.PCM, samples io.Reader) (io.ReadCloser, error) {
	path, err := e.look()
	if err != nil {
		return nil, err
	}
	command := e.command
	if command == nil {
		command = exec.CommandContext
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{cmd: command(ctx, path, arguments(form)...), cancel: cancel}
	s.cmd.Env = []string{"LC_ALL=C"} // it needs none of the gateway's, where vendors' keys are
	s.cmd.Stdin = samples
	s.cmd.Stderr = &s.stderr
	s.cmd.WaitDelay = 5 * time.Second // for samples whose Read still waits
	if s.out, err = s.cmd.StdoutPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("lame does not start: %w", err)
	}
	return s, nil
}

// arguments describe the samples, and ask for a constant bit rate, so that what
// comes out can be played from its first byte on.
func arguments(form speech.PCM) []string {
	mode, rate := "m", "64"
	if form.Channels == 2 {
		mode, rate = "j", "128"
	}
	sign := "--signed"
	if form.Bits == 8 {
		sign = "--unsigned"
	}
	return []string{
		"--quiet", "--flush", "-t", "-r", "-s", strconv.FormatFloat(float64(form.Rate)/1000, 'f', -1, 64),
		"--bitwidth", strconv.Itoa(form.Bits), sign, "--little-endian", "-m", mode, "--cbr", "-b", rate, "-", "-",
	}
}

// stream is what one process writes.
type stream struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	out    io.ReadCloser
	stderr clipped

	once sync.Once
	err  error // how the process ended
}

// Read reads MP3. The end is good only if the process says so.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if err == nil || n > 0 {
		return n, nil
	}
	if end := s.wait(); end != nil {
		return 0, end
	}
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	return 0, fmt.Errorf("reading from lame: %w", err)
}

// Close ends the process and waits for it.
func (s *stream) Close() error {
	s.cancel()
	_ = s.wait() // how it ends does not matter any more
	return nil
}

func (s *stream) wait() error {
	s.once.Do(func() {
		if s.err = s.cmd.Wait(); s.err != nil {
			s.err = fmt.Errorf("lame: %w: %s", s.err, bytes.TrimSpace(s.stderr.text))
		}
		s.cancel()
	})
	return s.err
}

// clipped keeps the beginning of what the process writes to its standard error.
type clipped struct{ text []byte }

// Write keeps at most 1 KiB in all and reports all of p as written.
func (c *clipped) Write(p []byte) (int, error) {
	const most = 1024
	c.text = append(c.text, p[:min(len(p), most-len(c.text))]...)
	return len(p), nil
}
