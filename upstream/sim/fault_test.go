package sim

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// failing is options under which every call has the fault.
func failing(f Fault) Options { return Options{Fault: func(*upstream.Call) Fault { return f }} }

const streamed = `"stream":true,"stream_options":{"include_usage":true}`

func TestAStreamBreaksOffWhereItsFaultSays(t *testing.T) {
	good, err := readStream(t, Options{}, with(streamed))
	if err != nil {
		t.Fatal(err)
	}
	events := len(good.chunks) + 1
	for _, kind := range []Break{Cut, Reset, ErrorFrame, Garbage} {
		for after := range events {
			reply, err := New(failing(Fault{Break: kind, After: after})).Do(t.Context(), callOf(t, with(streamed)))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(reply.Body)
			text := string(data)
			if got := strings.Count(text, `"object":"chat.completion.chunk"`); got != after {
				t.Errorf("%d after %d: %d chunks came", kind, after, got)
			}
			if strings.Contains(text, "[DONE]") {
				t.Errorf("%d after %d: the stream is complete", kind, after)
			}
			want := breaks[kind].text
			if want != "" && !strings.HasSuffix(text, "data: "+want+"\n\n") {
				t.Errorf("%d after %d: it ends in %q", kind, after, text[max(len(text)-80, 0):])
			}
			if errors.Is(err, io.ErrUnexpectedEOF) != (kind == Reset) {
				t.Errorf("%d after %d: the body ended with %v", kind, after, err)
			}
		}
	}
}

func TestAWholeAnswerBreaksOffInItsBody(t *testing.T) {
	for _, kind := range []Break{ErrorFrame, Garbage} {
		if got, err := bodyUnder(t, Fault{Break: kind}); err != nil || got != breaks[kind].text {
			t.Errorf("%d: %s, %v", kind, got, err)
		}
	}
	good, _ := bodyUnder(t, Fault{})
	for kind, want := range map[Break]error{Cut: nil, Reset: io.ErrUnexpectedEOF} {
		if got, err := bodyUnder(t, Fault{Break: kind}); got != good[:len(good)/2] || !errors.Is(err, want) {
			t.Errorf("%d: %s, %v", kind, got, err)
		}
	}
}

func bodyUnder(t *testing.T, f Fault) (string, error) {
	t.Helper()
	reply, err := New(failing(f)).Do(t.Context(), callOf(t, hello))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	return string(data), err
}

func TestUsageIsReportedAsTheFaultSays(t *testing.T) {
	right := ask(t, Options{}, hello).Usage.CompletionTokens
	for name, row := range map[string]struct {
		fault Fault
		want  []int64
	}{
		"as it was": {Fault{}, []int64{right}},
		"none":      {Fault{NoUsage: true}, nil},
		"zero":      {Fault{ZeroUsage: true}, []int64{0}},
	} {
		s, err := readStream(t, failing(row.fault), with(streamed))
		if err != nil || !s.done {
			t.Fatal(err)
		}
		var got []int64
		for _, u := range s.usages {
			got = append(got, u.CompletionTokens)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		whole := ask(t, failing(row.fault), hello).Usage
		if (whole == nil) != row.fault.NoUsage || whole != nil && whole.CompletionTokens != row.want[0] {
			t.Errorf("%s: a whole answer reports %+v", name, whole)
		}
	}
}

func TestAFaultRefusesACallAsADriverWould(t *testing.T) {
	for status, want := range map[int]struct {
		code    fault.Code
		public  int
		hasBody bool // the vendor's, which only who is at fault gets
	}{
		400: {fault.InvalidRequest, 400, true},
		404: {fault.InvalidRequest, 404, true},
		401: {fault.NoChannel, 502, false},
		429: {fault.UpstreamRateLimit, 429, false},
		503: {fault.ServiceUnavailable, 503, false},
	} {
		_, err := New(failing(Fault{Status: status})).Do(t.Context(), callOf(t, hello))
		f := fault.From(err)
		var cause *upstream.Failure
		if f.Code != want.code || f.HTTPStatus() != want.public || (f.Body != nil) != want.hasBody || !errors.As(err, &cause) || cause.Status != status {
			t.Errorf("%d: %+v", status, f)
		}
	}
	if _, err := New(failing(Fault{Video: "finished"})).Do(t.Context(), callOf(t, hello)); !fault.Is(err, fault.InternalError) {
		t.Errorf("an unknown state of a video: %v", err)
	}
}

func TestEventsComeAtTheirPaceAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{FirstDelay: time.Second, Pace: 30 * time.Millisecond}
		reply, err := New(o).Do(t.Context(), callOf(t, with(streamed)))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		start, buf := time.Now(), make([]byte, 64<<10)
		for i := 0; ; i++ {
			n, err := reply.Body.Read(buf)
			if errors.Is(err, io.EOF) {
				break
			}
			if want := o.FirstDelay + time.Duration(i)*o.Pace; time.Since(start) != want {
				t.Errorf("event %d came after %s, want %s", i, time.Since(start), want)
			}
			if got := strings.Count(string(buf[:n]), "\n\n"); got != 1 {
				t.Errorf("read %d gave %d events", i, got)
			}
		}
		start = time.Now()
		if _, err := New(o).Do(t.Context(), callOf(t, hello)); err != nil || time.Since(start) != o.FirstDelay {
			t.Errorf("a whole answer came after %s, %v", time.Since(start), err)
		}
	})
}

func TestAReadThatWaitsEndsWithTheContextOrTheBody(t *testing.T) {
	waits := map[string]Options{
		"pace": {Pace: time.Hour}, "first": {FirstDelay: time.Hour},
		"stall": failing(Fault{Break: Stall, After: 1}), "stalled": failing(Fault{Break: Stall}),
	}
	for name, o := range waits {
		t.Run(name, func(t *testing.T) {
			if err := waiting(t, o, func(cancel context.CancelFunc, _ io.Closer) { cancel() }); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
			if err := waiting(t, o, func(_ context.CancelFunc, body io.Closer) { _ = body.Close() }); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

// waiting reads until nothing more comes, ends the call, and returns what the
// read said.
func waiting(t *testing.T, o Options, end func(context.CancelFunc, io.Closer)) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reply, doErr := New(o).Do(ctx, callOf(t, with(streamed)))
		if doErr != nil {
			t.Fatal(doErr)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err = io.ReadAll(reply.Body)
		}()
		synctest.Wait()
		end(cancel, reply.Body)
		<-done
	})
	return err
}
