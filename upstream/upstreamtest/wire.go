package upstreamtest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

var wireChecks = []check{
	{"bytes go both ways unchanged", false, bothWays},
	{"a body can be sent again", false, sentAgain},
	{"many callers at once", false, atOnce},
	{"the caller's fault keeps its words", false, callersFault},
	{"the vendor's fault keeps its status", false, vendorsFault},
	{"the operator's fault is not shown", false, operatorsFault},
	{"a vendor that is away is not sent to", false, away},
	{"a cut answer is an error", false, cut},
	{"every event is there before the next is sent", true, eventByEvent},
	{"canceling while waiting reaches the vendor", false, cancelWaiting},
	{"canceling while reading reaches the vendor", true, cancelReading},
	{"closing the answer reaches the vendor", true, closeReaches},
}

// answering is a vendor that gives the same answer always.
func answering(status int, kind string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

// recording is a vendor that notes what it gets. A body that does not say how
// long it is, or a form that is not of the call's type, is noted as nothing.
func recording(body []byte, c *upstream.Call) (vendor http.Handler, got func() [][]byte) {
	var mu sync.Mutex
	var bodies [][]byte
	answer := answering(http.StatusOK, "application/json", body)
	vendor = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if r.ContentLength != int64(len(data)) || c.Body.Form() != nil && r.Header.Get("Content-Type") != c.ContentType {
			data = nil
		}
		mu.Lock()
		bodies = append(bodies, data)
		mu.Unlock()
		answer(w, r)
	})
	return vendor, func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return bodies
	}
}

func bothWays(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	vendor, got := recording(s.Answer, c)
	ctx, _ := h.bounded(t)
	reply, err := h.make(t, vendor).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if data := whole(t, reply); reply.Status != 200 || !bytes.Equal(data, or(s.Public, s.Answer)) {
		t.Errorf("status %d, reply\n%s\nwant\n%s", reply.Status, data, or(s.Public, s.Answer))
	}
	if sent, want := got(), s.wire(t); len(sent) != 1 || !bytes.Equal(sent[0], want) {
		t.Errorf("the vendor got\n%s\nwant once\n%s", sent, want)
	}
}

func sentAgain(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	vendor, got := recording(s.Answer, c)
	up := h.make(t, vendor)
	ctx, _ := h.bounded(t)
	for range 3 {
		reply, err := up.Do(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		whole(t, reply)
	}
	want := s.wire(t)
	for _, sent := range got() {
		if !bytes.Equal(sent, want) {
			t.Errorf("the vendor got\n%s\nwant\n%s", sent, want)
		}
	}
}

// atOnce is a check of a Local upstream too, whose answer is not known.
func atOnce(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	up := h.make(t, answering(http.StatusOK, "application/json", s.Answer))
	ctx, _ := h.bounded(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			reply, err := up.Do(ctx, c)
			if err != nil {
				t.Error(err)
				return
			}
			data, err := io.ReadAll(reply.Body)
			if err = errors.Join(err, reply.Body.Close()); err != nil || h.Local == nil && !bytes.Equal(data, or(s.Public, s.Answer)) {
				t.Errorf("reply %s, error %v", data, err)
			}
		})
	}
	all.Wait()
}

// refused makes the call and returns its error.
func refused(t *testing.T, h *Harness, c *upstream.Call, vendor http.Handler) (*fault.Error, *upstream.Failure) {
	t.Helper()
	ctx, _ := h.bounded(t)
	_, err := h.make(t, vendor).Do(ctx, c)
	var e *fault.Error
	var f *upstream.Failure
	if !errors.As(err, &e) || !errors.As(err, &f) {
		t.Fatalf("error %v, want a *fault.Error with an *upstream.Failure in its chain", err)
	}
	return e, f
}

func callersFault(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	want := s.Refusal
	e, f := refused(t, h, c, answering(want.Status, "application/json", want.Body))
	if e.HTTPStatus() != want.Status || e.Code != want.Code || e.Message != want.Message {
		t.Errorf("%d %s %q, want %+v", e.HTTPStatus(), e.Code, e.Message, want)
	}
	if f.Status != want.Status || !f.Sent || f.Fatal {
		t.Errorf("failure %+v", f)
	}
}

// vendorsFaults leads from a vendor's status to ours.
var vendorsFaults = map[int]fault.Code{
	429: fault.UpstreamRateLimit,
	500: fault.InternalServerError,
	502: fault.BadGateway,
	503: fault.ServiceUnavailable,
	504: fault.RequestTimeout,
	529: fault.ServiceUnavailable,
}

