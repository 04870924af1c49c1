package httpdo_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// TestAnAnswerThatIsCutAtAnyByteIsNoWholeOne is docs/faults.md, row 3, for every way
// in which an answer says how long it is. What has no length ends where the
// connection does; that only a stream's terminator can tell.
func TestAnAnswerThatIsCutAtAnyByteIsNoWholeOne(t *testing.T) {
	for name, whole := range map[string]string{
		"a length": sseHead + "Content-Length: 14\r\n\r\ndata: [DONE]\n\n",
		"chunks": sseHead + "Transfer-Encoding: chunked\r\n\r\n" +
			"00000000b\r\ndata: {\"a\":\r\n0005;ext=\"x\"\r\n1}\n\n\n\r\nE\r\ndata: [DONE]\n\n\r\n0\r\nX-Trailer: a\r\n\r\n",
		"interim": "HTTP/1.1 100 Continue\r\n\r\n" + sseHead + "Content-Length: 2\r\n\r\n\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			cuts := make(chan int, 1)
			h := listen(t, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if took(r) {
					_, _ = io.WriteString(c, whole[:<-cuts])
				}
			})
			for cut := range len(whole) {
				cuts <- cut
				if data, err := h.read(t.Context(), call(t, true, 0), upstream.Timeouts{}); !badGateway(err) {
					t.Errorf("cut at %d of %d: %q, %v", cut, len(whole), data, err)
				}
			}
			cuts <- len(whole)
			if _, err := h.read(t.Context(), call(t, true, 0), upstream.Timeouts{}); err != nil {
				t.Errorf("whole: %v", err)
			}
		})
	}
}

// TestALengthThatIsALieIsTheVendorsFault is docs/faults.md, row 3: what stands behind
// the declared end is nobody's answer.
func TestALengthThatIsALieIsTheVendorsFault(t *testing.T) {
	const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
	for name, row := range map[string]struct {
		answer string
		want   string // the body; "502" if there is none
	}{
		"too large":            {"Content-Length: 10\r\n\r\n{}", "502"},
		"too small":            {"Content-Length: 2\r\n\r\n{}" + stolen, "{}"},
		"negative":             {"Content-Length: -1\r\n\r\n{}", "502"},
		"no number":            {"Content-Length: 2x\r\n\r\n{}", "502"},
		"larger than a number": {"Content-Length: 99999999999999999999\r\n\r\n{}", "502"},
		"a sign":               {"Content-Length: +2\r\n\r\n{}", "502"},
		"a list of two":        {"Content-Length: 2, 2\r\n\r\n{}", "502"},
		"twice the same":       {"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "{}"},
		"twice":                {"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "502"},
		"chunks and a length":  {"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}"},
		"chunked twice":        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "502"},
		"an unknown coding":    {"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "502"},
		"no chunk size":        {"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", "502"},
		"a huge chunk size":    {"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n", "502"},
		"a negative chunk":     {"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", "502"},
		"no end of a chunk":    {"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				for took(r) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+row.answer)
					if row.want == "502" {
						return // or the end of it would be waited for
					}
				}
			})
			times := 2 // the second must not get what was left of the first
			if name == "too small" {
				times = 1 // what follows an answer is thrown away by a goroutine of net/http, in its own time
			}
			for range times {
				data, err := h.read(t.Context(), call(t, false, 0), upstream.Timeouts{})
				if row.want == "502" && !badGateway(err) || row.want != "502" && (err != nil || data != row.want) {
					t.Errorf("%q, %v", data, err)
				}
			}
		})
	}
}

// TestWhatHasNoEndIsGivenUp is docs/faults.md, row 8: parts of an answer that go on
// and on end the call before they take memory.
func TestWhatHasNoEndIsGivenUp(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, row := range map[string]struct{ start, again string }{
		"one header":           {ok + "X: ", "yyyyyyyyyyyyyyyy"},
		"headers":              {ok, "X-Y: y\r\n"},
		"a folded header":      {ok + "X: y\r\n", " y\r\n"},
		"a status line":        {"HTTP/1.1 200 ", "OK"},
		"100 Continue":         {"", "HTTP/1.1 100 Continue\r\n\r\n"},
		"103 Early Hints":      {"", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
		"no HTTP":              {"", "\x00\xff"},
		"a chunk's extension":  {ok + "Transfer-Encoding: chunked\r\n\r\n2;", "xxxxxxxxxxxxxxxx"},
		"extensions of chunks": {ok + "Transfer-Encoding: chunked\r\n\r\n", "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n"},
		"a trailer":            {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", "yyyyyyyyyyyyyyyy"},
		"trailers":             {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: yyyyyyyyyyyyyyyy\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 8 << 20 // with what the system's buffers take
			sent := make(chan int, 1)
			h := listen(t, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if !took(r) {
					return
				}
				n, err := io.WriteString(c, row.start)
				block := strings.Repeat(row.again, 4096)
				for err == nil && n < 4*most {
					var more int
					more, err = io.WriteString(c, block)
					n += more
				}
				sent <- n
			})
			data, err := h.read(t.Context(), call(t, false, 0), upstream.Timeouts{})
			if !badGateway(err) || len(data) > 1<<20 {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if n := <-sent; n > most {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// folded is size zeros under gzip.
func folded(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.CopyN(w, zeros{}, int64(size))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestACodingThatNobodyAskedForIsRefusedOrUnfoldedUnderACap is docs/faults.md, rows 8
// and 9: a vendor is asked for no coding, and may say what it wants.
func TestACodingThatNobodyAskedForIsRefusedOrUnfoldedUnderACap(t *testing.T) {
	zip := string(folded(t, 1<<20))
	for name, row := range map[string]struct {
		coding, body string
		want         int // bytes; below 0 for a 502
	}{
		"gzip":                {"gzip", zip, 1 << 20},
		"GZIP":                {" GZIP ", zip, 1 << 20},
		"identity":            {"identity", "{}", 2},
		"nothing":             {"", "{}", 2},
		"gzip that is none":   {"gzip", "{}", -1},
		"gzip that is cut":    {"gzip", zip[:len(zip)/2], -1},
		"gzip and more":       {"gzip", zip + "{}", -1},
		"gzip in gzip":        {"gzip, gzip", zip, -1},
		"deflate":             {"deflate", zip, -1},
		"br":                  {"br", "\x0b\x02\x80{}\x03", -1},
		"zstd":                {"zstd", "\x28\xb5\x2f\xfd", -1},
		"compress":            {"compress", zip, -1},
		"identity, then gzip": {"identity, gzip", zip, -1},
		"a word of no one":    {"x\x01", "{}", -1},
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if took(r) {
					_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", row.coding, len(row.body), row.body)
				}
			})
			data, err := h.read(t.Context(), call(t, false, 0), upstream.Timeouts{})
			if row.want < 0 && !badGateway(err) || row.want >= 0 && (err != nil || len(data) != row.want) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
}
