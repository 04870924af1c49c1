//go:build unix

package httpdo

import (
	"io"
	"net"
	"syscall"
	"testing"
)

// TestAnIdleConnectionThatIsNotQuietIsNotUsed is of what a vendor does after its answer: it
// says more, or closes. No call fails because of it.
func TestAnIdleConnectionThatIsNotQuietIsNotUsed(t *testing.T) {
	for name, after := range map[string]func(net.Conn){
		"it says more": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\n\r\n") },
		"it closes":    func(c net.Conn) { _ = c.Close() },
		"it resets":    func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			conns := make(chan net.Conn, 2)
			v := newWireVendor(t, func(c net.Conn, _ int) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				conns <- c
			})
			c := v.client(t)
			for range 2 {
				resp, err := post(t.Context(), c, "{}")
				if err != nil {
					t.Fatal(err)
				}
				if data := readRefusal(resp.Body); string(data) != "{}" {
					t.Errorf("%q", data)
				}
				after(<-conns)
				waitForBytes(t, c.direct)
			}
			if got := v.connections.Load(); got != 2 {
				t.Errorf("%d connections for two calls", got)
			}
		})
	}
}

// waitForBytes returns when the idle connection has something to read, its end included.
func waitForBytes(t *testing.T, d *directTransport) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) != 1 {
		t.Fatalf("%d idle connections", len(d.idle))
	}
	err := d.idle[0].raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
}
