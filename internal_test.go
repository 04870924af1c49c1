package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// BuiltinIDs are the models of the built-in tables, for the tests from outside.
func BuiltinIDs() []string { return slices.Sorted(maps.Keys(builtin())) }

// ending is a context that has ended when somebody asks, and with it a call.
type ending struct {
	context.Context
	end func()
}

func (e ending) Done() <-chan struct{} {
	e.end()
	return e.Context.Done()
}

func TestAShutdownWhoseTimeEndsWithTheLastCallHasCutNothingShort(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // which of the two is seen first is chance
		var all calls
		c := &Entry{cancel: func(error) { t.Error("the call was cut short") }}
		if err := all.add(c); err != nil {
			t.Fatal(err)
		}
		if err := all.shutdown(ending{over, func() { all.remove(c) }}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATransportsErrorKeepsItsReasonAndLosesTheVendorsWords(t *testing.T) {
	const broken = "BadGateway: The upstream's answer was malformed or cut short. (upstream: "
	for text, want := range map[string]string{
		"read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer": broken + "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer)",
		io.ErrUnexpectedEOF.Error():                                         broken + "unexpected EOF)",
		`malformed MIME header line: "secret"`:                              broken + "malformed MIME header",
		"malformed MIME header initial line: secret":                        broken + "malformed MIME header",
		`transport connection broken: malformed HTTP "secret"`:              broken + "transport connection broken: malformed HTTP",
		`bad Content-Length "secret"`:                                       broken + "bad Content-Length",
		`cannot contain multiple headers; got ["secret" "b"]`:               broken + "cannot contain multiple headers; got",
		strings.Repeat("long ", 100):                                        "",
	} {
		got := redactError((&upstream.Failure{Sent: true, Err: errors.New(text)}).Fault())
		if want != "" && got != want || len(got) > 256+len("…") {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}

func TestAsManyWaitForVideosAsCallsMayRunButAtMost4096(t *testing.T) {
	for _, c := range []struct{ waiting, calls, want int }{
		{0, 0, 4096}, {0, -1, 4096}, {0, 1 << 20, 4096}, {0, 100, 100}, {7, 3, 7}, {5000, 100, 5000}, {-1, 100, -1},
	} {
		o := Options{Video: VideoOptions{MaxWaiting: c.waiting}, Admission: Admission{MaxCalls: c.calls}}
		if o.setDefaults(); o.Video.MaxWaiting != c.want {
			t.Errorf("%+v: %d", c, o.Video.MaxWaiting)
		}
	}
}
