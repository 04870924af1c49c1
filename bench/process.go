package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roles are what a process of this program can be told to be by its first
// argument. A role listens on a free port of loopback and answers questions on
// stdin until that is closed.
var roles = map[string]func(ctx context.Context, args []string, in io.Reader, out io.Writer) error{
	"vendor":     playVendor,
	"floor":      playFloor,
	"gateway":    playGateway,
	"bounded":    playBounded,
	"crowd":      playCrowd,
	"slowvendor": playSlowVendor,
	"drippers":   playDrippers,
}

// serve announces the address and the key that it takes, and then answers each
// line of in with what the process has used so far. It speaks TLS if secure is not nil.
func serve(ctx context.Context, h http.Handler, secure *tls.Config, key string, in io.Reader, out io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, TLSConfig: secure, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	go func() { // ends with the process
		if secure == nil {
			_ = s.Serve(l)
		} else {
			_ = s.ServeTLS(l, "", "")
		}
	}()
	fmt.Fprintln(out, l.Addr(), key)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		cpu, memory, err := used()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, cpu.Nanoseconds(), memory)
	}
	return s.Close()
}

// used is the CPU time of this process, user and system, and its resident
// memory in bytes.
func used() (time.Duration, int64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return cpu, 0, nil // not Linux: no memory figures
	}
	var size, resident int64
	_, err = fmt.Sscan(string(statm), &size, &resident)
	return cpu, resident * int64(os.Getpagesize()), err
}

// process is another role of this program at work.
type process struct {
	role    string
	address string // host:port
	key     string // the API key that it takes, if any
	cmd     *exec.Cmd
	in      io.Closer
	ask     func() (string, error)
}

// start runs a role. The process ends with ctx or at stop.
func start(ctx context.Context, procs int, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	p := &process{role: args[0], cmd: cmd, in: in, ask: func() (string, error) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return "", err
		}
		return lines.ReadString('\n')
	}}
	hello, err := lines.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the %s did not start: %w", args[0], err)
	}
	p.address, p.key, _ = strings.Cut(strings.TrimSpace(hello), " ")
	return p, nil
}

// used asks the process what it has used so far.
func (p *process) used() (cpu time.Duration, memory int64, err error) {
	line, err := p.ask()
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(line, &cpu, &memory)
	return cpu, memory, err
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait() // how it ends does not matter any more
}
