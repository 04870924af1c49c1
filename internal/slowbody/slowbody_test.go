package slowbody

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// connection is a response writer whose read deadline the body obeys, as net/http
// has it.
type connection struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *connection) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// slow gives a piece of a body every so often.
type slow struct {
	c     *connection
	piece int
	every time.Duration
	left  int
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(min(s.every, time.Until(s.c.deadline)))
	if !time.Now().Before(s.c.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	n := min(len(p), s.piece, s.left)
	s.left -= n
	return copy(p, bytes.Repeat([]byte{'x'}, n)), nil
}

func (*slow) Close() error { return nil }

func TestABodyMustKeepComingAndEndInTime(t *testing.T) {
	const timeout = 30 * time.Second
	tests := []struct {
		name  string
		piece int
		every time.Duration
		size  int
		want  error
		took  time.Duration
	}{
		{"32 MiB at 2 Mbit/s", Light, 250 * time.Millisecond, 32 << 20, nil, 128 * time.Second},
		{"a byte now and then", 1, 5 * time.Second, 1 << 20, os.ErrDeadlineExceeded, timeout},
		{"64 KiB just in time", Light, 29 * time.Second, 32 << 20, os.ErrDeadlineExceeded, 10 * timeout},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &connection{ResponseRecorder: httptest.NewRecorder()}
				body := New(&slow{c, test.piece, test.every, test.size}, c, timeout, nil)
				began := time.Now()
				buf := make([]byte, 2*Light)
				var err error
				for err == nil {
					_, err = body.Read(buf)
				}
				if err == io.EOF {
					err = nil
				}
				if took := time.Since(began); !errors.Is(err, test.want) || took != test.took {
					t.Errorf("ended with %v after %s, want %v after %s", err, took, test.want, test.took)
				}
			})
		})
	}
}
