package httpdo_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// silent are the ways in which a vendor that is half dead says nothing more.
var silent = map[string]struct {
	script func(h *hostile, c net.Conn, r *bufio.Reader)
	begun  bool // a byte of the answer has come
}{
	"accepts and never reads": {func(h *hostile, _ net.Conn, _ *bufio.Reader) { <-h.ended }, false},
	"never answers":           {falls(""), false},
	"half a header":           {falls("HTTP/1.1 200 OK\r\nContent-Ty"), false},
	"interim answers only":    {falls("HTTP/1.1 103 Early Hints\r\n\r\n"), false},
	"a head and no byte":      {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), false},
	"an event and no more":    {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"), true},
	"half a chunk's size":     {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: {}\n\n\r\n1"), true},
}

// falls is a vendor that takes the request, says so much, and then nothing more.
func falls(said string) func(*hostile, net.Conn, *bufio.Reader) {
	return func(h *hostile, c net.Conn, r *bufio.Reader) {
		if took(r) {
			_, _ = io.WriteString(c, said)
			h.over(r)
		}
	}
}

// TestAVendorThatFallsSilentIsGivenUpInTime is docs/faults.md, row 2, on sockets.
func TestAVendorThatFallsSilentIsGivenUpInTime(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, row := range silent {
		t.Run(name, func(t *testing.T) {
			h := listen(t, row.script)
			limits := upstream.Timeouts{Headers: 50 * time.Millisecond, Idle: 50 * time.Millisecond, Total: time.Minute}
			what, size := "did not begin its answer within 50ms", 16<<20 // more than the system keeps of it
			if row.begun {
				limits.Headers, what, size = time.Minute, "fell silent for 50ms", 0
			}
			c := call(t, true, size)
			start := time.Now()
			_, err := h.read(t.Context(), c, limits)
			took := time.Since(start)
			if !fault.Is(err, fault.RequestTimeout) || !strings.Contains(fault.From(err).Message, what) || took > 30*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
	settled(t, before)
}

// TestACallThatIsGivenUpIsCancelledWithinATenthOfASecond is docs/faults.md, row 1:
// what a vendor on a socket sees of a client that left.
func TestACallThatIsGivenUpIsCancelledWithinATenthOfASecond(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, row := range silent {
		if name == "accepts and never reads" {
			continue // it looks at nothing
		}
		t.Run(name, func(t *testing.T) {
			const tries, most = 20, 100 * time.Millisecond // a machine that is busy is late at times, a gateway always
			for range tries {
				late := outlived(t, row.script)
				if late <= most {
					return
				}
				t.Logf("the vendor saw it after %s", late)
			}
			t.Errorf("the vendor saw it too late each of %d times", tries)
		})
	}
	settled(t, before)
}

// outlived is by how much the call of a vendor outlives its client.
func outlived(t *testing.T, script func(h *hostile, c net.Conn, r *bufio.Reader)) time.Duration {
	t.Helper()
	h := listen(t, script)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan time.Time, 1)
	go func() {
		<-h.mute
		left <- time.Now()
		cancel()
	}()
	if _, err := h.read(ctx, call(t, true, 0), upstream.Timeouts{}); !fault.Is(err, fault.ClientGone) {
		t.Errorf("%v", err)
	}
	return (<-h.gone).Sub(<-left)
}

// settled fails if goroutines stay.
func settled(t *testing.T, before int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if runtime.NumGoroutine() <= before {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	all := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
}
