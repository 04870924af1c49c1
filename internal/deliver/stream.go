package deliver

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stream is a streamed answer on its way to the client. Next, Read and Close are for one
// goroutine at a time.
type Stream struct {
	delivery // its mutex guards tap and the fields of Stream against the heartbeat
	tap      operation.Tap
	events   *Events // the accepted stream

	lastSent  time.Time   // when the client last got something
	heartbeat *time.Timer // nil for none

	out        []byte // reused by Next
	copiedOut  int    // how much of out is copied for a duplicate
	beforeLast int    // how much of out comes before the last event of a stream that ends
	untaken    bool   // it ended between two calls of Next, which gives out then

	readOn      time.Duration // how long it is read on after its client disconnected; 0 for not at all
	readOnTimer *time.Timer   // ends that; nil before it
}

const (
	batch   = 32 << 10 // bytes of ready events that Next gathers before it returns
	maxKept = 1 << 20  // bytes of the buffer that Next uses again
)

// ToItsEnd is the limit of a stream that is read on to its end.
const ToItsEnd = time.Duration(math.MaxInt64)

// NewStream prepares a stream before the upstream is asked, so that a client gets something
// while it waits. Begin or Abandon follows.
func NewStream(o Options, tap operation.Tap) *Stream {
	s := &Stream{delivery: delivery{o: o}, tap: tap, lastSent: o.Now()}
	s.pieces = s
	if o.Heartbeat != nil && o.Interval > 0 {
		s.mu.Lock() // the timer's goroutine reads it
		defer s.mu.Unlock()
		s.heartbeat = time.AfterFunc(o.Interval, s.sendHeartbeat)
	}
	return s
}

// DropRequest has the tap keep a summary in the place of its request, and reports whether it
// did: then the request's bytes can be freed.
func (s *Stream) DropRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tap.DropRequest()
}

// Begin delivers the events, which the Stream closes. header is what the client is sent. After
// the client disconnected they are read on for at most readOn: only a stream's last event says
// what it costs. With 0 the stream is cancelled then, which ends its vendor's work and bill.
func (s *Stream) Begin(events *Events, header http.Header, readOn time.Duration) {
	s.mu.Lock() // what is watched may end at once
	defer s.mu.Unlock()
	s.events, s.header, s.readOn = events, header, readOn
	s.watch(s.clientLeft)
}

// Abandon ends the heartbeat of a stream that does not begin.
func (s *Stream) Abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.stop()
}

// sendHeartbeat runs on the heartbeat's timer. The timer is not reset for every
// event: it checks how long ago the last one was, and waits on.
func (s *Stream) sendHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.gone {
		return
	}
	now := s.o.Now()
	if idle := now.Sub(s.lastSent); idle < s.o.Interval {
		s.heartbeat.Reset(s.o.Interval - idle)
		return
	}
	s.lastSent = now
	if beat := s.tap.Heartbeat(nil); len(beat) > 0 {
		if s.o.Spec.Numbered && beat[0] != ':' {
			s.copyForReplay(beat)
		}
		s.o.Heartbeat(beat)
	}
	s.heartbeat.Reset(s.o.Interval)
}

// Next returns the events that are ready, framed for the client; it waits for
// the first and for no other. The bytes are valid until the next call. After
// the last event, which is the terminator of a complete stream or one error
// event, it returns io.EOF; by then the request is settled. If the client's context
// has ended first, it returns that error, a *fault.Error, in their place.
func (s *Stream) Next() (out []byte, err error) {
	if !s.enter() {
		return s.takeTail()
	}
	if s.copiedOut = 0; s.out == nil || cap(s.out) > maxKept { // a large event has gone out
		s.out = sse.GetOutput()
	}
	s.out = s.out[:0]
	for more := true; more; {
		event, _, failed := s.events.next(true)
		out, more, err = s.pass(event, failed)
	}
	return out, err
}

// pass handles the event that was waited for, or the error in its place, and all that are
// ready behind it. It reports whether Next has nothing to return yet.
func (s *Stream) pass(event sse.Event, err error) (out []byte, more bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(event, err)
	switch {
	case !s.ended:
		s.copyOut() // before a heartbeat is copied that follows it
		if s.gone { // it is read on without its client
			s.out, s.copiedOut = s.out[:0], 0
		}
		if len(s.out) == 0 {
			return nil, true, nil
		}
	case s.gone || len(s.out) == 0:
		s.leave()
		return nil, false, s.endError()
	}
	out = s.out
	s.leave()
	return out, false, nil
}

// take takes the event, or the error in its place, and the events that are ready behind it. It
// stops at the end of the stream or of a batch. A panic ends the stream.
func (s *Stream) take(event sse.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			_ = s.fail(fault.FromPanic(p))
		}
	}()
	for ready := true; ready; {
		s.takeOne(event, err)
		if s.ended || len(s.out) >= batch {
			return
		}
		event, ready, err = s.events.next(false)
	}
}

// takeTail gives the last event where the end came between two calls of Next.
func (s *Stream) takeTail() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.gone || !s.untaken || len(s.out) == 0 {
		sse.PutOutput(s.out)
		s.out = nil
		return nil, s.endError()
	}
	s.untaken = false
	return s.out, nil
}

// endError is what Next returns once the stream has ended. A client that has disconnected
// gets the reason, so that what it got is not taken for the whole.
func (s *Stream) endError() error {
	if s.gone && !s.closed && s.err != nil {
		return s.err
	}
	return io.EOF
}

