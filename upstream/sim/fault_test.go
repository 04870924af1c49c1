package sim

import (
	"context"
	"errors"
	"io"
	"net/http"
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

func TestAStreamBreaksOffWhereItIsTold(t *testing.T) {
	good, err := hear(t, Options{}, with(streamed))
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
			want := map[Break]string{ErrorFrame: "data: " + errorFrame + "\n\n", Garbage: "data: " + garbage + "\n\n"}[kind]
			if !strings.HasSuffix(text, want) {
				t.Errorf("%d after %d: it ends in %q", kind, after, text[max(len(text)-80, 0):])
			}
			if errors.Is(err, io.ErrUnexpectedEOF) != (kind == Reset) {
				t.Errorf("%d after %d: the body ended with %v", kind, after, err)
			}
		}
	}
}

func TestAWholeAnswerBreaksOffInItsBody(t *testing.T) {
	for kind, want := range map[Break]string{ErrorFrame: errorFrame, Garbage: garbage} {
		if got, err := bodyUnder(t, Fault{Break: kind}); err != nil || got != want {
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
	for report, want := range map[Report][]int64{Reported: {right}, Withheld: nil, Twice: {right, right}, ZeroUsage: {0}} {
		s, err := hear(t, failing(Fault{Usage: report}), with(streamed))
		if err != nil || !s.done {
			t.Fatal(err)
		}
		var got []int64
		for _, u := range s.usages {
			got = append(got, u.CompletionTokens)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", report, diff)
		}
		whole := ask(t, failing(Fault{Usage: report}), hello).Usage
		if (whole == nil) != (report == Withheld) || whole != nil && whole.CompletionTokens != want[0] {
			t.Errorf("%d: a whole answer reports %+v", report, whole)
		}
	}
}

func TestAStatusIsToldAsADriverWould(t *testing.T) {
	for _, row := range []struct {
		status         int
		code           fault.Code
		public         int
		refused, fatal bool
	}{
		{400, fault.InvalidRequest, 400, false, false},
		{401, fault.NoChannel, 502, false, true},
		{403, fault.NoChannel, 502, false, true},
		{404, fault.InvalidRequest, 404, false, false},
		{405, fault.BadGateway, 502, false, false},
		{407, fault.NoChannel, 502, false, true},
		{421, fault.NoChannel, 502, false, true},
		{422, fault.InvalidRequest, 422, false, false},
		{425, fault.ServiceUnavailable, 503, true, false},
		{426, fault.NoChannel, 502, false, true},
		{429, fault.UpstreamRateLimit, 429, true, false},
		{500, fault.InternalServerError, 500, false, false},
		{502, fault.BadGateway, 502, false, false},
		{503, fault.ServiceUnavailable, 503, true, false},
		{504, fault.RequestTimeout, 504, false, false},
		{529, fault.ServiceUnavailable, 503, true, false},
		{599, fault.BadGateway, 502, false, false},
	} {
		_, err := New(failing(Fault{Status: row.status})).Do(t.Context(), callOf(t, hello))
		var f *fault.Error
		var cause *upstream.Failure
		if !errors.As(err, &f) || !errors.As(err, &cause) {
			t.Fatalf("%d: %v", row.status, err)
		}
		if f.Code != row.code || f.HTTPStatus() != row.public || cause.Status != row.status || !cause.Sent ||
			cause.Refused != row.refused || cause.Fatal != row.fatal {
			t.Errorf("%d: %+v, %+v", row.status, f, cause)
		}
		if own := row.public == row.status && row.status < 429; own != (f.Body != nil) {
			t.Errorf("%d: the vendor's body is %s", row.status, f.Body)
		}
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

func TestAWholeAnswerThatStallsEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := New(failing(Fault{Break: Stall})).Do(ctx, callOf(t, hello))
		if !fault.Is(err, fault.RequestTimeout) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAClosedStreamGivesNothingMore(t *testing.T) {
	reply, err := New(Options{}).Do(t.Context(), callOf(t, with(streamed)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := reply.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := reply.Body.Read(make([]byte, 10)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if got := reply.Header.Get("Content-Type"); got != "text/event-stream" || reply.Status != http.StatusOK {
		t.Errorf("the reply is %q, %d", got, reply.Status)
	}
}
