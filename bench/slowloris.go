package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// measureSlowloris builds tollhouse, serves its demo, and measures a client's
// latency with and without very many others that send a byte of their headers
// each second.
func measureSlowloris(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	victim, err := startDemo(ctx, dir)
	if err != nil {
		return err
	}
	defer victim.stop()
	body := post{path: "/v1/messages/count_tokens", body: `{"model":"sim-chat","messages":[{"role":"user","content":"hi"}]}`}
	length := time.Duration(float64(20*time.Second) * o.scale)
	ask := func(what string) error {
		all, refused, err := calls(ctx, victim, body, length)
		if err != nil {
			return err
		}
		l := tallies{}
		fmt.Fprintf(out, "%-16s %6d calls, p50 %v p99 %v longest %v, %d refused\n", what+":", len(all), l.quantile(all, 50), l.quantile(all, 99), l.quantile(all, 100), refused)
		return nil
	}
	if err := ask("alone"); err != nil {
		return err
	}
	slow, err := start(ctx, 1, "drippers", victim.address, strconv.Itoa(o.sockets))
	if err != nil {
		return err
	}
	defer slow.stop()
	count := func() error {
		open, opened, err := slow.used() // which are no times here
		fmt.Fprintf(out, "%d slow connections are open; %d were opened in all\n", open.Nanoseconds(), opened)
		return err
	}
	time.Sleep(rampUp)
	if err := count(); err != nil {
		return err
	}
	if err := ask("beside them"); err != nil {
		return err
	}
	if err := count(); err != nil {
		return err
	}
	slow.stop()
	return ask("alone again")
}

// rampUp is how long it takes until all slow connections are open.
const rampUp = 10 * time.Second

// playDrippers are the slow clients, which stand for other machines: this one
// gives them what processor time nobody else wants. The arguments are the address
// and how many they are.
func playDrippers(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	const leastUrgent = 19
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, leastUrgent); err != nil {
		return err
	}
	sockets, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var dripping sync.WaitGroup
	defer dripping.Wait()
	defer stop()
	var open, opened atomic.Int64
	for i := range sockets {
		from := fmt.Sprintf("127.0.%d.%d", 1+i/250, 1+i%250) // each address has ports of its own
		dripping.Go(func() {
			select { // not all in the same second
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(i) * rampUp * 9 / 10 / time.Duration(sockets)):
			}
			drip(ctx, args[0], from, &open, &opened)
		})
	}
	fmt.Fprintln(out, args[0])
	for lines := bufio.NewScanner(in); lines.Scan(); {
		fmt.Fprintln(out, open.Load(), opened.Load())
	}
	return nil
}

// startDemo builds the binary and runs its demo on a free port.
func startDemo(ctx context.Context, dir string) (*process, error) {
	binary := filepath.Join(dir, "tollhouse")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/tollhouse-ai/gateway/cmd/tollhouse").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--demo", "--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(dir, "data"), "--drain", "1s", "--log-level", "error")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: interrupter{cmd.Process}}
	address, key := regexp.MustCompile(`http://([0-9.:]+)/v1`), regexp.MustCompile(`sk-\w+`)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if m := address.FindStringSubmatch(lines.Text()); m != nil && p.address == "" {
			p.address = m[1]
		}
		if p.key = key.FindString(lines.Text()); p.address != "" && p.key != "" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
			return p, nil
		}
	}
	p.stop()
	return nil, errors.New("the demo did not say where it listens")
}

// interrupter asks a process to end.
type interrupter struct{ *os.Process }

// Close interrupts it.
func (i interrupter) Close() error { return i.Signal(os.Interrupt) }

// calls asks one after the other, every tenth time on a new connection, and
// gives the latencies of the good answers.
func calls(ctx context.Context, p *process, what post, length time.Duration) (all []time.Duration, refused int, err error) {
	var c *client
	for began := time.Now(); time.Since(began) < length; {
		sent := time.Now()
		if c == nil {
			if c, err = dial(ctx, p, what); err != nil {
				return nil, 0, err
			}
		}
		status, err := c.status()
		switch {
		case err != nil || status != 200:
			refused++
		default:
			all = append(all, time.Since(sent))
		}
		if (len(all)+refused)%10 == 0 || err != nil {
			_ = c.conn.Close()
			c = nil
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return all, refused, nil
}

// drip holds a connection open by sending a byte of its headers each second, and
// opens another when it is closed.
func drip(ctx context.Context, address, from string, open, opened *atomic.Int64) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			select { // the port will be free again
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		open.Add(1)
		opened.Add(1)
		dripHeaders(ctx, conn)
		open.Add(-1)
		_ = conn.Close()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// dripHeaders ends when the other side closes.
func dripHeaders(ctx context.Context, conn net.Conn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = bufio.NewReaderSize(conn, 16).ReadByte()
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		const head = "GET /v1/models HTTP/1.1\r\nHost: slow\r\nX-Slow: "
		b := byte('y')
		if i < len(head) {
			b = head[i]
		}
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-tick.C:
		}
	}
}