func vendorsFault(t *testing.T, h *Harness, c *upstream.Call, _ *Sample) {
	for status, code := range vendorsFaults {
		e, f := refused(t, h, c, answering(status, "text/plain", []byte("rack 9 burns")))
		refused := status == 429 || status == 503 || status == 529
		if e.Code != code || f.Status != status || f.Refused != refused || f.Fatal || !f.Sent {
			t.Errorf("status %d: %s, failure %+v", status, e.Code, f)
		}
		if strings.Contains(e.Message, "rack 9") || !strings.Contains(e.Error(), "rack 9") {
			t.Errorf("status %d: %v, want the vendor's text in the log only", status, e)
		}
	}
}

func operatorsFault(t *testing.T, h *Harness, c *upstream.Call, _ *Sample) {
	for _, status := range []int{401, 403, 407, 426} {
		e, f := refused(t, h, c, answering(status, "text/plain", []byte("pay your bill")))
		if e.Code != fault.NoChannel || f.Status != status || !f.Fatal || strings.Contains(e.Message, "bill") {
			t.Errorf("status %d: %v, failure %+v", status, e, f)
		}
	}
}

func away(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	var up upstream.Upstream
	t.Run("start and stop", func(t *testing.T) { // at its end the vendor is stopped
		up = h.make(t, answering(http.StatusOK, "application/json", s.Answer))
	})
	ctx, _ := h.bounded(t)
	_, err := up.Do(ctx, c)
	var f *upstream.Failure
	if !fault.Is(err, fault.NoChannel) || !errors.As(err, &f) || f.Sent {
		t.Errorf("error %v, failure %+v", err, f)
	}
}

func cut(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	ctx, _ := h.bounded(t)
	reply, err := h.make(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answering(http.StatusOK, "application/json", s.Answer[:len(s.Answer)/2])(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})).Do(ctx, c)
	if err != nil {
		return // a driver that reads it whole
	}
	defer reply.Body.Close()
	if data, err := io.ReadAll(reply.Body); err == nil {
		t.Errorf("half an answer, %q, ended without an error", data)
	}
}

func eventByEvent(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	ctx, _ := h.bounded(t)
	next := make(chan struct{})
	reply, err := h.make(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range s.Events {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	for i := range s.Events {
		want := s.public(i)
		got := make([]byte, len(want))
		if n, err := io.ReadFull(reply.Body, got); err != nil || string(got) != want {
			t.Fatalf("event %d: %q, %v, want %q", i, got[:n], err, want)
		}
		select {
		case next <- struct{}{}:
		case <-ctx.Done():
			t.Fatalf("event %d could be read only after the vendor had given up", i)
		}
	}
	if rest, err := io.ReadAll(reply.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the last event: %q, %v", rest, err)
	}
}

// holding is a vendor that sends, if it is to send at all, its first event and
// then waits until its client has left.
func holding(s *Sample, send bool) (vendor http.Handler, waits, left chan struct{}) {
	waits, left = make(chan struct{}), make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if send {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, s.Events[0])
			_ = http.NewResponseController(w).Flush()
		}
		close(waits)
		<-r.Context().Done()
		close(left)
	}), waits, left
}

func cancelWaiting(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	vendor, waits, left := holding(s, false)
	up := h.make(t, vendor)
	ctx, cancel := h.bounded(t)
	go func() {
		<-waits
		cancel()
	}()
	_, err := up.Do(ctx, c)
	if f, found := upstream.FailureOf(err); !fault.Is(err, fault.ClientGone) || !found || !f.Sent {
		t.Errorf("error %v, failure %+v", err, f)
	}
	h.await(t, left)
}

func cancelReading(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	vendor, waits, left := holding(s, true)
	ctx, cancel := h.bounded(t)
	reply, err := h.make(t, vendor).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	h.await(t, waits)
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := io.ReadAll(reply.Body); err == nil {
			t.Error("the answer ended as if it were complete")
		}
	}()
	h.await(t, left)
	h.await(t, ended)
}

func closeReaches(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	vendor, waits, left := holding(s, true)
	ctx, _ := h.bounded(t)
	reply, err := h.make(t, vendor).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	h.await(t, waits)
	if err := reply.Body.Close(); err != nil {
		t.Error(err)
	}
	h.await(t, left)
}

// await waits for done, or fails.
func (h *Harness) await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(h.MaxWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatal("it has not happened within MaxWait")
	}
}

func (s *Sample) public(i int) string {
	if s.PublicEvents != nil {
		return s.PublicEvents[i]
	}
	return s.Events[i]
}

func or(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}