// takeOne takes one event, or the error in its place.
func (s *Stream) takeOne(event sse.Event, err error) {
	done, before := false, len(s.out)
	if err == nil {
		s.out, done, err = s.tap.Event(s.out, event.Name, event.Data)
	}
	if before == 0 && len(s.out) > 0 { // once for what leaves together; what is kept back breaks no silence
		if s.lastSent = s.o.Now(); s.first.IsZero() {
			s.first = s.lastSent
		}
	}
	paid, lost := true, error(nil)
	if err == nil && !done {
		paid, lost = s.o.Hold.Covers(s.o.Context, s.tap, s.lastSent)
	}
	switch {
	case errors.Is(err, io.EOF):
		_ = s.fail(upstream.BadAnswer("The upstream's stream ended before it was complete.", err))
	case err != nil:
		_ = s.fail(s.events.key.Masked(err))
	case done:
		s.finish(billing.ReasonComplete)
	case lost != nil:
		_ = s.fail(lost)
	case !paid:
		s.out = s.tap.CutShort(s.out)
		s.finish(billing.ReasonBalanceEnded)
	}
}

// finish ends a stream well: it settles, and only then lets the terminator out.
func (s *Stream) finish(reason string) {
	var err error
	if s.gone {
		reason, err = billing.ReasonClientGone, ClientError(s.o.Client)
	}
	s.beforeLast = len(s.out)
	s.out = append(s.out, s.tap.Terminator()...)
	s.end(s.tap.Usage(), reason, err)
	if reason != billing.ReasonComplete || s.events.reader.Ended() { // most transfers end with the terminator
		s.free()
		return
	}
	go s.finishTransfer()
}

// finishTransfer closes the request of a complete stream when the upstream has ended the
// transfer too, so that its connection can be used again. The client does not wait
// for that.
func (s *Stream) finishTransfer() {
	const timeout = time.Second
	timer := time.AfterFunc(timeout, func() { s.o.Cancel(nil) })
	defer timer.Stop()
	defer s.free()
	s.events.discardRest()
}

// fail appends the error event, unless the client that would get it has gone, and settles
// what was delivered. A duplicate gets all events, and that one in any case: it must not take
// what was received for the whole.
func (s *Stream) fail(err error) error {
	if s.ended {
		return s.err
	}
	reason, err := s.endOf(err)
	if !s.busy { // the caller may still use what the last Next returned
		s.out, s.copiedOut, s.untaken = nil, 0, true
		s.receive()
	}
	s.beforeLast = len(s.out)
	if !s.gone || s.o.Claim != nil {
		s.out = s.appendError(s.out, err)
	}
	var used billing.Usage
	if s.gone || s.tap.Output() > 0 && s.tap.Delivered() { // else nothing of it reached the client
		used = s.tap.Usage()
	}
	s.end(used, reason, err)
	s.free()
	return s.err
}

// end settles the stream; err is why it ends badly. If the settlement fails, its error
// replaces the last event.
func (s *Stream) end(used billing.Usage, reason string, err error) {
	s.stop()
	s.copyOut()
	o := money.Outcome{Answer: s.kept(s.copied), Said: s.tap.Said()}
	if failed := s.settle(used, reason, o, err); failed != nil && !s.gone {
		s.out = s.appendError(s.out[:s.beforeLast], failed)
	}
}

// free ends the transfer, and gives back what the request still has.
func (s *Stream) free() {
	s.o.Cancel(nil)
	s.events.close()
	s.o.Request.Close()
}

// receive takes what has come and was not taken, since the upstream has made it. These are events
// behind a full batch, and the first events of a stream whose client disconnected before them.
func (s *Stream) receive() {
	if len(s.events.readAhead) > 0 && !s.gone {
		return // the client got nothing, and pays nothing
	}
	defer func() { _ = recover() }() // the stream ends badly already: what cannot be read is not counted
	if t, ok := s.tap.(interface{ BreakOff() }); ok {
		t.BreakOff()
	}
	for {
		event, ready, _ := s.events.next(false) // what is ready has no error
		if !ready {
			return
		}
		if out, _, err := s.tap.Event(s.out, event.Name, event.Data); err == nil {
			s.out = out
		}
	}
}

// AppendError appends the event that ends the stream with err. The stream may still end, or
// send a heartbeat, on another goroutine.
func (s *Stream) AppendError(dst []byte, err error) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appendError(dst, err)
}

// appendError is AppendError; mu is held.
func (s *Stream) appendError(dst []byte, err error) []byte {
	return s.o.Spec.AppendError(dst, s.o.ID, s.tap, err)
}

// copyOut copies the events that go out and are not copied yet.
func (s *Stream) copyOut() {
	s.copyForReplay(s.out[min(s.copiedOut, len(s.out)):])
	s.copiedOut = len(s.out)
}

// stop ends the timers.
func (s *Stream) stop() {
	if s.readOnTimer != nil {
		s.readOnTimer.Stop()
	}
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
}

// Read reads the same bytes as Next gives.
func (s *Stream) Read(p []byte) (int, error) { return s.read(p, s.Next) }

// clientLeft runs when the client has disconnected: the stream is cancelled, or read on
// while its request keeps its hold and its slot.
func (s *Stream) clientLeft(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended || s.gone:
		return
	case s.readOn == 0:
		s.o.Cancel(cause)
		return
	}
	s.stop()
	s.gone = true
	s.readOnTimer = time.AfterFunc(s.readOn, func() { s.o.Cancel(cause) })
}

// Close ends the stream. Before its end that settles the request as one whose client
// disconnected; a stream that is read on then is first read to its end. It is safe to call
// more than once.
func (s *Stream) Close() {
	s.clientLeft(context.Canceled)
	for s.readsOn() {
		_, _ = s.Next()
	}
	s.close()
}

// readsOn reports whether the stream is read on after its client disconnected.
func (s *Stream) readsOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone && !s.ended
}
