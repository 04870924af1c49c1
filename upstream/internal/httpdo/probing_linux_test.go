package httpdo

import (
	"net"
	"syscall"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// TestAVendorWhoseMachineIsGoneIsNoticedWithinAMinute asks the system what it was
// told of a connection.
func TestAVendorWhoseMachineIsGoneIsNoticedWithinAMinute(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := newTransport(upstream.DriverOptions{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*countingConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	seconds := 0
	err = raw.Control(func(fd uintptr) {
		on, err1 := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		idle, err2 := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		interval, err3 := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)
		probes, err4 := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
		if on == 0 || err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			t.Error(on, err1, err2, err3, err4)
		}
		seconds = idle + interval*probes
	})
	if err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("%d s, %v", seconds, err)
	}
}
